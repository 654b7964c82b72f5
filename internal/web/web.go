package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// Options are what New needs.
type Options struct {
	Source     Source
	Totals     Totals           // nil: no pages of projects, jobs, machines and runners
	Fleet      Fleet            // nil: nothing is known of machines now
	Queue      Queue            // nil: no page of the queue
	Sections   Sections         // nil: no build's log has any
	Machines   Machines         // nil: no build is known to work on several
	Neighbours Neighbours       // nil: what ran beside a build is not known
	Names      Names            // nil: the filter suggests nothing
	Past       Past             // nil: of machines the last minutes alone are known
	Now        func() time.Time // nil: time.Now
	Version    string
	Tick       time.Duration // between the refreshes of a live page; 0: 2 s
	// Report is told of what no reader is told: unexpected errors and panics,
	// with the route and not the path. nil: nobody is.
	Report func(route string, err error)
}

// Pages serves the pages and their assets.
type Pages struct {
	o      Options
	assets assets
	pages  map[string]*template.Template
	routes []route
	panics atomic.Uint64
	press  press
	// buffers are of pages in the making.
	buffers sync.Pool
	live    chan struct{} // a slot for each stream

	closing sync.Once
	closed  chan struct{}
}

type route struct {
	path   string // with a last slash: everything below it, except "/" itself
	handle func(http.ResponseWriter, *http.Request) error
}

// policy allows nothing but our own files, and no string to become script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// New returns the handler of all pages.
func New(o Options) (*Pages, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Tick <= 0 {
		o.Tick = defaultTick
	}
	p := &Pages{o: o, live: make(chan struct{}, maxStreams), closed: make(chan struct{})}
	var err error
	if p.assets, err = newAssets(); err != nil {
		return nil, err
	}
	if p.pages, err = parseTemplates(p.assets); err != nil {
		return nil, err
	}
	p.routes = []route{
		{"/", p.now},
		{"/builds", p.builds},
		{"/builds/", p.build},
		{"/trace/", p.trace},
		{"/trace", p.compareTrace},
		{"/compare", p.compare},
		{"/live", p.stream},
		{"/help", p.help},
		{"/static/", p.static},
	}
	if o.Totals != nil {
		p.routes = append(p.routes, route{"/projects", p.projects}, route{"/project", p.project}, route{"/job", p.job},
			route{"/machines", p.machines}, route{"/machine", p.machine}, route{"/runner", p.runner})
	}
	if o.Names != nil {
		p.routes = append(p.routes, route{"/suggest", p.suggest})
	}
	if o.Queue != nil {
		p.routes = append(p.routes, route{"/queue", p.queue})
	}
	return p, nil
}

// parseTemplates makes a set for each page: the layout, the parts, and its own.
func parseTemplates(a assets) (map[string]*template.Template, error) {
	base, err := template.New("layout.html").Funcs(template.FuncMap{"asset": a.path}).
		ParseFS(files, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	pages := map[string]*template.Template{}
	found, err := files.ReadDir("templates")
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	for _, f := range found {
		page, ok := strings.CutSuffix(f.Name(), ".html")
		if !ok || page == "layout" || page == "parts" {
			continue
		}
		t, err := base.Clone()
		if err == nil {
			t, err = t.ParseFS(files, "templates/"+f.Name())
		}
		if err != nil {
			return nil, fmt.Errorf("template %s: %w", page, err)
		}
		pages[page] = t
	}
	return pages, nil
}

// Routes lists the paths that are served, for tests that walk them all.
func (p *Pages) Routes() []string {
	paths := make([]string, 0, len(p.routes))
	for _, rt := range p.routes {
		paths = append(paths, rt.path)
	}
	return paths
}

// Panics is how many panics of handlers were recovered.
func (p *Pages) Panics() uint64 { return p.panics.Load() }

func (p *Pages) find(path string) (route, bool) {
	for _, rt := range p.routes {
		if path == rt.path || rt.path != "/" && strings.HasSuffix(rt.path, "/") && strings.HasPrefix(path, rt.path) {
			return rt, true
		}
	}
	return route{}, false
}

// ServeHTTP implements http.Handler.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	r = r.WithContext(context.WithValue(r.Context(), begunKey{}, time.Now()))
	rt, ok := p.find(r.URL.Path)
	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler {
				panic(v)
			}
			p.panics.Add(1)
			p.report(rt.path, fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
			p.fail(w, r, rt.path, errAlreadyTold)
		}
	}()
	switch {
	case !ok:
		p.fail(w, r, "", fmt.Errorf("no page here: %w", cimeter.ErrNotFound))
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		p.problem(w, r, http.StatusMethodNotAllowed, "want GET or HEAD")
	default:
		if err := rt.handle(w, r); err != nil {
			p.fail(w, r, rt.path, err)
		}
	}
}

// begunKey is of the time at which a request came, in its context.
type begunKey struct{}

// since is how long a request has been answered for, in milliseconds.
func since(r *http.Request) string {
	begun, ok := r.Context().Value(begunKey{}).(time.Time)
	if !ok {
		begun = time.Now()
	}
	return milliseconds(time.Since(begun))
}

func milliseconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 2, 64)
}

var errAlreadyTold = errors.New("told")

func (p *Pages) report(route string, err error) {
	if p.o.Report != nil {
		p.o.Report(route, err)
	}
}

// fail answers an error by its code. An error without one is the operator's
// business: the reader is told nothing of it.
func (p *Pages) fail(w http.ResponseWriter, r *http.Request, route string, err error) {
	status, detail, ours := explain(err)
	if ours && err != errAlreadyTold {
		p.report(route, err)
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	p.problem(w, r, status, detail)
}

// problem is the page of an error.
func (p *Pages) problem(w http.ResponseWriter, r *http.Request, status int, detail string) {
	v := struct {
		page
		Status int
		Detail string
	}{p.page(r, http.StatusText(status), ""), status, display.Fit(detail, 400, "…")}
	if err := p.render(w, r, status, "problem", v); err != nil {
		p.report("problem", err)
		http.Error(w, http.StatusText(status), status)
	}
}

// page is what the layout needs.
type page struct {
	Title   string
	Active  string // of the top bar
	Theme   string // light, dark, or "" for the system's
	Version string
	Now     stamp
	Search  string
	Plots   bool   // loads uPlot
	Lines   string // of charts over time: uPlot is loaded "now", or when one is "touched"
	Live    bool   // refreshes itself
	LiveURL string // of the part that does; "" is the whole page
	Grouped bool   // there are pages of projects and machines
	Queued  bool   // there is a page of the queue
	Crumbs  []link
	Span    *spanForm           // of a page of a time
	Failed  map[string]*failure // parts that could not be read
	took    *string
}

// ReadIn is how long the page was read for, in milliseconds; it is known when the page is
// rendered.
func (v page) ReadIn() string { return *v.took }

func (v page) setRead(ms string) { *v.took = ms }

type link struct{ Text, URL, Title string }

func (p *Pages) page(r *http.Request, title, active string) page {
	v := page{took: new(string), Title: title, Active: active, Version: p.o.Version, Grouped: p.o.Totals != nil, Queued: p.o.Queue != nil, Now: stampOf(p.o.Now(), p.o.Now())}
	if c, err := r.Cookie("theme"); err == nil && (c.Value == "dark" || c.Value == "light") {
		v.Theme = c.Value
	}
	return v
}

// render writes a page whole, or not at all.
func (p *Pages) render(w http.ResponseWriter, r *http.Request, status int, page string, v any) error {
	b, _ := p.buffers.Get().(*bytes.Buffer)
	if b == nil {
		b = &bytes.Buffer{}
	}
	defer p.buffers.Put(b)
	b.Reset()
	read := since(r)
	if v, ok := v.(interface{ setRead(ms string) }); ok {
		v.setRead(read)
	}
	begun := time.Now()
	if err := p.pages[page].Execute(b, v); err != nil {
		return fmt.Errorf("render %s: %w", page, err)
	}
	h := w.Header()
	h.Set("Server-Timing", "read;dur="+read+", write;dur="+milliseconds(time.Since(begun)))
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Add("Vary", "Cookie")
	return p.sendZipped(w, r, status, b.Bytes())
}

// sendZipped writes a body that is made for this request, compressed when the
// client takes it.
func (p *Pages) sendZipped(w http.ResponseWriter, r *http.Request, status int, body []byte) error {
	if w.Header().Get("Server-Timing") == "" {
		w.Header().Set("Server-Timing", "read;dur="+since(r))
	}
	if r.Method == http.MethodHead || !acceptsGzip(r) {
		send(w, r, status, body, nil)
		return nil
	}
	return p.press.zip(body, func(zipped []byte) { send(w, r, status, body, zipped) })
}

func (p *Pages) static(w http.ResponseWriter, r *http.Request) error {
	if !p.assets.serve(w, r) {
		return fmt.Errorf("no such file: %w", cimeter.ErrNotFound)
	}
	return nil
}

func (p *Pages) help(w http.ResponseWriter, r *http.Request) error {
	return p.render(w, r, http.StatusOK, "help", struct{ page }{p.page(r, "Help", "help")})
}

// href makes a URL of a path and its query, given as pairs; pairs without a
// value are left out.
func href(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Add(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// buildURL is a build's page: a key can stand in a path. What cannot is escaped.
func buildURL(key string) string { return "/builds/" + pathOf(key) }

// pathOf escapes what is not allowed in a path and leaves percent signs as they
// are.
func pathOf(key string) string {
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_.~!$&'()*+,;=:@/%", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// outside is a link to another site, "" unless it is one of the web.
func outside(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return ""
	}
	return s
}
