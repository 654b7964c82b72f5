package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/queue"
)

// queueRows is how many builds, and how many workers, the page lists at once.
const queueRows = 50

type queueView struct {
	page
	Known    bool // of some CI server it is known how to ask it
	Problem  string
	Away     []string // what is said of servers that do not answer
	Greyed   bool     // every number is of a server that does not answer
	Figures  []queueFigure
	Servers  []queueServer
	Whys     []whyBar
	Ranges   []choice
	Charts   *lineGroup
	ChartsBy string // why there is no chart of waits
	Shows    []choice
	Headings []heading
	Rows     []queueRow
	Count    string
	Drop     string // URL without the filter
	Nothing  string
	Pages    []choice
	Workers  []workerRow
	WorkerN  string
	WPages   []choice
}

// queueFigure is a number that leads to the builds that it counts.
type queueFigure struct{ Label, Value, Title, URL string }

type queueServer struct {
	Name                               link
	CI, State                          string
	Stale                              bool
	Waiting, Blocked, Running, Workers string
}

type whyBar struct {
	Label, URL, Title string
	N                 string
	Bar               string
}

type queueRow struct {
	Key    string
	Build  link
	On     string
	Tags   string
	TagsOf string
	State  string
	Waited string
	Ran    string
	Reason string
	Start  string
	StartX string // why it is not known, or how sure it is
	Where  link
	Stale  bool
}

type workerRow struct {
	Name    link
	On      string
	State   string
	Bad     bool
	Slots   string
	Bar     string
	Builds  []link
	More    string
	Contact string
	Stale   bool
}

// reason is what a build waits for, as addresses and people name it.
type reason struct {
	why         queue.Why
	param, word string
	means       string
}

// whyWords are the reasons in the order in which they are shown.
var whyWords = []reason{
	{queue.WhyNoWorker, "no_worker", "no worker with its tags", "every worker that has the build's tags is offline or draining, or there is none"},
	{queue.WhyNoSlot, "no_slot", "no free slot", "the workers that have the build's tags are full"},
	{queue.WhyStarting, "starting", "machine starting", "a worker took it, and no agent has seen anything of it yet"},
	{queue.WhyPull, "pull", "image pull", "an image is pulled"},
	{queue.WhyPreparing, "preparing", "preparing", "its first containers run, its own commands do not yet"},
	{queue.WhyUnknown, "unknown", "unknown", "the CI server does not tell enough to say why"},
}

func whyWord(w queue.Why) string {
	for _, x := range whyWords {
		if x.why == w {
			return x.word
		}
	}
	return name(string(w))
}

// inQueue reports whether a build counts among those that wait for something.
func inQueue(b *queue.Build) bool { return b.Status == cimeter.JobWaiting || b.Why != queue.WhyUnknown }

// queueFilter is what the list is narrowed to.
type queueFilter struct{ show, why, server, tag string }

var shows = []struct{ name, word string }{{"", "waiting"}, {"blocked", "blocked"}, {"running", "running"}, {"all", "all"}}

func (f queueFilter) holds(b *queue.Build) bool {
	if f.server != "" && b.On != f.server || f.tag != "" && !slices.Contains(b.Tags, f.tag) {
		return false
	}
	if f.why != "" {
		return inQueue(b) && (string(b.Why) == f.why || b.Why == queue.WhyUnknown && f.why == "unknown")
	}
	return f.shows(b)
}

func (f queueFilter) shows(b *queue.Build) bool {
	switch f.show {
	case "blocked":
		return b.Status == cimeter.JobBlocked
	case "running":
		return b.Status != cimeter.JobBlocked && b.Status != cimeter.JobWaiting
	case "all":
		return true
	}
	return b.Status == cimeter.JobWaiting
}

// queueURL is the page's URL with some parameters changed; "" takes one away.
func queueURL(q url.Values, pairs ...string) string {
	v := url.Values{}
	for _, key := range []string{"show", "why", "server", "tag", "t"} {
		if x := q.Get(key); x != "" {
			v.Set(key, x)
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if v.Del(pairs[i]); pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	if len(v) == 0 {
		return "/queue"
	}
	return "/queue?" + v.Encode()
}

func (p *Pages) queue(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	st := p.o.Queue()
	v := queueView{page: p.page(r, "Queue", "queue"), Known: len(st.Servers) > 0}
	v.Live = v.Known
	v.Lines = "touched"
	f := queueFilter{q.Get("show"), q.Get("why"), q.Get("server"), q.Get("tag")}
	status := http.StatusOK
	if v.Problem = f.problem(&st); v.Problem != "" {
		status, f = http.StatusBadRequest, queueFilter{}
	} else if t := q.Get("t"); t != "" && !slices.ContainsFunc(queueSpans, func(s queueSpan) bool { return s.name == t }) {
		v.Problem, status = "t: want 1h, 6h, 24h or 7d", http.StatusBadRequest
	}
	v.now(&st, q, f)
	v.why(&st, q, f)
	v.lastDay(&st, q, f)
	v.list(&st, q, f)
	v.workers(&st, q, f)
	if len(v.Rows) == 0 && v.Known && longestOf(&st, f).Seconds <= 0 && f == (queueFilter{}) {
		p.part(r, &v.page, "longest", "the longest wait of the last day", func(ctx context.Context) error {
			return v.longestKept(ctx, p.o.Source, &st)
		})
	}
	return p.render(w, r, status, "queue", v)
}

// longestKept says what waited longest in the last day as far as the store knows, which
// a process that was just started does not.
func (v *queueView) longestKept(ctx context.Context, from Source, st *queue.State) error {
	page, err := from.Builds(ctx, Query{Filter: filter.Filter{{Field: filter.Since, Op: filter.Eq, At: st.At.Add(-24 * time.Hour)}}, Sort: SortQueue, Limit: 1})
	if err != nil || len(page.Rows) == 0 {
		return err
	}
	r := &page.Rows[0]
	if waited, known := r.Queue().Get(); known && waited > 0 {
		v.Nothing = fmt.Sprintf("Nothing waits. Longest wait in 24 h: %s (%s, %s).", seconds(waited), label(&r.Build), ago(st.At, r.StartedAt))
	}
	return nil
}

// longestOf is the longest wait of the last day that this process saw.
func longestOf(st *queue.State, f queueFilter) (long queue.Longest) {
	for i := range st.Servers {
		if s := &st.Servers[i]; (f.server == "" || s.Name == f.server) && s.LongestDay.Seconds > long.Seconds {
			long = s.LongestDay
		}
	}
	return long
}

// problem is what is wrong with a filter; "" nothing.
func (f queueFilter) problem(st *queue.State) string {
	known := func(s string, of []string) bool { return s == "" || slices.Contains(of, s) }
	var servers, whys []string
	for i := range st.Servers {
		servers = append(servers, st.Servers[i].Name)
	}
	for _, w := range whyWords {
		whys = append(whys, w.param)
	}
	switch {
	case !known(f.show, []string{"waiting", "blocked", "running", "all"}):
		return "show: want waiting, blocked, running or all"
	case !known(f.why, whys):
		return "why: want " + strings.Join(whys[:len(whys)-1], ", ") + " or " + whys[len(whys)-1]
	case !known(f.server, servers):
		return "server: there is no CI server " + name(f.server)
	}
	return ""
}

// now fills the figures, the servers and what is said of those that are away.
func (v *queueView) now(st *queue.State, q url.Values, f queueFilter) {
	var waiting, blocked, running cimeter.Opt[int]
	add := func(to *cimeter.Opt[int], o cimeter.Opt[int]) {
		if o.Known {
			to.Value, to.Known = to.Value+o.Value, true
		}
	}
	stale, asked := 0, 0
	for i := range st.Servers {
		s := &st.Servers[i]
		if f.server != "" && s.Name != f.server {
			continue
		}
		asked++
		if s.Stale {
			stale++
			v.Away = append(v.Away, awayWords(s, st.At))
		}
		add(&waiting, s.Waiting)
		add(&blocked, s.Blocked)
		add(&running, s.Running)
	}
	v.Greyed = stale > 0 && stale == asked
	if len(st.Servers) > 1 {
		for i := range st.Servers {
			v.Servers = append(v.Servers, serverRow(&st.Servers[i], st.At, q))
		}
	}
	var waited []float64
	var oldest *queue.Build
	for i := range st.Builds {
		b := &st.Builds[i]
		if b.Status != cimeter.JobWaiting || !b.Waited.Known || f.server != "" && b.On != f.server {
			continue
		}
		waited = append(waited, b.Waited.Value)
		if oldest == nil || b.Waited.Value > oldest.Waited.Value {
			oldest = b
		}
	}
	count := func(o cimeter.Opt[int]) string {
		if !o.Known {
			return dash
		}
		return thousands(float64(o.Value))
	}
	v.Figures = []queueFigure{
		{"waiting", count(waiting), "builds that wait for a worker", queueURL(q, "show", "", "why", "")},
		{"blocked", count(blocked), "builds that wait for something other than a worker: an earlier build, a person, a time", queueURL(q, "show", "blocked", "why", "")},
		{"running", count(running), "builds that a worker has", queueURL(q, "show", "running", "why", "")},
	}
	long := queueFigure{Label: "oldest wait", Value: dash, Title: "nothing waits"}
	if oldest != nil {
		long.Value, long.Title = seconds(oldest.Waited.Value), title(label(&oldest.Build))
	}
	p50 := queueFigure{Label: "half of them wait less than", Value: dash, Title: "nothing waits now"}
	p95 := queueFigure{Label: "95 % less than", Value: dash, Title: "nothing waits now"}
	if len(waited) > 0 {
		slices.Sort(waited)
		p50.Value, p95.Value = seconds(middle(waited)), seconds(waited[(len(waited)*95+99)/100-1])
		p50.Title, p95.Title = "the median wait so far of those that wait now", "the 95th percentile of the waits so far of those that wait now"
	}
	v.Figures = append(v.Figures, long, p50, p95)
	v.Nothing = nothing(st, f)
}

// nothing says that nothing waits, and what waited longest lately.
func nothing(st *queue.State, f queueFilter) string {
	long := longestOf(st, f)
	if long.Seconds <= 0 {
		return "Nothing waits, and nothing has waited in the last 24 hours that was seen."
	}
	job := strings.Trim(name(long.Project)+" / "+name(long.Name), " /")
	return fmt.Sprintf("Nothing waits. Longest wait in 24 h: %s (%s, %s).", seconds(long.Seconds), orElse(job, name(long.Key)), ago(st.At, long.At))
}

// awayWords says that a server does not answer, since when, and how old is what
// is shown of it.
func awayWords(s *queue.Server, now time.Time) string {
	said := name(s.Name) + " does not answer"
	switch {
	case s.Status > 0:
		said = fmt.Sprintf("%s answers %d %s", name(s.Name), s.Status, http.StatusText(s.Status))
	case s.Failure == "":
		said = name(s.Name) + " was not heard of for long"
	}
	if !s.FailsAt.IsZero() {
		said += ", since " + strings.TrimSuffix(ago(now, s.FailsAt), " ago")
	}
	if !s.AgeSeconds.Known {
		return strings.TrimSpace(said) + ". Nothing was ever heard of it."
	}
	return strings.TrimSpace(said) + ". What is shown of it is " + seconds(s.AgeSeconds.Value) + " old."
}

func serverRow(s *queue.Server, now time.Time, q url.Values) queueServer {
	count := func(o cimeter.Opt[int]) string {
		if !o.Known {
			return dash
		}
		return thousands(float64(o.Value))
	}
	row := queueServer{Name: link{name(s.Name), queueURL(q, "server", s.Name), title(s.Name)}, CI: name(s.CI), Stale: s.Stale,
		Waiting: count(s.Waiting), Blocked: count(s.Blocked), Running: count(s.Running), Workers: dash}
	if w := s.Workers; w.Known {
		row.Workers = fmt.Sprintf("%d busy, %d idle, %d offline", w.Value.Busy, w.Value.Idle, w.Value.Offline)
		if n := w.Value.Draining; n > 0 {
			row.Workers += fmt.Sprintf(", %d draining", n)
		}
	}
	switch {
	case s.Status > 0:
		row.State = fmt.Sprintf("answers %d", s.Status)
	case s.Stale && s.Failure != "":
		row.State = "does not answer"
	case s.Elsewhere:
		row.State = "asked by another server"
	}
	if s.AgeSeconds.Known {
		row.State = strings.TrimPrefix(row.State+", as of "+seconds(s.AgeSeconds.Value)+" ago", ", ")
	} else {
		row.State = strings.TrimPrefix(row.State+", never heard of", ", ")
	}
	return row
}

// why fills the bars of what is waited for.
func (v *queueView) why(st *queue.State, q url.Values, f queueFilter) {
	counts := map[queue.Why]int{}
	most := 0
	for i := range st.Builds {
		if b := &st.Builds[i]; inQueue(b) && (f.server == "" || b.On == f.server) {
			counts[b.Why]++
			most = max(most, counts[b.Why])
		}
	}
	if most == 0 {
		return
	}
	for _, w := range whyWords {
		n := counts[w.why]
		bar := whyBar{Label: w.word, Title: w.means, N: thousands(float64(n)), Bar: barPath(float64(n) / float64(most))}
		if n > 0 {
			bar.URL = queueURL(q, "why", w.param, "show", "") + "#queue-list"
		}
		v.Whys = append(v.Whys, bar)
	}
}
