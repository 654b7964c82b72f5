package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/summary"
)

// side is one of the two that are compared: a build, or the median of many.
type side struct {
	Record *cimeter.Record // of a median: its usage and its stages' are medians
	Link   link
	Median int // of how many builds; 0: of one
}

const wantSide = "want a build's key, median:20, last-green, or a branch such as main"

// resolve finds what a word means beside the build of another key.
func (p *Pages) resolve(ctx context.Context, word, other string) (side, error) {
	word = strings.TrimSpace(word)
	word = strings.TrimPrefix(word, "/builds/")
	if word == "" || len(word) > 4096 {
		return side{}, fmt.Errorf("%s: %w", wantSide, cimeter.ErrInvalid)
	}
	r, _, err := p.o.Source.Build(ctx, word)
	if err == nil {
		return side{Record: r, Link: link{label(&r.Build), buildURL(r.Key), title(r.Key)}}, nil
	}
	if !errors.Is(err, cimeter.ErrNotFound) {
		return side{}, err
	}
	of, _, err := p.o.Source.Build(ctx, strings.TrimPrefix(strings.TrimSpace(other), "/builds/"))
	if errors.Is(err, cimeter.ErrNotFound) {
		return side{}, fmt.Errorf("no build %s: %s: %w", display.Fit(word, 80, "…"), wantSide, cimeter.ErrNotFound)
	}
	if err != nil {
		return side{}, err
	}
	q := HistoryQuery{Project: of.Project, Name: of.Name, Before: of.EndedAt, Limit: peerCount}
	n, median := peerCount, false
	if count, ok := strings.CutPrefix(word, "median:"); ok || word == "median" {
		median = true
		if ok {
			if n, err = strconv.Atoi(count); err != nil || n < 2 || n > 100 {
				return side{}, fmt.Errorf("%s: want median:2 to median:100: %w", display.Fit(word, 40, "…"), cimeter.ErrInvalid)
			}
		}
		q.Limit = n
	} else if word == "last-green" {
		q.Limit = 100
	} else {
		q.Ref, q.Limit = word, 1
	}
	rs, err := p.o.Source.History(ctx, q)
	if err != nil {
		return side{}, err
	}
	rs = slices.DeleteFunc(rs, func(r *cimeter.Record) bool {
		return r.Key == of.Key || median && r.Result == "canceled" || word == "last-green" && r.Result != "success"
	})
	if len(rs) == 0 {
		return side{}, fmt.Errorf("no build before it for %s: %s: %w", display.Fit(word, 80, "…"), wantSide, cimeter.ErrNotFound)
	}
	if median {
		return side{Record: summary.Median(rs), Link: link{fmt.Sprintf("median of %s", builds(int64(len(rs)))), href("/job", "project", of.Project, "name", of.Name), ""}, Median: len(rs)}, nil
	}
	return side{Record: rs[0], Link: link{label(&rs[0].Build), buildURL(rs[0].Key), title(rs[0].Key)}}, nil
}

type compareView struct {
	page
	A, B     string // as asked
	SideA    link
	SideB    link
	Swap     string
	Problem  string
	Notice   string
	Verdict  string
	Rows     []compareRow
	Totals   []compareRow
	Units    compareColumns
	Context  []summary.Differs
	Markdown string
	Spread   string
	timelineView
	Aligns    []choice
	AlignNote string
}

// timelineView is what the template of a timeline needs; the page of a build
// has the same fields.
type timelineView struct {
	Zoomed                 bool
	Whole, ZoomIn, ZoomOut string
	From, To               string
	Lanes                  []lane
	Bands                  []block
	Charts                 []chart
	XTicks                 []tick
	Trace                  string
	TraceRows              *traceTable
}

type compareColumns struct{ CPU, Wall, Memory string }

type compareRow struct {
	Name             string
	Only             string // A or B, when the other does not have it
	Small            bool   // within the spread
	CPUA, CPUB, CPU  string
	CPUBy            change
	WallA, WallB     string
	WallBy           change
	MemoryA, MemoryB string
	MemoryBy         change
	by               float64
}

func (p *Pages) compare(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	v := compareView{page: p.page(r, "Compare", "builds"), A: q.Get("a"), B: q.Get("b")}
	v.Crumbs = []link{{Text: "Builds", URL: "/builds"}}
	if marked := q["build"]; len(marked) == 2 { // the two marked in a list: the older is A
		http.Redirect(w, r, href("/compare", "a", marked[1], "b", marked[0]), http.StatusSeeOther)
		return nil
	} else if len(marked) > 0 {
		v.Problem = fmt.Sprintf("%d builds are marked: want two", len(marked))
	}
	if v.A == "" && v.B == "" {
		return p.render(w, r, http.StatusOK, "compare", v)
	}
	v.Swap = href("/compare", "a", v.B, "b", v.A)
	a, b, err := p.sides(r.Context(), v.A, v.B)
	if err != nil {
		if !errors.Is(err, cimeter.ErrInvalid) && !errors.Is(err, cimeter.ErrNotFound) {
			return err
		}
		v.Problem = display.Fit(strings.NewReplacer(": "+cimeter.ErrInvalid.Error(), "", ": "+cimeter.ErrNotFound.Error(), "").Replace(err.Error()), 400, "…")
		return p.render(w, r, http.StatusNotFound, "compare", v)
	}
	v.SideA, v.SideB = a.Link, b.Link
	if a.Record.Project != b.Record.Project || a.Record.Name != b.Record.Name {
		v.Notice = "These are different jobs."
	}
	var before []*cimeter.Record
	if of := b.Record; b.Median == 0 && of.Project != "" {
		if before, err = p.o.Source.History(r.Context(), HistoryQuery{Project: of.Project, Name: of.Name, Before: of.EndedAt, Limit: peerCount}); err != nil {
			return err
		}
	}
	if err := v.fill(a, b, before); err != nil {
		return err
	}
	if a.Median == 0 && b.Median == 0 && a.Record.Trace != nil && b.Record.Trace != nil {
		v.Plots = true
		v.draw(a.Record, b.Record, q)
	}
	return p.render(w, r, http.StatusOK, "compare", v)
}

func (p *Pages) sides(ctx context.Context, a, b string) (sa, sb side, err error) {
	if sa, err = p.resolve(ctx, a, b); err != nil {
		return sa, sb, err
	}
	sb, err = p.resolve(ctx, b, a)
	return sa, sb, err
}
