package expvar

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/series"
)

// maxPages bounds the pages that are made at once: each is held in memory whole.
const maxPages = 4

// Options of a page. A part whose field is nil is not there.
type Options struct {
	Program  string                 // cmdline: the program's name, without its flags
	Queue    func() Queue           // queue; called for each request
	Families func() []series.Family // cimeter: the metrics; called for each request, one at a time
}

// Page writes /debug/vars.
type Page struct {
	o       Options
	serving chan struct{}
	alone   chan struct{} // held while Families runs
}

// New returns the page that the options describe.
func New(o Options) *Page {
	return &Page{o: o, serving: make(chan struct{}, maxPages), alone: make(chan struct{}, 1)}
}

// ServeHTTP answers GET and HEAD; over four requests at once it answers 503.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed: want GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	select {
	case p.serving <- struct{}{}:
		defer func() { <-p.serving }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests at once: want at most "+strconv.Itoa(maxPages), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if r.Method == http.MethodHead {
		return
	}
	_ = p.Write(w) // an error is the connection's, and nobody is left to tell
}

// Write writes the page to w. The error is w's.
func (p *Page) Write(w io.Writer) error {
	var b bytes.Buffer
	o := object{b: &b}
	o.open()
	o.name("cmdline")
	o.value([]string{p.o.Program})
	if p.o.Families != nil {
		p.alone <- struct{}{}
		families := p.o.Families()
		<-p.alone
		o.name("cimeter")
		o.families(families)
	}
	o.name("memstats")
	o.value(memory())
	if p.o.Queue != nil {
		o.name("queue")
		o.queue(p.o.Queue())
	}
	o.close()
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// object writes JSON objects whose members stand in the order of the calls, one a
// line at the top, as the standard expvar does.
type object struct {
	b     *bytes.Buffer
	depth int
	begun bool
}

func (o *object) open() {
	o.b.WriteByte('{')
	o.depth++
	o.begun = false
}

func (o *object) close() {
	o.depth--
	if o.depth == 0 {
		o.b.WriteByte('\n')
	}
	o.b.WriteByte('}')
	o.begun = true
}

func (o *object) name(s string) {
	if o.begun {
		o.b.WriteByte(',')
	}
	if o.depth == 1 {
		o.b.WriteByte('\n')
	}
	o.value(s)
	o.b.WriteByte(':')
}

// value writes v, which is never a number that JSON cannot hold.
func (o *object) value(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte("null")
	}
	o.b.Write(text)
	o.begun = true
}

func (o *object) number(f float64) {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		o.b.WriteString(strconv.FormatInt(int64(f), 10))
		o.begun = true
		return
	}
	o.value(f)
}

// families writes each metric: a number when it has no labels, else an object of
// numbers by labels as name=value with commas between; of a histogram objects
// with buckets (by upper bound, cumulative), count and sum.
func (o *object) families(families []series.Family) {
	o.open()
	for _, f := range families {
		plain := len(f.Points) == 1 && len(f.Points[0].Labels) == 0
		if len(f.Points) == 0 || plain && !told(f.Points[0]) {
			continue
		}
		o.name(f.Name)
		if !plain {
			o.open()
		}
		for _, p := range f.Points {
			if !told(p) {
				continue
			}
			if !plain {
				o.name(labels(p.Labels))
			}
			o.point(p)
		}
		if !plain {
			o.close()
		}
	}
	o.close()
}

func (o *object) point(p series.Point) {
	switch {
	case p.Buckets != nil:
		o.open()
		o.name("buckets")
		o.open()
		n := uint64(0)
		for i, c := range p.Buckets.Counts {
			n += c
			bound := "+Inf"
			if i < len(p.Buckets.Bounds) {
				bound = strconv.FormatFloat(p.Buckets.Bounds[i], 'g', -1, 64)
			}
			o.name(bound)
			o.value(n)
		}
		o.close()
		o.countAndSum(n, p.Buckets.Sum)
		o.close()
	case p.Quantiles != nil:
		o.open()
		o.name("quantiles")
		o.open()
		for i, v := range p.Quantiles.Values {
			if finite(v) {
				o.name(strconv.FormatFloat(p.Quantiles.Ranks[i], 'g', -1, 64))
				o.number(v)
			}
		}
		o.close()
		o.countAndSum(p.Quantiles.Count, p.Quantiles.Sum)
		o.close()
	default:
		o.number(p.Value)
	}
}

// told reports whether JSON can hold the point: NaN and infinities are left out.
func told(p series.Point) bool { return p.Buckets != nil || p.Quantiles != nil || finite(p.Value) }

func (o *object) countAndSum(n uint64, sum float64) {
	o.name("count")
	o.value(n)
	if finite(sum) {
		o.name("sum")
		o.number(sum)
	}
}

func labels(of []series.Label) string {
	var b strings.Builder
	for i, l := range of {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(l.Name + "=" + l.Value)
	}
	return b.String()
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// maxWorkers bounds the workers of a queue that are shown one by one.
const maxWorkers = 1000

// Queue is the queue of a CI system as its founders drew it. What is not known is
// absent.
type Queue struct {
	Length  cimeter.Opt[int] // queueLen: builds that wait
	Workers cimeter.Opt[int] // workerCount
	Waiting cimeter.Opt[int] // workerWaiting: workers that wait for a build
	Working cimeter.Opt[int] // workerWorking: workers that have one
	Builds  []Build          // worker0, worker1 ...: what the workers that have a build work on; at most 1,000 are shown
}

// Build is what one worker works on. Empty fields are not shown.
type Build struct {
	Repo    string `json:"repo,omitempty"`
	Branch  string `json:"branch,omitempty"`
	Commit  string `json:"commit,omitempty"`
	Build   string `json:"build,omitempty"`   // its key
	Machine string `json:"machine,omitempty"` // where it runs
}

func (o *object) queue(q Queue) {
	o.open()
	for _, m := range []struct {
		name string
		n    cimeter.Opt[int]
	}{{"queueLen", q.Length}, {"workerCount", q.Workers}, {"workerWaiting", q.Waiting}, {"workerWorking", q.Working}} {
		if n, ok := m.n.Get(); ok {
			o.name(m.name)
			o.value(n)
		}
	}
	for i, b := range q.Builds[:min(len(q.Builds), maxWorkers)] {
		o.name("worker" + strconv.Itoa(i))
		o.value(b)
	}
	o.close()
}
