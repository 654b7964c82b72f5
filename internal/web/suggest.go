package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// Names returns names of a kind that hold a part, at most limit: project, job, ref,
// runner, machine or stage. It is called by many goroutines at once.
type Names func(ctx context.Context, kind, part string, limit int) ([]string, error)

const (
	suggestions = 12
	maxPart     = 200 // bytes of what was typed
)

var nameKinds = []string{"project", "job", "ref", "runner", "machine", "stage"}

// suggest is GET /suggest?kind=project&part=app: {"names": [...]}, for who types into
// the filter.
func (p *Pages) suggest(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	kind, part := q.Get("kind"), q.Get("part")
	if !slices.Contains(nameKinds, kind) {
		return fmt.Errorf("kind: want %s or %s: %w", strings.Join(nameKinds[:len(nameKinds)-1], ", "), nameKinds[len(nameKinds)-1], cimeter.ErrInvalid)
	}
	if len(part) > maxPart || !utf8.ValidString(part) || strings.ContainsRune(part, 0) {
		return fmt.Errorf("part: want UTF-8 of at most %d bytes: %w", maxPart, cimeter.ErrInvalid)
	}
	names, err := p.o.Names(r.Context(), kind, part, suggestions)
	if err != nil {
		return err
	}
	// A name that cannot be shown as it is cannot be chosen by its looks.
	names = slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == "" || display.Clean(s) != s })
	if names == nil {
		names = []string{}
	}
	b, err := json.Marshal(map[string][]string{"names": names})
	if err != nil {
		return fmt.Errorf("encode names: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	return p.sendZipped(w, r, http.StatusOK, b)
}
