package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/recordjson"
	"github.com/cimeter/cimeter/internal/section"
)

const (
	sectionsPath = "/api/v1/sections/"
	// Each of these may read a log of a CI server, which may be some MiB.
	maxSections      = 2
	sectionsPatience = 5 * time.Second
	sectionsTime     = 20 * time.Second
)

// Sections divides the stages of a build by the sections of its log. The error wraps
// cimeter.ErrNotFound for a build that is not there, has no log, or no section.
type Sections interface {
	// Parts is of the build of a key; its log may be read for it.
	Parts(ctx context.Context, key string) (section.Parts, error)
	// Kept is what is kept beside a build: nobody else is asked. It divides better
	// with the build's trace.
	Kept(ctx context.Context, r *cimeter.Record) (section.Parts, error)
}

func (a *API) sectionRoutes() []route {
	if a.o.Sections == nil {
		return nil
	}
	asked := atMost(maxSections, sectionsPatience, a.sections)
	return []route{{path: sectionsPath, parameters: []string{"kept"}, role: Read, handle: func(w http.ResponseWriter, r *http.Request) error {
		values, err := parseQuery(r.URL.RawQuery, func(name string) bool { return name == "kept" })
		if err != nil {
			return err
		}
		kept, err := (&question{values: values}).choice("kept", "false", "true")
		switch {
		case err != nil:
			return err
		case kept == "true":
			return a.keptSections(w, r)
		}
		return asked(w, r)
	}}}
}

// sections is GET /api/v1/sections/{key}.
func (a *API) sections(w http.ResponseWriter, r *http.Request) error {
	ctx, stop := context.WithTimeout(r.Context(), sectionsTime)
	defer stop()
	key := strings.TrimPrefix(r.URL.EscapedPath(), sectionsPath)
	if key == "" {
		return cimeter.ErrNotFound
	}
	parts, err := a.o.Sections.Parts(ctx, key)
	if err != nil {
		return err
	}
	return writeJSON(w, "application/json", http.StatusOK, parts)
}

// keptSections is GET /api/v1/sections/{key}?kept=true: no CI server is asked.
func (a *API) keptSections(w http.ResponseWriter, r *http.Request) error {
	record, err := a.get(r.Context(), strings.TrimPrefix(r.URL.EscapedPath(), sectionsPath))
	if err != nil {
		return err
	}
	parts, err := a.o.Sections.Kept(r.Context(), record)
	if err != nil {
		return err
	}
	return writeJSON(w, "application/json", http.StatusOK, parts)
}

// recordForm says what of a record is told.
type recordForm struct {
	trace  bool
	beside func(ctx context.Context, r *cimeter.Record) (*section.Parts, error) // nil: nothing beside it
}

// append adds the JSON of a record, which is the caller's to change.
func (f recordForm) append(ctx context.Context, b []byte, r *cimeter.Record) ([]byte, error) {
	var parts *section.Parts
	if f.beside != nil {
		var err error
		if parts, err = f.beside(ctx, r); err != nil {
			return nil, err
		}
	}
	if !f.trace {
		r.Trace = nil
	}
	b, err := recordjson.Append(b, r)
	if err != nil {
		return nil, fmt.Errorf("encode record %s: %w", r.Key, err)
	}
	return withSections(b, parts)
}

// keptOf is what is kept beside a build; nil: nothing divides it.
func (a *API) keptOf(ctx context.Context, r *cimeter.Record) (*section.Parts, error) {
	if a.o.Sections == nil {
		return nil, nil
	}
	parts, err := a.o.Sections.Kept(ctx, r)
	if errors.Is(err, cimeter.ErrNotFound) {
		return nil, nil
	}
	return &parts, err
}

// withSections adds a member "sections" to a record's JSON, which is an object, where
// there is something to add.
func withSections(doc []byte, parts *section.Parts) ([]byte, error) {
	if parts == nil {
		return doc, nil
	}
	b, err := json.Marshal(parts)
	if err != nil {
		return nil, fmt.Errorf("encode sections: %w", err)
	}
	return append(append(append(doc[:len(doc)-1:len(doc)-1], `,"sections":`...), b...), '}'), nil
}
