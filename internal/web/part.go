package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// failure is what stands in the place of a part of a page that could not be read: the
// title and the detail of a problem.
type failure struct{ Title, Detail string }

// partTime is how long the question of one part may take: the rest of the page waits
// for it.
const partTime = 5 * time.Second

// part asks a question that the page can do without: of the totals over a list, of the
// builds before one. Where it fails, or takes longer than partTime, the page stays:
// v.Failed holds the failure under id, for {{template "failed" .Failed.id}} in the
// place of the part, the operator is told, and part is false. what is the part as it
// stands in a title: "the totals". The question that a page is about is not asked
// so: its error is the page's.
func (p *Pages) part(r *http.Request, v *page, id, what string, ask func(ctx context.Context) error) bool {
	ctx, cancel := context.WithTimeout(r.Context(), partTime)
	defer cancel()
	err := ask(ctx)
	if err == nil {
		return true
	}
	_, detail, ours := explain(err)
	if ours && r.Context().Err() == nil { // that a reader went away is nobody's fault
		route, _ := p.find(r.URL.Path)
		p.report(route.path, fmt.Errorf("read %s: %w", what, err))
	}
	if v.Failed == nil {
		v.Failed = map[string]*failure{}
	}
	v.Failed[id] = &failure{strings.ToUpper(what[:1]) + what[1:] + " could not be read", display.Fit(detail, 400, "…")}
	return false
}

// explain is what a reader is told of an error, and whether the operator is told of it,
// too: an error without a code is his business alone.
func explain(err error) (status int, detail string, ours bool) {
	switch {
	case errors.Is(err, cimeter.ErrNotFound):
		return http.StatusNotFound, err.Error(), false
	case errors.Is(err, cimeter.ErrInvalid):
		return http.StatusBadRequest, err.Error(), false
	case errors.Is(err, cimeter.ErrUnavailable):
		return http.StatusServiceUnavailable, "the store does not answer now; try again in a moment", true
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, "the store took too long to answer; try again in a moment, or ask for less", true
	}
	return http.StatusInternalServerError, "something went wrong here; the server's log says what", true
}
