package httpapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/section"
)

// sections divides one build.
func sections(_ context.Context, key string) (section.Parts, error) {
	if !strings.HasSuffix(key, "/0") {
		return section.Parts{}, fmt.Errorf("sections of %s: %w", key, cimeter.ErrNotFound)
	}
	at := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	return section.Parts{Source: cimeter.BoundaryTrace, ErrorSeconds: 1, ClockSeconds: 2, Parts: []section.Part{
		{Stage: "step_script", Attempt: 1, Name: "build", Depth: 1, StartedAt: at, EndedAt: at.Add(time.Second), Usage: cimeter.Usage{WallSeconds: 1}, MemoryMaxBytes: cimeter.Some[uint64](7)},
	}}, nil
}

// The key is handed on as it stands in the path.
func TestSections(t *testing.T) {
	var got string
	api := httpapi.New(httpapi.Options{Sections: func(ctx context.Context, key string) (section.Parts, error) {
		if got = key; ctx.Err() != nil {
			return section.Parts{}, ctx.Err()
		}
		return sections(ctx, "x/0")
	}})
	w := get(t, api, "/api/v1/sections/gitlab/h%3A8443/4242")
	if w.Code != 200 || got != "gitlab/h%3A8443/4242" || !strings.Contains(w.Body.String(), `"error_seconds":1`) {
		t.Errorf("%d %q: %s", w.Code, got, w.Body)
	}
}
