package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/queue"
	rows "github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/wire"
)

// parameters are those of an operation, each in full.
func (d *openAPI) parameters(op operation, in string) (all []parameter) {
	for _, p := range op.Parameters {
		if name, isRef := strings.CutPrefix(p.Ref, "#/components/parameters/"); isRef {
			p = d.Components.Parameters[name]
		}
		if p.In == in {
			all = append(all, p)
		}
	}
	return all
}

// Every value that a parameter is said to take is taken, and what it is said not to
// take is refused with the parameter's name: the words of an enumeration, both ends of
// a number, the length of a text, what must be there. What holds without it is the
// default that is told.
func TestOpenAPI_isTheParameters(t *testing.T) {
	api, _ := newServer(t, 5)
	d := readDescription(t, api)
	tried := 0
	for _, rt := range api.Table() {
		if rt.Post {
			continue
		}
		path := described(rt.Path)
		base := askFor(t, rt, "").URL
		for _, p := range d.parameters(d.Paths[path]["get"], "query") {
			ask := func(value string) *httptest.ResponseRecorder {
				q := base.Query()
				q.Set(p.Name, value)
				if p.Name == "name" && strings.HasSuffix(path, "/stages") {
					q.Set("project", "group/app")
				}
				return get(t, api, base.Path+"?"+q.Encode())
			}
			takes := func(value string) {
				t.Helper()
				tried++
				if w := ask(value); w.Code != http.StatusOK {
					t.Errorf("%s?%s=%s: %d %s: the description says that it is taken", path, p.Name, value, w.Code, w.Body)
				}
			}
			refuses := func(value string) {
				t.Helper()
				tried++
				if got := problemOf(t, ask(value)); got.Status != http.StatusBadRequest || got.Parameter != p.Name {
					t.Errorf("%s?%s=%.30s: %+v: the description says that it is not taken", path, p.Name, value, got)
				}
			}
			s := p.Schema
			switch {
			case s.Enum != nil:
				for _, v := range s.Enum {
					takes(v.(string))
				}
				refuses("none of these")
			case s.Type == "integer":
				takes(strconv.Itoa(*s.Minimum))
				refuses(strconv.Itoa(*s.Minimum - 1))
				if s.Maximum != nil {
					takes(strconv.Itoa(*s.Maximum))
					refuses(strconv.Itoa(*s.Maximum + 1))
				}
				refuses("many")
				refuses("1.5")
			case s.MaxLength > 0:
				takes(strings.Repeat("x", s.MaxLength))
				refuses(strings.Repeat("x", s.MaxLength+1))
			case p.Required:
				q := base.Query()
				q.Del(p.Name)
				if got := problemOf(t, get(t, api, base.Path+"?"+q.Encode())); got.Parameter != p.Name {
					t.Errorf("%s without %s: %+v: want it named", path, p.Name, got)
				}
				fallthrough
			default:
				takes(map[string]string{"since": "7d", "before": "2026-11-30", "from": "7d", "to": "2026-11-30T12:00:00Z", "bucket": "720h"}[p.Name] +
					map[string]string{"a": base.Query().Get("a"), "b": base.Query().Get("b")}[p.Name])
			}
			if s.Default != nil {
				with, without := ask(fmt.Sprint(s.Default)), get(t, api, base.RequestURI())
				if !bytes.Equal(with.Body.Bytes(), without.Body.Bytes()) {
					t.Errorf("%s: without %s it is not as with its default %v", path, p.Name, s.Default)
				}
			}
		}
	}
	if tried < 100 {
		t.Errorf("%d values tried: the description is not what this test thinks", tried)
	}
}

// The list of builds has as many rows as its default says.
func TestOpenAPI_limit(t *testing.T) {
	api, _ := newServer(t, 60)
	d := readDescription(t, api)
	for _, p := range d.parameters(d.Paths["/api/v1/builds"]["get"], "query") {
		if got := len(decode(t, get(t, api, "/api/v1/builds")).Builds); p.Name == "limit" && fmt.Sprint(p.Schema.Default) != fmt.Sprint(got) {
			t.Errorf("%d rows: the description says %v", got, p.Schema.Default)
		}
	}
}

// away is a store whose database does not answer.
type away struct{}

var errAway = fmt.Errorf("no connection: %w", cimeter.ErrUnavailable)

func (away) Get(context.Context, string) (*cimeter.Record, error)  { return nil, errAway }
func (away) Trace(context.Context, string) (*cimeter.Trace, error) { return nil, errAway }
func (away) Machines(context.Context, string) ([]*cimeter.Record, error) {
	return nil, errAway
}
func (away) List(context.Context, rows.Query) (rows.Page, error)  { return rows.Page{}, errAway }
func (away) Sum(context.Context, filter.Filter) (rows.Sum, error) { return rows.Sum{}, errAway }
func (away) Groups(context.Context, rows.GroupQuery) (rows.Groups, error) {
	return rows.Groups{}, errAway
}
func (away) Buckets(context.Context, rows.BucketQuery) ([]rows.Bucket, error) { return nil, errAway }
func (away) Names(context.Context, string, string, int) ([]string, error)     { return nil, errAway }

// failure has a route answer with an error.
type failure struct {
	path, method string // as the description has them
	status       int
	answer       func(t *testing.T) *httptest.ResponseRecorder
}

// failures are requests for every error that is described.
func failures(t *testing.T) (all []failure) {
	t.Helper()
	const key = "gitlab/gitlab.example.com/0"
	var base httpapi.Options
	api, in := newServer(t, 1, func(o *httpapi.Options) { base = *o })
	with := func(change func(*httpapi.Options)) *httpapi.API {
		o := base
		change(&o)
		return httpapi.New(o)
	}
	add := func(path, method string, status int, answer func(t *testing.T) *httptest.ResponseRecorder) {
		all = append(all, failure{path, method, status, answer})
	}
	guarded := func(t *testing.T) *httpapi.API {
		return with(func(o *httpapi.Options) {
			o.Access = httpapi.NewAccess(httpapi.AccessOptions{Tokens: tokens(t), Now: now})
		})
	}
	serveOn := func(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	// What is the same for many routes.
	for _, rt := range api.Table() {
		path, method := described(rt.Path), "get"
		if rt.Post {
			method = "post"
		}
		if rt.Role != httpapi.Anybody {
			add(path, method, 401, func(t *testing.T) *httptest.ResponseRecorder { return serveOn(guarded(t), askFor(t, rt, "")) })
			add(path, method, 403, func(t *testing.T) *httptest.ResponseRecorder {
				token := pushToken
				if rt.Role == httpapi.Push {
					token = readToken
				}
				return serveOn(guarded(t), askFor(t, rt, "Bearer "+token))
			})
			add(path, method, 429, func(t *testing.T) *httptest.ResponseRecorder {
				a := guarded(t)
				for range 10 {
					serveOn(a, askFor(t, rt, "Bearer wrong"))
				}
				return serveOn(a, askFor(t, rt, "Bearer wrong"))
			})
		}
		if rt.Role == httpapi.Read && !rt.Post && rt.Path != "/metrics" {
			add(path, method, 400, func(t *testing.T) *httptest.ResponseRecorder {
				r := askFor(t, rt, "")
				r.URL.RawQuery += "&colour=red"
				return serveOn(api, r)
			})
		}
		store := strings.HasPrefix(rt.Path, "/api/v1/") && rt.Role == httpapi.Read &&
			!slices.Contains([]string{"/api/v1/agents", "/api/v1/running", "/api/v1/openapi.json", "/api/v1/sd/prometheus"}, rt.Path) && !strings.Contains(rt.Path, "/work")
		if store {
			add(path, method, 503, func(t *testing.T) *httptest.ResponseRecorder {
				a := with(func(o *httpapi.Options) { o.Query = away{} })
				r := askFor(t, rt, "")
				if strings.HasSuffix(rt.Path, "sections/") {
					r.URL.RawQuery = "kept=true"
				}
				return serveOn(a, r)
			})
		}
		if strings.HasSuffix(path, "{key}") {
			add(path, method, 404, func(t *testing.T) *httptest.ResponseRecorder { return get(t, api, rt.Path+"gitlab/none") })
		}
	}
	add("/api/v1/compare", "get", 404, func(t *testing.T) *httptest.ResponseRecorder { return get(t, api, "/api/v1/compare?a=none&b="+key) })
	add("/api/v1/builds/{key}", "get", 406, func(t *testing.T) *httptest.ResponseRecorder {
		return get(t, api, "/api/v1/builds/"+key, "Accept", "image/png")
	})
	add("/api/v1/sd/prometheus", "get", 503, func(t *testing.T) *httptest.ResponseRecorder {
		a := with(func(o *httpapi.Options) { o.Settled = func() bool { return false } })
		return get(t, a, "/api/v1/sd/prometheus")
	})
	add("/readyz", "get", 503, func(t *testing.T) *httptest.ResponseRecorder {
		a := with(func(o *httpapi.Options) { o.Ready = func() []string { return []string{"store: away"} } })
		return get(t, a, "/readyz")
	})
	add("/metrics", "get", 503, tooManyScrapes)

	sent := func(path, kind string, body io.Reader, header ...string) func(t *testing.T) *httptest.ResponseRecorder {
		return func(t *testing.T) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, body)
			r.Header.Set("Content-Type", kind)
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			return serveOn(api, r)
		}
	}
	cut := io.MultiReader(strings.NewReader("{"), broken{})
	for path, kind := range map[string]string{wire.RecordsPath: wire.ContentType(), wire.HeartbeatPath: "application/json"} {
		add(path, "post", 400, sent(path, kind, strings.NewReader("no gzip"), "Content-Encoding", "gzip"))
		add(path, "post", 408, sent(path, kind, cut))
		add(path, "post", 413, sent(path, kind, strings.NewReader(strings.Repeat(" ", wire.MaxBodyBytes+1))))
		add(path, "post", 415, sent(path, kind, strings.NewReader("x"), "Content-Encoding", "br"))
	}
	refused := func(err error, path, kind, body string) func(t *testing.T) *httptest.ResponseRecorder {
		return func(t *testing.T) *httptest.ResponseRecorder {
			in.refuse, in.err = err, err
			defer func() { in.refuse, in.err = nil, nil }()
			return sent(path, kind, strings.NewReader(body))(t)
		}
	}
	add(wire.RecordsPath, "post", 503, refused(cimeter.ErrUnavailable, wire.RecordsPath, wire.ContentType(), string(batch(t, build(0)))))
	const cancel, which = "/api/v1/work/cancel", `{"key":"a/b/1"}`
	add(cancel, "post", 400, sent(cancel, "application/json", strings.NewReader("{}")))
	add(cancel, "post", 415, sent(cancel, "text/plain", strings.NewReader(which)))
	add(cancel, "post", 404, refused(cimeter.ErrNotFound, cancel, "application/json", which))
	add(cancel, "post", 409, refused(cimeter.ErrConflict, cancel, "application/json", which))
	add(cancel, "post", 501, refused(cimeter.ErrUnsupported, cancel, "application/json", which))
	add(cancel, "post", 502, refused(&queue.SourceError{Status: 500, Err: errors.New("x")}, cancel, "application/json", which))
	hooks, one := httpapi.HooksPath+"{ci}", httpapi.HooksPath+"gitlab"
	add(hooks, "post", 400, refused(cimeter.ErrInvalid, one, "application/json", "{}"))
	add(hooks, "post", 401, sent(one, "application/json", strings.NewReader("{}")))
	add(hooks, "post", 404, refused(cimeter.ErrNotFound, one, "application/json", "{}"))
	add(hooks, "post", 408, sent(one, "application/json", io.MultiReader(strings.NewReader("{"), broken{})))
	add(hooks, "post", 413, sent(one, "application/json", strings.NewReader(strings.Repeat(" ", 2<<20+1))))
	add(hooks, "post", 429, refused(httpapi.ErrBusy, one, "application/json", "{}"))
	return all
}

// tooManyScrapes has /metrics answered while the four that it bears are not done.
func tooManyScrapes(t *testing.T) *httptest.ResponseRecorder {
	table := tally.New(tally.Options{})
	a, _ := newServer(t, 0, func(o *httpapi.Options) { o.Metrics = prometheus.New(table) })
	entered, release := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	for range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			a.ServeHTTP(&held{ResponseRecorder: httptest.NewRecorder(), entered: entered, release: release},
				httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		}()
		<-entered
	}
	w := get(t, a, "/metrics")
	close(release)
	for range 4 {
		<-done
	}
	return w
}

// held is a client that does not read on.
type held struct {
	*httptest.ResponseRecorder
	entered, release chan struct{}
	begun            bool
}

func (h *held) Write(b []byte) (int, error) {
	if !h.begun {
		h.begun = true
		h.entered <- struct{}{}
		<-h.release
	}
	return len(b), nil
}

// Every error is a problem (RFC 9457) that says what was wanted, and stands in the
// description; every error that stands there is one that the route gives.
func TestOpenAPI_isTheErrors(t *testing.T) {
	api, _ := newServer(t, 0)
	d := readDescription(t, api)
	given := map[string]bool{}
	for _, f := range failures(t) {
		name := fmt.Sprintf("%s %s %d", f.method, f.path, f.status)
		t.Run(name, func(t *testing.T) {
			w := f.answer(t)
			if p := problemOf(t, w); p.Status != f.status {
				t.Fatalf("%+v: want %d", p, f.status)
			}
			given[name] = true
			r, ok := d.Paths[f.path][f.method].Responses[fmt.Sprint(f.status)]
			if !ok {
				t.Fatal("it is not described")
			}
			if told := strings.Contains(fmt.Sprint(d.resolve(r).Headers), "Retry-After"); f.status == 429 && (!told || w.Header().Get("Retry-After") == "") {
				t.Errorf("Retry-After %q, described %t: want it", w.Header().Get("Retry-After"), told)
			}
		})
	}
	for path, methods := range d.Paths {
		for method, op := range methods {
			for status := range op.Responses {
				if name := fmt.Sprintf("%s %s %s", method, path, status); status >= "400" && status <= "599" && !given[name] {
					t.Errorf("%s is described and was not given", name)
				}
			}
		}
	}
}

// Headers that are described are there.
func TestOpenAPI_isTheHeaders(t *testing.T) {
	api, _ := newServer(t, 1)
	d := readDescription(t, api)
	n := 0
	for _, rt := range api.Table() {
		if rt.Post {
			continue
		}
		op := d.Paths[described(rt.Path)]["get"]
		_, unchanged := op.Responses["304"]
		_, told := op.Responses["200"].Headers["ETag"]
		w := httptest.NewRecorder()
		api.ServeHTTP(w, askFor(t, rt, ""))
		tag := w.Header().Get("ETag")
		asks := slices.ContainsFunc(d.parameters(op, "header"), func(p parameter) bool { return p.Name == "If-None-Match" })
		if has := tag != ""; has != told || has != unchanged || has != asks {
			t.Errorf("%s: ETag %q; described: ETag %t, 304 %t, If-None-Match %t", rt.Path, tag, told, unchanged, asks)
		}
		if tag != "" {
			n++
			r := askFor(t, rt, "")
			r.Header.Set("If-None-Match", tag)
			w := httptest.NewRecorder()
			if api.ServeHTTP(w, r); w.Code != http.StatusNotModified {
				t.Errorf("%s with its tag: %d: want 304", rt.Path, w.Code)
			}
		}
	}
	if n < 10 {
		t.Errorf("%d routes with an ETag", n)
	}
}

// A reader that goes away is no error of the server's: nobody is told of it.
func TestAPI_readerGoesAway(t *testing.T) {
	var reported []string
	api, _ := newServer(t, 3, func(o *httpapi.Options) {
		o.Report = func(route string, err error) { reported = append(reported, fmt.Sprint(route, ": ", err)) }
	})
	for _, rt := range api.Table() {
		if rt.Post {
			continue
		}
		r := askFor(t, rt, "")
		if strings.HasSuffix(rt.Path, "sections/") {
			r.URL = &url.URL{Path: r.URL.Path, RawQuery: "kept=true"}
		}
		api.ServeHTTP(httptest.NewRecorder(), r.WithContext(gone(t)))
	}
	if len(reported) > 0 {
		t.Errorf("reported:\n%s", strings.Join(reported, "\n"))
	}
}

// gone is the context of a client that is away.
func gone(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
