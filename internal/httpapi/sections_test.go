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

// sections divides one build, by what is kept of it and by its log.
type sections struct{ asked []string }

func (s *sections) Parts(_ context.Context, key string) (section.Parts, error) {
	s.asked = append(s.asked, key)
	if !strings.HasSuffix(key, "/0") && !strings.HasSuffix(key, "/4242") {
		return section.Parts{}, fmt.Errorf("sections of %s: %w", key, cimeter.ErrNotFound)
	}
	at := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	return section.Parts{Source: cimeter.BoundaryTrace, ErrorSeconds: 1, ClockSeconds: 2, Parts: []section.Part{
		{Stage: "step_script", Name: "build", Depth: 1, StartedAt: at, EndedAt: at.Add(time.Second), Usage: cimeter.Usage{WallSeconds: 1}, MemoryMaxBytes: cimeter.Some[uint64](7)},
	}}, nil
}

func (s *sections) Kept(ctx context.Context, r *cimeter.Record) (section.Parts, error) {
	return new(sections).Parts(ctx, r.Key)
}

// The key is handed on as it stands in the path.
func TestSections(t *testing.T) {
	s := new(sections)
	api := httpapi.New(httpapi.Options{Sections: s})
	w := get(t, api, "/api/v1/sections/gitlab/h%3A8443/4242")
	if w.Code != 200 || fmt.Sprint(s.asked) != "[gitlab/h%3A8443/4242]" || !strings.Contains(w.Body.String(), `"error_seconds":1`) {
		t.Errorf("%d %q: %s", w.Code, s.asked, w.Body)
	}
}

// What is kept beside a build stands beside its record where it is asked for, one by
// one, in a page and in a stream; without asking a CI server, and with no more of the
// record than was asked for.
func TestSections_kept(t *testing.T) {
	api, _ := newServer(t, 3)
	const key, tells = "gitlab/gitlab.example.com/0", `"sections":{"source":"trace","error_seconds":1,`
	for target, want := range map[string]int{
		"/api/v1/builds/" + key + "?sections=true": 1, "/api/v1/builds/" + key: 0, "/api/v1/builds/gitlab/gitlab.example.com/1?sections=true": 0,
		"/api/v1/builds?sections=true": 1, "/api/v1/builds": 0, "/api/v1/builds?sections=true&format=ndjson": 1, "/api/v1/builds?sections=true&format=csv": 0,
	} {
		w := get(t, api, target)
		if n := strings.Count(w.Body.String(), tells); w.Code != 200 || n != want {
			t.Errorf("%s: %d, %d times: want %d\n%s", target, w.Code, n, want, w.Body)
		}
		if strings.HasPrefix(target, "/api/v1/builds?") && strings.Contains(w.Body.String(), `"trace":{`) {
			t.Errorf("%s: has traces", target)
		}
	}
	if w := get(t, api, "/api/v1/builds?sections=true&trace=true"); !strings.Contains(w.Body.String(), `"trace":{`) {
		t.Error("traces are left out that were asked for")
	}
	if w := get(t, api, "/api/v1/builds/"+key, "Accept", "text/plain"); !strings.Contains(w.Body.String(), " > build ") {
		t.Errorf("the text lacks the section:\n%s", w.Body)
	}
	for target, want := range map[string]int{
		"/api/v1/sections/" + key + "?kept=true": 200, "/api/v1/sections/gitlab/gitlab.example.com/1?kept=true": 404, "/api/v1/sections/" + key + "?kept=1": 400,
		"/api/v1/sections/none?kept=true": 404, "/api/v1/builds/" + key + "?sections=1": 400, "/api/v1/builds?sections=yes": 400,
	} {
		if w := get(t, api, target); w.Code != want {
			t.Errorf("%s: %d: want %d", target, w.Code, want)
		}
	}
}
