package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/filter"
)

const (
	courseMost = 10000 // builds of a course that indexes alone tell of
	courseRef  = 3000  // of one ref: the store reads each build
)

// refs says of which refs' builds a page is.
type refs struct {
	ref     string // the one; "" is all
	chosen  bool   // by the reader
	branch  string // the default branch; "" where nothing told it
	without bool   // all were chosen
}

// refsOf reads the choice of a URL: ref is one, refs=all is all, and nothing is the
// default branch, which the builds tell that were read.
func refsOf(r *http.Request, builds func(yield func(*cimeter.Build) bool)) refs {
	q := r.URL.Query()
	c := refs{ref: q.Get("ref"), without: q.Get("refs") == "all"}
	for b := range builds { // the latest last
		if b.DefaultBranch != "" {
			c.branch = b.DefaultBranch
		}
	}
	c.chosen = c.ref != ""
	if c.ref == "" && !c.without {
		c.ref = c.branch
	}
	return c
}

// words say what a page's trends are of.
func (c *refs) words() string {
	switch {
	case c.chosen:
		return "Of " + name(c.ref) + " alone."
	case c.ref != "":
		return "Of " + name(c.ref) + ", the default branch, alone."
	case c.branch == "":
		return "Of all refs: no record tells which branch is the default one."
	}
	return "Of all refs."
}

// choices are the links of the switch: the default branch, all, and the refs with the
// most builds.
func (c *refs) choices(s *selection, path string, counts map[string]int) []choice {
	var cs []choice
	if c.branch != "" {
		cs = append(cs, choice{link{display.Fit(c.branch, 24, "…"), s.url(path, "ref", "", "refs", ""), title(c.branch + ", the default branch")}, c.ref == c.branch})
		cs = append(cs, choice{link{Text: "all refs", URL: s.url(path, "ref", "", "refs", "all")}, c.ref == ""})
	} else {
		cs = append(cs, choice{link{Text: "all refs", URL: s.url(path, "ref", "", "refs", "")}, c.ref == ""})
	}
	if c.chosen {
		counts[c.ref] = int(^uint(0) >> 1) // it stays among them
	}
	for _, n := range mostOf(counts, 4) {
		if n != c.branch && len(cs) < 5 {
			cs = append(cs, choice{link{display.Fit(n, 24, "…"), s.url(path, "ref", n, "refs", ""), title(n)}, c.ref == n})
		}
	}
	return cs
}

// course reads what the builds of a filter cost, of a ref alone where there is one; nil
// where it could not be read.
func (p *Pages) course(r *http.Request, v *page, f filter.Filter, ref string, from, to time.Time) (c *Course) {
	q := CourseQuery{Filter: slices.Clone(f), Most: courseMost, From: from, To: to}
	if ref != "" {
		q.Most = courseRef
		if !slices.ContainsFunc(f, func(t filter.Term) bool { return t.Field == filter.Ref }) {
			q.Filter = append(q.Filter, filter.Is(filter.Ref, ref))
		}
	}
	p.part(r, v, "course", "what the builds cost", func(ctx context.Context) error {
		got, err := p.o.Totals.Course(ctx, q)
		if err == nil {
			c = &got
		}
		return err
	})
	return c
}

// figures are those of the head: the sums, and their share of the fleet's CPU time.
func (c *Course) figures() []figure {
	if c == nil {
		return nil
	}
	fs := sumFigures(&c.Sums)
	fleet := c.FleetCPUSeconds
	if !fleet.Known || fleet.Value <= 0 {
		return fs
	}
	share := figure{"of the fleet", percent(min(1, c.Sums.CPUSeconds/fleet.Value)), fmt.Sprintf("of the %s CPU time of all builds in this time", cpuTime(fleet.Value))}
	if c.Sums.Partial {
		share.Value = "more than " + share.Value
	}
	at := slices.IndexFunc(fs, func(f figure) bool { return f.Label == "CPU" })
	return slices.Insert(fs, at+1, share)
}
