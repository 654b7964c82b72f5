package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
)

const (
	groupRows   = 100 // groups in a table
	historyMost = 300 // builds of a project that are read one by one
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
	Stats    *jobStats // instead of Wall
}

type groupsView struct {
	page
	S       selection
	Ranges  []choice
	Refs    []choice
	Of      string // which refs
	Problem string
	Lead    string
	Figures []figure
	Trends  *trends
	Few     string
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
	f := append(slices.Clone(v.S.Filter), filter.Is(filter.Project, project))
	var rows []Row
	cut := false
	read := p.part(r, &v.page, "latest", "the latest builds", func(ctx context.Context) (err error) {
		rows, cut, err = p.latest(ctx, f)
		return err
	})
	c, counts := refsOf(r, func(yield func(*cimeter.Build) bool) {
		for i := range rows {
			if !yield(&rows[i].Build) {
				return
			}
		}
	}), map[string]int{}
	for i := range rows {
		if rows[i].Ref != "" {
			counts[rows[i].Ref]++
		}
	}
	if v.Refs = c.choices(&v.S, "/project", counts); read {
		v.Of = c.words()
	}
	course := p.course(r, &v.page, f, c.ref, from, to)
	v.Figures = course.figures()
	drawn := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return c.ref != "" && r.Ref != c.ref })
	if course != nil {
		drawn, cut = course.Builds, course.Sums.Partial
	}
	if course != nil || read {
		v.Trends, v.Few = trendsFor(drawn, cut, from, to)
	}
	v.Table = groupTableOf("job", gs, p.o.Now(), func(g *Group) (link, string) {
		return jobLink(g.Project, g.Name, v.S.Range), href("/builds", "project", g.Project, "job", g.Name, "t", v.S.Range)
	})
	if read {
		v.Table.stats(gs, rows, p.o.Now())
	}
	if len(gs) == 0 {
		v.Empty = "No build of this project ended in this time."
	}
	return p.render(w, r, http.StatusOK, "groups", v)
}

// latest are the latest builds of a filter, oldest first, and whether there are more than
// were read: a page of a project is to be made in a tenth of a second, however many builds
// it has.
func (p *Pages) latest(ctx context.Context, f filter.Filter) (rows []Row, more bool, err error) {
	page, err := p.o.Source.Builds(ctx, Query{Filter: f, Sort: SortEnded, Limit: historyMost, Bare: true})
	if err != nil {
		return nil, false, err
	}
	rows = slices.DeleteFunc(page.Rows, func(r Row) bool { return r.Running || r.StartedAt.IsZero() })
	slices.Reverse(rows)
	return rows, page.Next != "", nil
}

// trendsFor are the trends of rows, oldest first, over a time, or why there are none; cut:
// there are more before them.
func trendsFor(rows []Row, cut bool, from, to time.Time) (t *trends, few string) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.EndedAt.Before(from) })
	if len(rows) < trendsFrom {
		return nil, fmt.Sprintf("Trends begin at %d builds; there are %d in this time.", trendsFrom, len(rows))
	}
	if from.IsZero() || cut {
		from = rows[0].EndedAt
	}
	if t = trendsOf(rows, from, to); t != nil && cut {
		t.Of += fmt.Sprintf(" These are the latest %d.", len(rows))
	}
	return t, ""
}

func jobLink(project, job, rang string) link {
	text := name(job)
	if text == "" {
		text = "(no name)"
	}
	return link{text, href("/job", "project", project, "name", job, "t", rang), title(project + " / " + job)}
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
