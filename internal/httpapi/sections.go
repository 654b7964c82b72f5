package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/section"
)

const (
	sectionsPath = "/api/v1/sections/"
	// Each of these reads a log of a CI server, which may be some MiB.
	maxSections      = 2
	sectionsPatience = 5 * time.Second
	sectionsTime     = 20 * time.Second
)

// Sections divides the stages of a build by the sections of its log. The error wraps
// cimeter.ErrNotFound for a build that is not there, has no log, or no section.
type Sections func(ctx context.Context, key string) (section.Parts, error)

func (a *API) sectionRoutes() []route {
	if a.o.Sections == nil {
		return nil
	}
	return []route{{path: sectionsPath, handle: atMost(maxSections, sectionsPatience, a.sections), role: Read}}
}

// sections is GET /api/v1/sections/{key}.
func (a *API) sections(w http.ResponseWriter, r *http.Request) error {
	ctx, stop := context.WithTimeout(r.Context(), sectionsTime)
	defer stop()
	key := strings.TrimPrefix(r.URL.EscapedPath(), sectionsPath)
	if key == "" {
		return cimeter.ErrNotFound
	}
	parts, err := a.o.Sections(ctx, key)
	if err != nil {
		return err
	}
	return writeJSON(w, "application/json", http.StatusOK, parts)
}
