package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/filter"
)

// pageRows is how many builds a page lists.
const pageRows = 50

type buildsView struct {
	page
	Suggests bool // the filter suggests names
	S        selection
	Keep     []hidden // of the form of the filter
	Chips    []chip
	Ranges   []choice
	Shows    map[string]bool // the columns
	Columns  *chooser
	Wrong    *wrong
	Problem  string
	Count    string
	Totals   []figure
	Headings []heading
	Units    map[string]string // of columns
	Rows     []buildRow
	First    string
	Next     string
	CSV      string
	NDJSON   string
	Hidden   []link // what a smaller filter would show
}

// figure is a number with its name.
type figure struct{ Label, Value, Title string }

// buildRow is a build in a table.
type buildRow struct {
	ID       string // of the checkbox: the key
	Result   result
	Build    link
	Ref      string
	RefTitle string
	Machine  link
	Runner   link
	Started  stamp
	Ended    stamp
	Queue    string
	QueueOf  string // why it is absent, as the others that end so
	Wall     string
	WallOf   string
	CPU      string
	CPUOf    string
	Cores    string
	CoresOf  string
	Memory   string
	MemoryOf string
	Bar      string // path
	Near     bool
	Disk     string
	DiskOf   string
	Net      string
	NetOf    string
	Verdict  string
	Badge    string
	Spark    string // path
	This     bool
}

// result is how a build ended, as a word, a mark and a class.
type result struct{ Word, Mark, Class string }

func resultOf(r string, running bool) result {
	switch {
	case running:
		return result{"running", "●", "running"}
	case r == "success":
		return result{"success", "✓", "ok"}
	case r == "failed":
		return result{"failed", "✕", "bad"}
	case r == "canceled":
		return result{"canceled", "⊘", "off"}
	case r == "":
		return result{"unknown", "?", "off"}
	}
	return result{name(r), "?", "off"}
}

// verdictWords are the findings in a word or two.
func verdictWord(kind string) string {
	switch kind {
	case "oom":
		return "out of memory"
	case "":
		return ""
	}
	return name(kind)
}

// label is how a build is called in a list.
func label(b *cimeter.Build) string {
	job := b.Name
	if job == "" {
		job = b.PipelineStage
	}
	s := strings.Trim(name(b.Project)+" / "+name(job), " /")
	if s == "" {
		s = name(b.Key)
	}
	if b.Number != "" {
		s += " #" + display.Fit(b.Number, 16, "…")
	}
	return s
}

func (p *Pages) builds(w http.ResponseWriter, r *http.Request) error {
	now := p.o.Now()
	v := buildsView{page: p.page(r, "Builds", "builds"), S: selectionOf(r, now, "24h")}
	v.Search, v.Suggests = v.S.Q, p.o.Names != nil
	v.Shows, v.Problem = v.S.columns()
	v.Chips, v.Ranges, v.Keep, v.Span = v.S.chips("/builds"), v.S.rangeChoices("/builds"), v.S.keep("q"), v.S.spanForm("/builds", now)
	v.Columns = v.S.chooser(v.Shows)
	q := Query{Filter: v.S.Filter, Sort: SortEnded, Limit: pageRows, Cursor: v.S.values.Get("cursor")}
	if s := v.S.values.Get("sort"); s != "" {
		key, descending := strings.CutPrefix(s, "-")
		q.Sort, q.Ascending = Sort(key), !descending
		if !slices.Contains(sorts, q.Sort) {
			q.Sort, q.Ascending = SortEnded, false
			v.Problem = "sort: want ended, queue, wall, cpu, mem, io or net, with - before it for the largest first"
		}
	}
	if v.S.err != nil {
		w2 := v.S.wrong()
		v.Wrong = &w2
		return p.render(w, r, http.StatusBadRequest, "builds", v)
	}
	page, err := p.o.Source.Builds(r.Context(), q)
	if err != nil {
		if q.Cursor != "" && errors.Is(err, cimeter.ErrInvalid) {
			return fmt.Errorf("cursor: want what a page's link has: %w", cimeter.ErrInvalid)
		}
		return err
	}
	cols := columnsOf(page.Rows)
	for i := range page.Rows {
		v.Rows = append(v.Rows, cols.row(&page.Rows[i], now))
	}
	v.Headings = cols.headings(&v.S, q, v.Shows)
	v.Units = map[string]string{"queue": cols.queue.Unit, "wall": cols.wall.Unit, "cpu": cols.cpu.Unit, "mem": cols.memory.Unit, "io": cols.disk.Unit, "net": cols.net.Unit}
	if q.Cursor != "" {
		v.First = v.S.url("/builds")
	}
	if page.Next != "" {
		v.Next = v.S.url("/builds", "cursor", page.Next)
	}
	v.CSV, v.NDJSON = v.S.export("csv", q), v.S.export("ndjson", q)
	v.Count = builds(int64(len(v.Rows)))
	if len(v.Rows) == 0 && page.Next == "" {
		p.part(r, &v.page, "hidden", "what hides every build", func(ctx context.Context) error { return p.hidden(ctx, &v, q) })
		return p.render(w, r, http.StatusOK, "builds", v)
	}
	v.Count += " on this page"
	p.part(r, &v.page, "totals", "the totals", func(ctx context.Context) error {
		page, err := p.o.Source.Builds(ctx, Query{Filter: q.Filter, Sums: true})
		if t := page.Sums; err == nil && t != nil {
			v.Totals, v.Count = totals(t), builds(t.Builds)
			if t.Partial {
				v.Count = "more than " + v.Count
			}
		}
		return err
	})
	return p.render(w, r, http.StatusOK, "builds", v)
}

func builds(n int64) string {
	if n == 1 {
		return "1 build"
	}
	return thousands(float64(n)) + " builds"
}

// hidden tells what hides every build: the time, or the filter.
func (p *Pages) hidden(ctx context.Context, v *buildsView, q Query) error {
	isTime := func(t filter.Term) bool { return t.Field == filter.Since || t.Field == filter.Before }
	without := func(drop func(filter.Term) bool) (int64, error) {
		f := slices.DeleteFunc(slices.Clone(q.Filter), drop)
		if len(f) == len(q.Filter) {
			return 0, nil
		}
		page, err := p.o.Source.Builds(ctx, Query{Filter: f, Sums: true})
		if err != nil || page.Sums == nil {
			return 0, err
		}
		return page.Sums.Builds, nil
	}
	n, err := without(func(t filter.Term) bool { return !isTime(t) })
	if err != nil {
		return err
	}
	if n > 0 {
		what := "the filter"
		if len(v.Chips) == 1 {
			what = v.Chips[0].Text
		}
		v.Hidden = append(v.Hidden, link{Text: builds(n) + " without " + what, URL: href("/builds", "t", v.S.Range, "from", v.S.From, "to", v.S.To, columnsParameter, v.S.values.Get(columnsParameter))})
	}
	if n, err = without(isTime); err != nil {
		return err
	}
	if n > 0 {
		q := slices.DeleteFunc(slices.Clone(v.S.terms), isTime).String()
		v.Hidden = append(v.Hidden, link{Text: builds(n) + " at any time", URL: v.S.url("/builds", "t", "all", "from", "", "to", "", "q", q)})
	}
	return nil
}

func optional(o opt, f func(float64) string) string {
	if !o.Known {
		return dash
	}
	return f(o.Value)
}

func totals(t *Sums) []figure {
	return []figure{
		{"CPU", cpuTime(t.CPUSeconds), "CPU time of all builds of this filter"},
		{"moved", amount(float64(t.IOBytes) + float64(t.NetworkBytes)), "disk and network, both directions"},
		{"median time", optional(t.WallP50, seconds), "half of the builds took less"},
		{"95 % within", optional(t.WallP95, seconds), "95 of 100 builds took less"},
	}
}
