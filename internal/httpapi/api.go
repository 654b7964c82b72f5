package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/wire"
)

// Store is what the routes of builds read. Its methods are called by many
// goroutines at once.
type Store interface {
	// Get returns the record of a key; the error wraps cimeter.ErrNotFound when
	// there is none.
	Get(key string) (*cimeter.Record, error)
	// List returns at most limit records, the latest end first, that wanted
	// accepts (nil accepts all), and the cursor of the next page, "" at the
	// end. A page may be shorter than limit though there are more. The error
	// wraps cimeter.ErrInvalid for a cursor that List never gave.
	List(cursor string, limit int, wanted func(*cimeter.Record) bool) (records []*cimeter.Record, next string, err error)
}

// Version is what /version tells.
type Version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go,omitempty"`
}

// Options are what New needs. A route whose field is nil is not there.
type Options struct {
	Store   Store
	Running func() []*cimeter.Record // the accounts so far of builds that run; the caller owns the result no more
	Metrics http.Handler
	Ready   func() []string // reasons why the role is not ready; none when it is. nil: always ready
	Version Version
	// Report is told of what no client is told: unexpected errors and panics,
	// with the route and not the path. nil: nobody is.
	Report func(route string, err error)
	// Query is a server's store, in place of Store.
	Query Query
	// Now is the clock that spans of time count back from. nil: time.Now.
	Now func() time.Time
	// Agents tells of the agents that send heartbeats.
	Agents func() []Agent
	// Settled tells whether every agent has had the time to be heard of since the
	// start: before, the list of targets is not whole. nil: they have.
	Settled func() bool
	// Pages answers what no route does.
	Pages http.Handler
	// Ingest takes what agents send. nil: nothing is taken.
	Ingest Ingest
	// Queue is what CI servers tell of their builds and workers.
	Queue func() queue.State
	// Hooks takes webhooks of CI servers. nil: none is taken.
	Hooks Hooks
	// Cancel asks a CI server to end a build; by is the address that wants it. The
	// error wraps cimeter.ErrNotFound, ErrConflict or ErrUnsupported. nil: nobody may.
	Cancel func(ctx context.Context, key, by string) error
	// Sections divides the stages of builds. nil: there is no such route.
	Sections Sections
	// Access says who may use a route. nil: everybody may, as on a listener
	// that has its own authentication.
	Access *Access
	// Answered is told of every answer. nil: nobody is.
	Answered func(route string, status int)
	// Closed is told of every connection that is closed, or not taken, because a
	// server of this API holds as many as it may. nil: nobody is.
	Closed func()
}

// API serves the routes.
type API struct {
	o      Options
	routes []route
	panics atomic.Uint64
}

type route struct {
	path   string // with a last slash: everything below it
	handle func(http.ResponseWriter, *http.Request) error
	post   bool // answers POST; else GET and HEAD
	role   Role // that may use it

	parameters []string // of the query, as the description tells them
}

const buildsPath = "/api/v1/builds"

// New returns the handler of all routes.
func New(o Options) *API {
	a := &API{o: o}
	a.routes = []route{
		{path: "/healthz", handle: a.healthz},
		{path: "/readyz", handle: a.readyz},
		{path: "/version", handle: a.version},
	}
	if o.Store != nil {
		a.routes = append(a.routes, route{path: buildsPath, handle: a.builds, role: Read}, route{path: buildsPath + "/", handle: a.build, role: Read})
	}
	if o.Running != nil {
		a.routes = append(a.routes, route{path: "/api/v1/running", handle: a.running, role: Read})
	}
	if o.Metrics != nil {
		a.routes = append(a.routes, route{path: "/metrics", role: Read, handle: func(w http.ResponseWriter, r *http.Request) error {
			o.Metrics.ServeHTTP(w, r)
			return nil
		}})
	}
	a.routes = append(a.routes, a.queryRoutes()...)
	a.routes = append(a.routes, a.fleetRoutes()...)
	a.routes = append(a.routes, a.ingestRoutes()...)
	a.routes = append(append(a.routes, a.workRoutes()...), a.sectionRoutes()...)
	if o.Pages != nil {
		a.routes = append(a.routes, route{path: "/", role: Read, handle: func(w http.ResponseWriter, r *http.Request) error {
			o.Pages.ServeHTTP(w, r)
			return nil
		}})
	}
	return a
}

// Close ends the streams of the pages, so that a server can shut down.
func (a *API) Close() {
	if c, ok := a.o.Pages.(interface{ Close() }); ok {
		c.Close()
	}
}

// Panics is how many panics of handlers were recovered.
func (a *API) Panics() uint64 { return a.panics.Load() }

// Routes lists the paths that are served, for tests that walk them all.
func (a *API) Routes() []string {
	paths := make([]string, 0, len(a.routes))
	for _, rt := range a.routes {
		paths = append(paths, rt.path)
	}
	return paths
}

func (a *API) find(path string) (route, bool) {
	for _, rt := range a.routes {
		if rt.path == "/" && strings.HasPrefix(path, "/api/") {
			continue // a page is no answer to a program
		}
		if path == rt.path || strings.HasSuffix(rt.path, "/") && strings.HasPrefix(path, rt.path) && path != rt.path {
			return rt, true
		}
	}
	return route{}, false
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	done := inHandler(r.Context())
	defer done()
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")

	rt, ok := a.find(r.URL.Path)
	tw := &trackedWriter{ResponseWriter: w}
	if a.o.Answered != nil {
		defer func() { a.o.Answered(rt.path, tw.code()) }()
	}
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler {
			panic(v)
		}
		a.panics.Add(1)
		a.report(rt.path, fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		if tw.wrote {
			panic(http.ErrAbortHandler) // the client must not take half an answer for a whole one
		}
		writeProblem(tw, problem{Status: http.StatusInternalServerError})
	}()
	switch {
	case !ok:
		writeProblem(tw, problem{Status: http.StatusNotFound, Detail: "no such path"})
	case rt.post && r.Method != http.MethodPost:
		h.Set("Allow", "POST")
		writeProblem(tw, problem{Status: http.StatusMethodNotAllowed, Detail: "want POST"})
	case !rt.post && r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		writeProblem(tw, problem{Status: http.StatusMethodNotAllowed, Detail: "want GET or HEAD"})
	default:
		err := a.o.Access.check(tw, r, rt.role)
		if err == nil {
			err = rt.handle(tw, r)
		}
		if err != nil {
			a.fail(tw, r, rt.path, err)
		}
	}
}

// fail answers an error by its code. An error without one is the operator's
// business: the client is told nothing of it. Of a client that went away nobody is
// told: what it asked for was broken off with it.
func (a *API) fail(w *trackedWriter, r *http.Request, path string, err error) {
	if r.Context().Err() != nil {
		if w.wrote {
			panic(http.ErrAbortHandler)
		}
		writeProblem(w, problem{Status: http.StatusRequestTimeout, Detail: "client went away"})
		return
	}
	if w.wrote {
		a.report(path, err)
		panic(http.ErrAbortHandler)
	}
	var p *problem
	switch {
	case errors.As(err, &p):
		writeProblem(w, *p)
	case errors.Is(err, ErrBusy):
		w.Header().Set("Retry-After", strconv.Itoa(1+rand.IntN(busySeconds)))
		writeProblem(w, problem{Status: http.StatusTooManyRequests, Detail: "busy: want the same again after a while"})
	case errors.Is(err, wire.ErrTooLarge):
		writeProblem(w, problem{Status: http.StatusRequestEntityTooLarge, Detail: err.Error()})
	case errors.Is(err, cimeter.ErrNotFound):
		writeProblem(w, problem{Status: http.StatusNotFound, Detail: err.Error()})
	case errors.Is(err, cimeter.ErrInvalid):
		writeProblem(w, problem{Status: http.StatusBadRequest, Detail: err.Error()})
	case errors.Is(err, cimeter.ErrConflict):
		writeProblem(w, problem{Status: http.StatusConflict, Detail: err.Error()})
	case errors.Is(err, cimeter.ErrUnauthorized):
		writeProblem(w, problem{Status: http.StatusUnauthorized})
	case errors.Is(err, cimeter.ErrUnavailable):
		w.Header().Set("Retry-After", "5")
		writeProblem(w, problem{Status: http.StatusServiceUnavailable})
		a.report(path, err)
	case errors.Is(err, cimeter.ErrUnsupported):
		writeProblem(w, problem{Status: http.StatusNotImplemented, Detail: err.Error()})
	default:
		writeProblem(w, problem{Status: http.StatusInternalServerError})
		a.report(path, err)
	}
}

func (a *API) report(path string, err error) {
	if a.o.Report != nil {
		a.o.Report(path, err)
	}
}

// problem is an error's answer, application/problem+json of RFC 9457.
type problem struct {
	Type      string   `json:"type"`
	Title     string   `json:"title"`
	Status    int      `json:"status"`
	Detail    string   `json:"detail,omitempty"`
	Parameter string   `json:"parameter,omitempty"` // the query parameter at fault
	Reasons   []string `json:"reasons,omitempty"`
}

func (p *problem) Error() string { return p.Detail }

func writeProblem(w http.ResponseWriter, p problem) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	writeJSON(w, "application/problem+json", p.Status, p)
}

func writeJSON(w http.ResponseWriter, contentType string, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	w.Write(append(display.JSON(b), '\n')) // a client that went away is not an error of ours
	return nil
}

// trackedWriter knows whether an answer has begun, and with which status.
type trackedWriter struct {
	http.ResponseWriter
	wrote  bool
	status int
}

func (w *trackedWriter) WriteHeader(status int) {
	w.wrote = true
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *trackedWriter) code() int { return cmp.Or(w.status, http.StatusOK) }

func (w *trackedWriter) Write(b []byte) (int, error) {
	w.wrote = true
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the writer below.
func (w *trackedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (a *API) healthz(w http.ResponseWriter, r *http.Request) error {
	writeText(w, "text/plain; charset=utf-8", "ok\n")
	return nil
}

func (a *API) readyz(w http.ResponseWriter, r *http.Request) error {
	if a.o.Ready != nil {
		if reasons := a.o.Ready(); len(reasons) > 0 {
			return &problem{Status: http.StatusServiceUnavailable, Detail: "not ready", Reasons: reasons}
		}
	}
	writeText(w, "text/plain; charset=utf-8", "ready\n")
	return nil
}

func (a *API) version(w http.ResponseWriter, r *http.Request) error {
	return writeJSON(w, "application/json", http.StatusOK, a.o.Version)
}

func writeText(w http.ResponseWriter, contentType, s string) {
	w.Header().Set("Content-Type", contentType)
	w.Write([]byte(s))
}
