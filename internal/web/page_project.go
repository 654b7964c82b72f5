package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/filter"
)

const (
	groupRows   = 100 // groups in a table
	historyMost = 300 // builds of a job that its trends show, a dot each
	trendsFrom  = 5   // builds that a trend needs
)

// groupTable is builds added up, a row a group.
type groupTable struct {
	First    string // heading of the name
	Headings []heading
	Rows     []groupRow
	Pressure bool // there is a column of it
}

type groupRow struct {
	Name     link
	Builds   link
	CPU      string
	Share    string
	Bar      string
	Failed   string
	FailedOf string
	Wall     string
	Held     string
	Pressure string
	Moved    string
	Peak     string
	OOM      string
	Last     stamp
}

type groupsView struct {
	page
	S       selection
	Ranges  []choice
	Problem string
	Lead    string
	Figures []figure
	Table   groupTable
	Empty   string
}

// groupTableOf makes the table; name gives a group's link and the link of its
// builds.
func groupTableOf(first string, gs []Group, now time.Time, name func(*Group) (link, string)) groupTable {
	t := groupTable{First: first}
	var cpu, moved, peaks, wall, held float64
	total := 0.0
	for i := range gs {
		g := &gs[i]
		total += g.CPUSeconds
		cpu, moved, wall = max(cpu, g.CPUSeconds), max(moved, float64(g.IOBytes+g.NetworkBytes)), max(wall, g.WallSeconds/max(1, float64(g.Builds)))
		peaks, held = max(peaks, float64(g.MemoryPeakBytes.Value)), max(held, g.ThrottledSeconds)
	}
	cols := [5]column{hours(cpu), bytesColumn(moved), bytesColumn(peaks), timeColumn(wall), timeColumn(held)}
	for i := range gs {
		g := &gs[i]
		l, to := name(g)
		row := groupRow{Name: l, Builds: link{Text: thousands(float64(g.Builds)), URL: to}, CPU: cols[0].cell(some(g.CPUSeconds)), Moved: cols[1].cell(some(float64(g.IOBytes + g.NetworkBytes))),
			Peak: cols[2].cell(opt{Value: float64(g.MemoryPeakBytes.Value), Known: g.MemoryPeakBytes.Known}), Wall: dash, Held: cols[4].cell(some(g.ThrottledSeconds)), Last: stampOf(now, g.Last), Failed: dash, Share: dash}
		if g.Builds > 0 {
			row.Wall = cols[3].cell(some(g.WallSeconds / float64(g.Builds)))
		}
		if total > 0 {
			row.Share, row.Bar = percent(g.CPUSeconds/total), barPath(g.CPUSeconds/total)
		}
		if n := g.Builds - g.Canceled; n > 0 {
			row.Failed, row.FailedOf = percent(float64(g.Failed)/float64(n)), fmt.Sprintf("%d of %d that were not canceled", g.Failed, n)
		}
		if g.OOM > 0 {
			row.OOM = fmt.Sprintf("%d out of memory", g.OOM)
		}
		t.Rows = append(t.Rows, row)
	}
	n := func(label, unit, title string) heading {
		return heading{Label: label, Unit: unit, Title: title, Class: "n"}
	}
	t.Headings = []heading{{Label: first}, n("builds", "", ""), n("CPU", cols[0].Unit, "CPU time"), {Label: "share", Title: "of the CPU time of this table"}, n("failed", "", "of those that were not canceled"),
		n("mean time", cols[3].Unit, "from start to end"), n("throttled", cols[4].Unit, "time that CPU limits held builds up"), n("largest peak", cols[2].Unit, "of memory"), n("moved", cols[1].Unit, "disk and network"), {Label: "last end"}, {Label: ""}}
	return t
}

// hours is the column of CPU time of many builds.
func hours(largest float64) column {
	if largest >= 3600 {
		return column{"h", 3600, decimalsFor(largest / 3600)}
	}
	return timeColumn(largest)
}

func (p *Pages) groupsPage(r *http.Request, title, active, byDefault string) (groupsView, time.Time, time.Time) {
	now := p.o.Now()
	v := groupsView{page: p.page(r, title, active), S: selectionOf(r, now, byDefault)}
	v.Ranges, v.Span = v.S.rangeChoices(r.URL.Path), v.S.spanForm(r.URL.Path, now)
	from, to := v.S.span(now)
	if v.S.err != nil {
		v.Problem = v.S.wrong().Want
		from = now.Add(-24 * time.Hour)
	}
	return v, from, to.Add(time.Second)
}

func (p *Pages) projects(w http.ResponseWriter, r *http.Request) error {
	v, from, to := p.groupsPage(r, "Projects", "projects", "30d")
	gs, err := p.o.Totals.Groups(r.Context(), GroupQuery{By: ByProject, From: from, To: to, Limit: groupRows})
	if err != nil {
		return err
	}
	v.Lead = "Which project used the fleet."
	v.Table = groupTableOf("project", gs, p.o.Now(), func(g *Group) (link, string) {
		if g.Project == "" {
			return link{Text: "(no project)"}, ""
		}
		return link{name(g.Project), href("/project", "name", g.Project, "t", v.S.Range), title(g.Project)}, href("/builds", "project", g.Project, "t", v.S.Range)
	})
	if len(gs) == 0 {
		v.Empty = "No build ended in this time."
	}
	return p.render(w, r, http.StatusOK, "groups", v)
}

func (p *Pages) project(w http.ResponseWriter, r *http.Request) error {
	project := r.URL.Query().Get("name")
	if project == "" {
		return fmt.Errorf("name: want the path of a project: %w", cimeter.ErrInvalid)
	}
	v, from, to := p.groupsPage(r, name(project), "projects", "30d")
	v.Crumbs = []link{{Text: "Projects", URL: "/projects"}}
	gs, err := p.o.Totals.Groups(r.Context(), GroupQuery{By: ByJob, Project: project, From: from, To: to, Limit: groupRows})
	if err != nil {
		return err
	}
	sums, err := p.sums(r, v.S.Filter, filter.Is(filter.Project, project))
	if err != nil {
		return err
	}
	v.Figures = sumFigures(sums)
	v.Table = groupTableOf("job", gs, p.o.Now(), func(g *Group) (link, string) {
		return jobLink(g.Project, g.Name, v.S.Range), href("/builds", "project", g.Project, "job", g.Name, "t", v.S.Range)
	})
	if len(gs) == 0 {
		v.Empty = "No build of this project ended in this time."
	}
	return p.render(w, r, http.StatusOK, "groups", v)
}

func jobLink(project, job, rang string) link {
	text := name(job)
	if text == "" {
		text = "(no name)"
	}
	return link{text, href("/job", "project", project, "name", job, "t", rang), title(project + " / " + job)}
}

// sums are the figures of all builds of a filter and one more term.
func (p *Pages) sums(r *http.Request, f filter.Filter, t filter.Term) (*Sums, error) {
	page, err := p.o.Source.Builds(r.Context(), Query{Filter: append(slices.Clone(f), t), Sort: SortEnded, Limit: 1, Sums: true})
	return page.Sums, err
}

func sumFigures(s *Sums) []figure {
	if s == nil {
		return nil
	}
	fs := []figure{{"builds", thousands(float64(s.Builds)), ""}}
	if s.Partial {
		fs[0] = figure{"builds", "more than " + fs[0].Value, "the figures are of the latest ones"}
	}
	if n := s.Builds - s.Canceled; n > 0 {
		fs = append(fs, figure{"succeeded", percent(float64(n-s.Failed) / float64(n)), fmt.Sprintf("%d of %d that were not canceled", n-s.Failed, n)})
	}
	fs = append(fs, figure{"CPU", cpuTime(s.CPUSeconds), "CPU time"})
	add := func(label, title string, o opt) {
		if o.Known {
			fs = append(fs, figure{label, seconds(o.Value), title})
		}
	}
	add("median time", "half of the builds took less", s.WallP50)
	add("95 % within", "95 of 100 builds took less", s.WallP95)
	add("median queue", "half of the builds waited less", s.QueueP50)
	add("95 % queued under", "95 of 100 builds waited less", s.QueueP95)
	if s.OOM > 0 {
		fs = append(fs, figure{"out of memory", thousands(float64(s.OOM)), "builds with a process killed for memory"})
	}
	return fs
}

type jobView struct {
	page
	Project link
	Ranges  []choice
	Refs    []choice
	Problem string
	Figures []figure
	Trends  []trend
	Few     string
	Shifts  []shift
	Peaks   *histogram
	Stages  []stageShare
	Rows    []buildRow
	Heads   []heading
	All     string
}

// stageShare is a stage over many builds of a job.
type stageShare struct {
	Name                          string
	Runs                          int
	CPUMedian, CPUP95, WallMedian string
	WallP95, MemoryMedian, Share  string
	Bar                           string
}

func (p *Pages) job(w http.ResponseWriter, r *http.Request) error {
	now := p.o.Now()
	q := r.URL.Query()
	project, job := q.Get("project"), q.Get("name")
	if job == "" && project == "" {
		return fmt.Errorf("project and name: want a job: %w", cimeter.ErrInvalid)
	}
	// The selection knows project; the job is called name here.
	s := selectionOf(r, now, "30d")
	v := jobView{page: p.page(r, orElse(name(job), "(no name)"), "projects"), Ranges: s.rangeChoices("/job")}
	v.Crumbs = []link{{Text: "Projects", URL: "/projects"}}
	if project != "" {
		v.Crumbs = append(v.Crumbs, link{name(project), href("/project", "name", project), title(project)})
	}
	if s.err != nil {
		v.Problem = s.wrong().Want
	}
	ref := q.Get("ref")
	from, to := s.span(now)
	rs, err := p.o.Source.History(r.Context(), HistoryQuery{Project: project, Name: job, Ref: ref, Before: to.Add(time.Second), Limit: historyMost})
	if err != nil {
		return err
	}
	slices.Reverse(rs) // oldest first
	rs = slices.DeleteFunc(rs, func(r *cimeter.Record) bool { return r.EndedAt.Before(from) })
	f := append(slices.Clone(s.Filter), filter.Is(filter.Job, job))
	sums, err := p.sums(r, f, filter.Is(filter.Project, project))
	if err != nil {
		return err
	}
	v.Figures = sumFigures(sums)
	v.refs(rs, &s, ref)
	v.fill(rs, from, now, &s)
	v.All = href("/builds", "project", project, "job", job, "ref", ref, "t", s.Range)
	return p.render(w, r, http.StatusOK, "job", v)
}

// refs offers the refs with the most builds.
func (v *jobView) refs(rs []*cimeter.Record, s *selection, ref string) {
	counts := map[string]int{}
	for _, r := range rs {
		if r.Ref != "" {
			counts[r.Ref]++
		}
	}
	if ref != "" {
		counts[ref] = len(rs)
	}
	names := make([]string, 0, len(counts))
	for n := range counts {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) })
	v.Refs = []choice{{link{Text: "all refs", URL: s.url("/job", "ref", "")}, ref == ""}}
	for _, n := range names[:min(3, len(names))] {
		v.Refs = append(v.Refs, choice{link{display.Fit(n, 24, "…"), s.url("/job", "ref", n), title(n)}, ref == n})
	}
}

// fill makes what the job's builds tell; rs are oldest first.
func (v *jobView) fill(rs []*cimeter.Record, from, now time.Time, s *selection) {
	if len(rs) > 0 && (from.IsZero() || len(rs) == historyMost) {
		from = rs[0].EndedAt
	}
	if len(rs) < trendsFrom {
		v.Few = fmt.Sprintf("Trends begin at %d builds; there are %d in this time.", trendsFrom, len(rs))
	} else {
		to := now
		for _, t := range []struct {
			label, class string
			value        func(*Row) opt
			scale        func(float64) column
		}{
			{"CPU time", "cpu", func(r *Row) opt { return r.CPUSeconds }, timeColumn},
			{"Memory, peak", "mem", func(r *Row) opt { return number(r.MemoryPeak) }, bytesColumn},
			{"Time", "other", func(r *Row) opt { return r.Wall() }, timeColumn},
		} {
			if drawn, ok := trendOf(t.label, t.class, rs, from, to, t.value, t.scale); ok {
				v.Trends = append(v.Trends, drawn)
			}
		}
		v.Shifts = shifts(rs, now)
	}
	v.Peaks = peaksOf(rs, s)
	v.Stages = stageShares(rs)
	rows := make([]Row, 0, peerCount)
	for i := len(rs) - 1; i >= 0 && len(rows) < peerCount; i-- {
		rows = append(rows, RowOf(rs[i]))
	}
	cols := columnsOf(rows)
	for i := range rows {
		row := cols.row(&rows[i], now)
		row.Build.Text = "#" + display.Fit(orElse(rows[i].Number, rows[i].Key), 24, "…")
		v.Rows = append(v.Rows, row)
	}
	v.Heads = []heading{{Label: "result"}, {Label: "build"}, {Label: "ref"}, {Label: "machine"}, {Label: "started"}, {Label: "queue", Unit: cols.queue.Unit, Class: "n"}, {Label: "time", Unit: cols.wall.Unit, Class: "n"},
		{Label: "CPU", Unit: cols.cpu.Unit, Class: "n"}, {Label: "memory", Unit: cols.memory.Unit, Class: "n"}, {Label: "disk", Unit: cols.disk.Unit, Class: "n"}, {Label: "net", Unit: cols.net.Unit, Class: "n"}, {Label: "finding"}}
}

// stageShares are the stages of many builds, most CPU time first.
func stageShares(rs []*cimeter.Record) []stageShare {
	type values struct{ cpu, wall, mem []float64 }
	by := map[string]*values{}
	total := 0.0
	for _, r := range rs {
		for i := range r.Stages {
			s := &r.Stages[i]
			v := by[s.Name]
			if v == nil {
				v = &values{}
				by[s.Name] = v
			}
			if c := s.Usage.CPUSeconds.Total; c.Known {
				v.cpu = append(v.cpu, c.Value)
				total += c.Value
			}
			v.wall = append(v.wall, s.Usage.WallSeconds)
			if p := peak(&s.Usage); p.Known {
				v.mem = append(v.mem, p.Value)
			}
		}
	}
	names := make([]string, 0, len(by))
	sum := func(vs []float64) (s float64) {
		for _, v := range vs {
			s += v
		}
		return s
	}
	for n := range by {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(sum(by[b].cpu), sum(by[a].cpu)), strings.Compare(a, b))
	})
	var out []stageShare
	for _, n := range names[:min(len(names), 30)] {
		v := by[n]
		st := stageShare{Name: orElse(name(n), "(no name)"), Runs: len(v.wall), CPUMedian: percentileText(v.cpu, 0.5, cpuTime), CPUP95: percentileText(v.cpu, 0.95, cpuTime),
			WallMedian: percentileText(v.wall, 0.5, seconds), WallP95: percentileText(v.wall, 0.95, seconds), MemoryMedian: percentileText(v.mem, 0.5, amount), Share: dash}
		if total > 0 {
			st.Share, st.Bar = percent(sum(v.cpu)/total), barPath(sum(v.cpu)/total)
		}
		out = append(out, st)
	}
	return out
}

func percentileText(vs []float64, p float64, write func(float64) string) string {
	if len(vs) == 0 {
		return dash
	}
	vs = slices.Sorted(slices.Values(vs))
	return write(vs[min(len(vs)-1, int(p*float64(len(vs))))])
}
