package debug_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/debug"
)

func vars(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }

func get(h http.Handler, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "http://127.0.0.1:1"+path, nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Everything that the page lists is there.
func TestHandler_listsWhatIsThere(t *testing.T) {
	h := debug.New(debug.Options{Vars: http.HandlerFunc(vars)})
	page := get(h, "/debug/", nil).Body.String()
	links := regexp.MustCompile(`href="([^"]+)"`).FindAllStringSubmatch(page, -1)
	want := []string{"/debug/vars", "goroutine", "heap", "allocs", "profile?", "trace?"}
	for _, w := range want {
		if !strings.Contains(page, w) {
			t.Errorf("%s is not listed", w)
		}
	}
	for _, l := range links {
		path := strings.ReplaceAll(strings.ReplaceAll(l[1], "seconds=30", "seconds=1"), "seconds=5", "seconds=1")
		if w := get(h, path, nil); w.Code != 200 || w.Body.Len() == 0 {
			t.Errorf("%s: status %d, %d bytes", path, w.Code, w.Body.Len())
		}
	}
	if w := get(debug.New(debug.Options{}), "/debug/vars", nil); w.Code != 404 {
		t.Errorf("vars without any: %d", w.Code)
	}
}

// What it answers is what go tool pprof reads.
func TestHandler_pprofReadsIt(t *testing.T) {
	for _, path := range []string{"/debug/pprof/heap?gc=1", "/debug/pprof/goroutine", "/debug/pprof/profile?seconds=1"} {
		server := httptest.NewServer(debug.New(debug.Options{}))
		cmd := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-top", "-symbolize=none", server.URL+path)
		cmd.Env = append(cmd.Environ(), "PPROF_TMPDIR="+filepath.Join(t.TempDir(), "pprof"))
		out, err := cmd.CombinedOutput()
		server.Close()
		if err != nil || !bytes.Contains(out, []byte("flat%")) {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
}

func TestHandler_refuses(t *testing.T) {
	h := debug.New(debug.Options{})
	for path, want := range map[string]int{
		"/debug/pprof/nope": 404, "/debug/pprof/profile?seconds=0": 400, "/debug/pprof/trace?seconds=301": 400, "/debug/pprof/heap?debug=3": 400,
		"/debug/pprof/heap?seconds=1": 400, "/metrics": 404, "/debug/pprof/cmdline": 404, "/": 302, "/debug/pprof/": 200,
	} {
		if w := get(h, path, nil); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

// Routes × tokens (threat T16): nothing is answered without the right one.
func TestHandler_token(t *testing.T) {
	h := debug.New(debug.Options{Token: "sesame", Vars: http.HandlerFunc(vars)})
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"none":         {nil, 401},
		"wrong":        {func(r *http.Request) { r.Header.Set("Authorization", "Bearer sesam") }, 401},
		"empty":        {func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, 401},
		"other scheme": {func(r *http.Request) { r.Header.Set("Authorization", "Token sesame") }, 401},
		"bearer":       {func(r *http.Request) { r.Header.Set("Authorization", "bearer sesame") }, 200},
		"basic":        {func(r *http.Request) { r.SetBasicAuth("any", "sesame") }, 200},
		"by a name":    {func(r *http.Request) { r.SetBasicAuth("any", "sesame"); r.Host = "ci-7.example.com:6060" }, 200},
	} {
		for _, path := range []string{"/debug/", "/debug/vars", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2"} {
			w := get(h, path, c.change)
			if w.Code != c.want || w.Code == 401 && (len(w.Header().Values("WWW-Authenticate")) != 2 || strings.Contains(w.Body.String(), "sesame")) {
				t.Errorf("%s %s: status %d: want %d", name, path, w.Code, c.want)
			}
		}
	}
}

// Without a token a name that leads here is not enough: a page elsewhere may
// have made it so.
func TestHandler_hosts(t *testing.T) {
	h := debug.New(debug.Options{})
	for host, want := range map[string]int{
		"localhost:6060": 200, "127.0.0.1:6060": 200, "[::1]:6060": 200, "[::1]": 200, "10.0.0.1": 200,
		"evil.example": 403, "evil.example:6060": 403, "": 403, "localhost.evil.example": 403,
	} {
		if w := get(h, "/debug/", func(r *http.Request) { r.Host = host }); w.Code != want {
			t.Errorf("%q: %d, want %d", host, w.Code, want)
		}
	}
}

// One profile at a time, and one whose reader went away ends.
func TestHandler_oneProfileAtATime(t *testing.T) {
	h := debug.New(debug.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	started, done := make(chan struct{}), make(chan struct{})
	go func() {
		r := httptest.NewRequest("GET", "http://127.0.0.1/debug/pprof/trace?seconds=300", nil).WithContext(ctx)
		h.ServeHTTP(&first{ResponseRecorder: httptest.NewRecorder(), wrote: started}, r)
		close(done)
	}()
	<-started
	if w := get(h, "/debug/pprof/profile?seconds=1", nil); w.Code != 409 {
		t.Errorf("second: %d, want 409", w.Code)
	}
	cancel()
	<-done
	if w := get(h, "/debug/pprof/profile?seconds=1", nil); w.Code != 200 {
		t.Errorf("after it: %d, want 200", w.Code)
	}
}

// first tells of the first write.
type first struct {
	*httptest.ResponseRecorder
	wrote chan struct{}
	told  bool
}

func (f *first) Write(b []byte) (int, error) {
	if !f.told {
		f.told = true
		close(f.wrote)
	}
	return f.ResponseRecorder.Write(b)
}

// Nothing of it is served by a listener that serves http.DefaultServeMux.
func TestDefaultServeMuxStaysEmpty(t *testing.T) {
	debug.New(debug.Options{})
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/vars"} {
		if _, pattern := http.DefaultServeMux.Handler(httptest.NewRequest("GET", path, nil)); pattern != "" {
			t.Errorf("%s is in http.DefaultServeMux as %s", path, pattern)
		}
	}
}
