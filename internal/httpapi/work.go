package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	// HooksPath is where webhooks are sent to; the kind of CI server follows.
	HooksPath  = "/api/v1/hooks/"
	cancelPath = "/api/v1/work/cancel"

	maxHooks     = 32              // that are read at once, 64 MiB at most: who sends is known only when a body is there
	hookPatience = 2 * time.Second // GitLab waits 10 s for an answer
	hookBytes    = 2 << 20         // of one: GitLab's of a pipeline with a thousand jobs has 1.5 MiB
	hookTime     = 5 * time.Second // within which a body must be there
	defaultWork  = 1000
	maxWork      = 10_000
)

// Hooks takes what CI servers send. It is called by many goroutines and does not
// wait. The error wraps [ErrBusy], or cimeter.ErrNotFound, ErrUnauthorized or
// ErrInvalid.
type Hooks interface {
	Receive(ci string, header http.Header, body []byte) error
}

func (a *API) workRoutes() (routes []route) {
	if a.o.Queue != nil {
		ask := func(path string, handle func(*queue.State, int) map[string]any) route {
			return route{path: path, role: Read, parameters: []string{"limit"}, handle: func(w http.ResponseWriter, r *http.Request) error {
				return a.work(w, r, handle)
			}}
		}
		routes = append(routes,
			ask("/api/v1/work/pending", pending), ask("/api/v1/work/started", started),
			ask("/api/v1/work/assignments", assignments), ask("/api/v1/workers", workers))
	}
	if a.o.Cancel != nil {
		routes = append(routes, route{path: cancelPath, handle: a.cancelBuild, post: true, role: Cancel})
	}
	if a.o.Hooks != nil { // whoever sends one is known by its signature
		routes = append(routes, route{path: HooksPath, handle: atMost(maxHooks, hookPatience, a.hook), post: true, role: Anybody})
	}
	return routes
}

// work answers what is known of the queue now.
func (a *API) work(w http.ResponseWriter, r *http.Request, part func(*queue.State, int) map[string]any) error {
	query, err := parseQuery(r.URL.RawQuery, func(name string) bool { return name == "limit" })
	if err != nil {
		return err
	}
	limit := defaultWork
	if text, given := query["limit"]; given {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxWork {
			return badParameter("limit", "want a number from 1 to "+strconv.Itoa(maxWork))
		}
	}
	state := a.o.Queue()
	answer := part(&state, limit)
	answer["at"], answer["servers"] = state.At, state.Servers
	return writeTagged(w, r, answer)
}

func some(builds []queue.Build, limit int, want func(*queue.Build) bool) map[string]any {
	list, total := []queue.Build{}, 0
	for i := range builds {
		if !want(&builds[i]) {
			continue
		}
		if total++; total <= limit {
			list = append(list, builds[i])
		}
	}
	return map[string]any{"builds": list, "total": total}
}

// pending is GET /api/v1/work/pending: builds that wait or are blocked, the longest
// wait first.
func pending(s *queue.State, limit int) map[string]any {
	return some(s.Builds, limit, func(b *queue.Build) bool { return b.Status != cimeter.JobRunning })
}

// started is GET /api/v1/work/started: builds that run.
func started(s *queue.State, limit int) map[string]any {
	return some(s.Builds, limit, func(b *queue.Build) bool { return b.Status == cimeter.JobRunning })
}

// assignments is GET /api/v1/work/assignments: builds that run, each with the worker
// that has it, as far as that is known.
func assignments(s *queue.State, limit int) map[string]any {
	type assignment struct {
		Build  queue.Build   `json:"build"`
		Worker *queue.Worker `json:"worker"`
	}
	list, total := []assignment{}, 0
	of := map[[2]string]*queue.Worker{}
	for i := range s.Workers {
		w := &s.Workers[i]
		for _, key := range w.Builds {
			of[[2]string{w.On, key}] = w
		}
	}
	for i := range s.Builds {
		b := &s.Builds[i]
		w := of[[2]string{b.On, b.Key}]
		if b.Status != cimeter.JobRunning || w == nil {
			continue
		}
		if total++; total <= limit {
			list = append(list, assignment{*b, w})
		}
	}
	return map[string]any{"assignments": list, "total": total}
}

// workers is GET /api/v1/workers.
func workers(s *queue.State, limit int) map[string]any {
	return map[string]any{"workers": s.Workers[:min(limit, len(s.Workers))], "total": len(s.Workers)}
}

// cancelBuild is POST /api/v1/work/cancel.
func (a *API) cancelBuild(w http.ResponseWriter, r *http.Request) error {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(kind) != "application/json" {
		return &problem{Status: http.StatusUnsupportedMediaType, Detail: "want application/json"}
	}
	var which struct {
		Key string `json:"key"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&which); err != nil || which.Key == "" {
		return &problem{Status: http.StatusBadRequest, Detail: `want {"key": "..."}`}
	}
	if err := a.o.Cancel(r.Context(), which.Key, remoteHost(r)); err != nil {
		return cancelError(err)
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// cancelError is what a client is told of a CI server that did not do it. That the CI
// server does not know our token is not the client's fault.
func cancelError(err error) error {
	var s *queue.SourceError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, cimeter.ErrNotFound), errors.Is(err, cimeter.ErrConflict), errors.Is(err, cimeter.ErrUnsupported):
		return err
	case errors.As(err, &s):
		return &problem{Status: http.StatusBadGateway, Detail: "the CI server did not do it: " + queue.Reason(err)}
	}
	return err
}

// hook is POST /api/v1/hooks/KIND.
func (a *API) hook(w http.ResponseWriter, r *http.Request) error {
	_ = http.NewResponseController(w).SetReadDeadline(a.now().Add(hookTime)) // not every writer has one
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, hookBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return &problem{Status: http.StatusRequestEntityTooLarge, Detail: "want at most 2 MiB"}
	case err != nil:
		return &problem{Status: http.StatusRequestTimeout, Detail: "body was cut off: want all of it within 5 s"}
	}
	if err := a.o.Hooks.Receive(strings.TrimPrefix(r.URL.Path, HooksPath), r.Header, body); err != nil {
		if errors.Is(err, cimeter.ErrInvalid) && !errors.Is(err, cimeter.ErrUnauthorized) {
			return &problem{Status: http.StatusBadRequest, Detail: "webhook cannot be read"} // its text may be the sender's
		}
		if errors.Is(err, cimeter.ErrUnauthorized) {
			return &problem{Status: http.StatusUnauthorized, Detail: "webhook is not signed with a secret that is known"}
		}
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}
