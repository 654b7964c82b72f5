package web

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/filter"
)

type jobView struct {
	page
	Project link
	Ranges  []choice
	Refs    []choice
	Of      string // which refs
	Problem string
	Figures []figure
	Span    *spanForm
	Trends  *trends
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
	v := jobView{page: p.page(r, orElse(name(job), "(no name)"), "projects"), Ranges: s.rangeChoices("/job"), Span: s.spanForm("/job", now)}
	v.Crumbs = []link{{Text: "Projects", URL: "/projects"}}
	if project != "" {
		v.Crumbs = append(v.Crumbs, link{name(project), href("/project", "name", project), title(project)})
	}
	if s.err != nil {
		v.Problem = s.wrong().Want
	}
	from, to := s.span(now)
	if s.err != nil {
		from = now.Add(-30 * 24 * time.Hour)
	}
	rs, err := p.o.Source.History(r.Context(), HistoryQuery{Project: project, Name: job, Ref: q.Get("ref"), Before: to.Add(time.Second), Limit: jobRecords})
	if err != nil {
		return err
	}
	cut := len(rs) == jobRecords
	rs = slices.DeleteFunc(rs, func(r *cimeter.Record) bool { return r.EndedAt.Before(from) })
	slices.Reverse(rs) // the latest last
	c, counts := refsOf(r, buildsOf(rs)), map[string]int{}
	for _, r := range rs {
		if r.Ref != "" {
			counts[r.Ref]++
		}
	}
	v.Refs, v.Of = c.choices(&s, "/job", counts), c.words()
	f := append(slices.Clone(s.Filter), filter.Is(filter.Job, job), filter.Is(filter.Project, project))
	course := p.course(r, &v.page, f, c.ref, from, to.Add(time.Second))
	v.Figures = course.figures()
	v.fill(rs, &c, course, cut, from, to.Add(time.Second), now, &s)
	v.All = href("/builds", "project", project, "job", job, "ref", c.ref, "t", s.Range, "from", s.From, "to", s.To)
	return p.render(w, r, http.StatusOK, "job", v)
}

// jobRecords is how many builds of a job are read whole: for its stages, its lasting
// changes and the list.
const jobRecords = 150

// buildsOf are the builds of records.
func buildsOf(rs []*cimeter.Record) func(yield func(*cimeter.Build) bool) {
	return func(yield func(*cimeter.Build) bool) {
		for _, r := range rs {
			if !yield(&r.Build) {
				return
			}
		}
	}
}

// mostOf are at most n names with the largest counts, the largest first.
func mostOf(counts map[string]int, n int) []string {
	names := slices.Collect(maps.Keys(counts))
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b)) })
	return names[:min(n, len(names))]
}

// fill makes what the job's builds tell; rs are the latest of all refs, oldest first, and
// cut says that there are more. Where course is nil the trends are of rs.
func (v *jobView) fill(rs []*cimeter.Record, c *refs, course *Course, cut bool, from, to, now time.Time, s *selection) {
	all := make([]Row, 0, len(rs))
	for _, r := range rs {
		all = append(all, RowOf(r))
	}
	of, ofRows := rs, all
	if c.ref != "" {
		of = slices.DeleteFunc(slices.Clone(rs), func(r *cimeter.Record) bool { return r.Ref != c.ref })
		ofRows = slices.DeleteFunc(slices.Clone(all), func(r Row) bool { return r.Ref != c.ref })
	}
	drawn := ofRows
	if course != nil {
		drawn, cut = course.Builds, course.Sums.Partial
	}
	if v.Trends, v.Few = trendsFor(drawn, cut, from, to); v.Few == "" {
		v.Shifts = append(shifts(ofRows, now), settingShifts(of, now)...)
		v.Trends.mark(v.Shifts)
		if v.Trends != nil && len(v.Trends.Rows) == 0 {
			v.Trends.Note = "The last builds are listed below."
		}
	}
	v.Peaks = peaksOf(drawn, s)
	v.Stages = stageShares(of)
	rows := slices.Clone(all[max(0, len(all)-peerCount):])
	slices.Reverse(rows) // the latest first
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
	return write(percentile(slices.Sorted(slices.Values(vs)), p))
}
