package web

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/queue"
)

// list fills the table of builds.
func (v *queueView) list(st *queue.State, q url.Values, f queueFilter) {
	var counts [4]int
	var builds []*queue.Build
	for i := range st.Builds {
		b := &st.Builds[i]
		if f.server == "" || b.On == f.server {
			for j, s := range shows {
				if (queueFilter{show: s.name}).shows(b) {
					counts[j]++
				}
			}
		}
		if f.holds(b) {
			builds = append(builds, b)
		}
	}
	for i, s := range shows {
		current := f.why == "" && (f.show == s.name || f.show == "waiting" && s.name == "")
		v.Shows = append(v.Shows, choice{link{fmt.Sprintf("%s %d", s.word, counts[i]), queueURL(q, "show", s.name, "why", "") + "#queue-list", ""}, current})
	}
	if f.why != "" || f.tag != "" || f.server != "" {
		var words []string
		if f.why != "" {
			words = append(words, whyWord(queue.Why(strings.Replace(f.why, "unknown", "", 1))))
		}
		if f.tag != "" {
			words = append(words, "tag "+name(f.tag))
		}
		if f.server != "" {
			words = append(words, "on "+name(f.server))
		}
		v.Count, v.Drop = plural(len(builds), "build")+": "+strings.Join(words, ", "), queueURL(q, "why", "", "tag", "", "server", "")
	}
	stale := map[string]bool{}
	for i := range st.Servers {
		stale[st.Servers[i].Name] = st.Servers[i].Stale
	}
	from, to, links := pagesOf(len(builds), q.Get("page"), queueRows, func(page string) string { return queueURL(q, "page", page) + "#queue-list" })
	v.Pages = links
	var waited, ran []opt
	for _, b := range builds[from:to] {
		waited, ran = append(waited, b.Waited), append(ran, b.Ran)
	}
	wc, rc := timeColumn(largest(waited...)), timeColumn(largest(ran...))
	v.Headings = []heading{{Label: "build"}, {Label: "tags", Title: "that a worker must have"}, {Label: "state"}, {Label: "waited", Unit: wc.Unit, Class: "n"},
		{Label: "runs", Unit: rc.Unit, Class: "n"}, {Label: "waits for"}, {Label: "will start", Title: "as the last waits for the same tags tell: half of them lay between the two"}, {Label: "where"}}
	for _, b := range builds[from:to] {
		row := queueRowOf(b, wc, rc)
		row.Stale = stale[b.On]
		if len(st.Servers) > 1 {
			row.On = name(b.On)
		}
		v.Rows = append(v.Rows, row)
	}
}

// queuedLink leads to a build: to its page when an agent meters it, else to its CI
// server's.
func queuedLink(b *queue.Build) link {
	l := link{Text: label(&b.Build), Title: title(b.Key)}
	if b.Metered {
		l.URL = buildURL(b.Key)
	} else if u := outside(b.URL); u != "" {
		l.URL, l.Text = u, l.Text+" ↗"
	}
	return l
}

func queueRowOf(b *queue.Build, wc, rc column) queueRow {
	row := queueRow{Key: title(b.Key), Build: queuedLink(b), Waited: wc.cell(b.Waited), Ran: rc.cell(b.Ran), Start: dash, Tags: dash, TagsOf: "its CI server does not tell them"}
	if b.Tags != nil {
		row.Tags, row.TagsOf = display.Fit(strings.Join(b.Tags, ", "), 40, "…"), title(strings.Join(b.Tags, ", "))
		if len(b.Tags) == 0 {
			row.Tags, row.TagsOf = "none", "any worker that takes builds without tags"
		}
	}
	switch b.Status {
	case cimeter.JobWaiting:
		row.State, row.Reason = "waiting", whyWord(b.Why)
		row.StartX = "fewer than 20 waits for the same tags were seen"
		if e, ok := b.Start.Get(); ok {
			row.Start = "in " + seconds(e.Seconds)
			row.StartX = fmt.Sprintf("%s to %s", seconds(e.Low), seconds(e.High))
		}
	case cimeter.JobBlocked:
		row.State, row.Reason, row.StartX = "blocked", "something other than a worker", "it waits for no worker"
	default:
		row.State = "running"
		row.StartX = "it runs"
		if b.Why != queue.WhyUnknown {
			row.Reason = whyWord(b.Why)
		}
	}
	if b.Machine != "" {
		row.Where = link{display.Fit(b.Machine, 24, "…"), "", title(b.Machine)}
		if b.Metered {
			row.Where.URL = href("/machine", "name", b.Machine)
		}
		if b.Stage != "" {
			row.Where.Text += ", " + display.Fit(b.Stage, 24, "…")
		}
	} else if b.Worker != "" {
		row.Where = link{display.Fit(b.Worker, 24, "…"), "", title(b.Worker)}
	}
	return row
}

// workers fills the table of workers: those first that take nothing.
func (v *queueView) workers(st *queue.State, q url.Values, f queueFilter) {
	place := func(w *queue.Worker) int {
		return slices.Index([]cimeter.WorkerState{cimeter.WorkerOffline, cimeter.WorkerDraining, cimeter.WorkerUnknown, cimeter.WorkerBusy, cimeter.WorkerIdle}, w.State)
	}
	var ws []*queue.Worker
	for i := range st.Workers {
		if w := &st.Workers[i]; f.server == "" || w.On == f.server {
			ws = append(ws, w)
		}
	}
	slices.SortStableFunc(ws, func(a, b *queue.Worker) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), a.ContactedAt.Compare(b.ContactedAt))
	})
	from, to, links := pagesOf(len(ws), q.Get("workers"), queueRows, func(page string) string { return queueURL(q, "workers", page) + "#queue-workers" })
	v.WPages, v.WorkerN = links, plural(len(ws), "worker")
	builds := map[string]*queue.Build{}
	for i := range st.Builds {
		builds[st.Builds[i].Key] = &st.Builds[i]
	}
	for _, w := range ws[from:to] {
		row := workerRowOf(w, builds, st.At)
		if len(st.Servers) > 1 {
			row.On = name(w.On)
		}
		v.Workers = append(v.Workers, row)
	}
}

func workerRowOf(w *queue.Worker, builds map[string]*queue.Build, now time.Time) workerRow {
	row := workerRow{Name: link{Text: name(orElse(w.Name, w.ID)), Title: title(strings.Join(append([]string{w.ID}, w.Tags...), " "))}, State: orElse(string(w.State), "unknown"),
		Bad: w.State == cimeter.WorkerOffline, Slots: dash, Contact: ago(now, w.ContactedAt), Stale: w.Stale}
	if k := w.Runner.Key(); k != "" {
		row.Name.URL = href("/runner", "key", k)
	}
	switch {
	case w.Slots.Known && w.Running.Known:
		row.Slots = fmt.Sprintf("%d of %d", w.Running.Value, w.Slots.Value)
		if w.Slots.Value > 0 {
			row.Bar = barPath(float64(w.Running.Value) / float64(w.Slots.Value))
		}
	case w.Slots.Known:
		row.Slots = fmt.Sprintf("%s of %d", dash, w.Slots.Value)
	case w.Running.Known:
		row.Slots = fmt.Sprintf("%d of %s", w.Running.Value, dash)
	}
	const most = 3
	for _, key := range w.Builds[:min(len(w.Builds), most)] {
		if b := builds[key]; b != nil {
			row.Builds = append(row.Builds, queuedLink(b))
		} else {
			row.Builds = append(row.Builds, link{Text: name(key), Title: title(key)})
		}
	}
	if n := len(w.Builds) - most; n > 0 {
		row.More = fmt.Sprintf("and %d more", n)
	}
	return row
}
