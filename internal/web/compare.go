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
	Median int  // of how many builds; 0: of one
	bare   bool // it has no trace yet
}

const wantSide = "want a build's key, median:20, last-green, or a branch such as main"

// sides finds what two words mean: each is a build's key, or means the job of the other.
func (p *Pages) sides(ctx context.Context, a, b string) (sa, sb side, err error) {
	a, b = strings.TrimPrefix(strings.TrimSpace(a), "/builds/"), strings.TrimPrefix(strings.TrimSpace(b), "/builds/")
	ra, err := p.keyed(ctx, a)
	if err != nil {
		return sa, sb, err
	}
	rb, err := p.keyed(ctx, b)
	if err != nil {
		return sa, sb, err
	}
	if sa, err = p.resolve(ctx, a, ra, rb); err == nil {
		sb, err = p.resolve(ctx, b, rb, ra)
	}
	for _, s := range []*side{&sa, &sb} {
		if err == nil && (ra == nil || rb == nil) && (s.Record == ra || s.Record == rb) { // beside one of a history, in which builds are whole
			s.Record, err = p.whole(ctx, s.Record)
		}
	}
	return sa, sb, err
}

// whole is a build as all of its machines told it; one that worked on several has no
// trace then.
func (p *Pages) whole(ctx context.Context, r *cimeter.Record) (*cimeter.Record, error) {
	if p.o.Machines == nil || unmetered(r) {
		return r, nil
	}
	parts, err := p.o.Machines(ctx, r.Key)
	if errors.Is(err, cimeter.ErrNotFound) || err == nil && len(parts) < 2 {
		return r, nil // it still runs, or one machine did it all
	}
	if err != nil {
		return nil, err
	}
	whole := *summary.Whole(parts)
	whole.Key = r.Key
	return &whole, nil
}

// keyed is the build that a word is the key of; nil: there is none.
func (p *Pages) keyed(ctx context.Context, word string) (*cimeter.Record, error) {
	if word == "" || len(word) > 4096 {
		return nil, fmt.Errorf("%s: %w", wantSide, cimeter.ErrInvalid)
	}
	if word == lastGreen || isMedian(word) {
		return nil, nil
	}
	r, _, err := p.o.Source.Build(ctx, word)
	if errors.Is(err, cimeter.ErrNotFound) {
		return nil, nil
	}
	return r, err
}

const lastGreen = "last-green"

func isMedian(word string) bool { return word == "median" || strings.HasPrefix(word, "median:") }

// resolve is the side of a word: the build of its key, else what it means beside the
// build of the other.
func (p *Pages) resolve(ctx context.Context, word string, r, of *cimeter.Record) (side, error) {
	if r != nil {
		return side{Record: r, Link: link{label(&r.Build), buildURL(r.Key), title(r.Key)}}, nil
	}
	if of == nil {
		return side{}, fmt.Errorf("no build %s: %s: %w", display.Fit(word, 80, "…"), wantSide, cimeter.ErrNotFound)
	}
	q := HistoryQuery{Project: of.Project, Name: of.Name, Before: of.EndedAt, Limit: peerCount}
	median := isMedian(word)
	switch count, counted := strings.CutPrefix(word, "median:"); {
	case counted:
		n, err := strconv.Atoi(count)
		if err != nil || n < 2 || n > 100 {
			return side{}, fmt.Errorf("%s: want median:2 to median:100: %w", display.Fit(word, 40, "…"), cimeter.ErrInvalid)
		}
		q.Limit = n
	case median:
	case word == lastGreen:
		q.Limit = 100
	default:
		q.Ref, q.Limit = word, 1
	}
	rs, err := p.o.Source.History(ctx, q)
	if err != nil {
		return side{}, err
	}
	rs = slices.DeleteFunc(rs, func(r *cimeter.Record) bool {
		return r.Key == of.Key || median && r.Result == "canceled" || word == lastGreen && r.Result != "success"
	})
	if len(rs) == 0 {
		return side{}, fmt.Errorf("no build before it for %s: %s: %w", display.Fit(word, 80, "…"), wantSide, cimeter.ErrNotFound)
	}
	if median {
		return side{Record: summary.Median(rs), Link: link{fmt.Sprintf("median of %s", builds(int64(len(rs)))), href("/job", "project", of.Project, "name", of.Name), ""}, Median: len(rs)}, nil
	}
	return side{Record: rs[0], Link: link{label(&rs[0].Build), buildURL(rs[0].Key), title(rs[0].Key)}, bare: true}, nil
}

// traced reads sides again that a history, which has no traces, told of.
func (p *Pages) traced(ctx context.Context, sides ...*side) error {
	for _, s := range sides {
		if !s.bare {
			continue
		}
		r, _, err := p.o.Source.Build(ctx, s.Record.Key)
		if err != nil {
			return err
		}
		if s.bare = false; r.Usage.CPUSeconds == s.Record.Usage.CPUSeconds { // else it is of one machine of several
			s.Record = r
		}
	}
	return nil
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
	Aligns                 []choice // how two are laid over each other
	AlignNote              string
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
		p.part(r, &v.page, "spread", "the job's last builds", func(ctx context.Context) (err error) {
			before, err = p.o.Source.History(ctx, HistoryQuery{Project: of.Project, Name: of.Name, Before: of.EndedAt, Limit: peerCount})
			return err
		})
	}
	if a.Median == 0 && b.Median == 0 {
		p.part(r, &v.page, "charts", "the charts", func(ctx context.Context) error {
			return p.traced(ctx, &a, &b)
		})
	}
	if err := v.fill(a, b, before); err != nil {
		return err
	}
	p.part(r, &v.page, "beside", "what ran beside them", func(ctx context.Context) error { return p.beside(ctx, &v, a, b) })
	if a.Median == 0 && b.Median == 0 && a.Record.Trace != nil && b.Record.Trace != nil {
		v.Plots = true
		v.draw(a.Record, b.Record, q)
	}
	return p.render(w, r, http.StatusOK, "compare", v)
}

// beside adds to what differed the builds that ran on the machine of each meanwhile.
func (p *Pages) beside(ctx context.Context, v *compareView, a, b side) error {
	if p.o.Neighbours == nil || a.Median > 0 || b.Median > 0 {
		return nil
	}
	var words [2]string
	for i, r := range []*cimeter.Record{a.Record, b.Record} {
		n, atOnce, err := p.o.Neighbours(ctx, r)
		switch {
		case errors.Is(err, cimeter.ErrNotFound):
			words[i] = dash
		case err != nil:
			return err
		case n == 0:
			words[i] = "none"
		default:
			words[i] = fmt.Sprintf("%s, %s at once", builds(int64(n)), sig3(atOnce))
		}
	}
	if words[0] != words[1] {
		v.Context = append(v.Context, summary.Differs{Label: "beside it on its machine", A: words[0], B: words[1]})
	}
	return nil
}
