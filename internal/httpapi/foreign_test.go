package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/httpapi"
)

// Another site's page in a reader's browser (T21): no route lets it read an
// answer, none that writes takes what a browser sends without asking, and none
// that reads writes.
func TestAPI_otherSites(t *testing.T) {
	api, in := newServer(t, 1, func(o *httpapi.Options) {
		o.Pages = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("a page")) })
		o.Access = httpapi.NewAccess(httpapi.AccessOptions{Tokens: tokens(t), OpenRead: true})
	})
	ask := func(r *http.Request, set ...string) *httptest.ResponseRecorder {
		r.Header.Set("Origin", "https://evil.example.com")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Cookie", "session="+pushToken)
		for i := 0; i < len(set); i += 2 {
			r.Header.Set(set[i], set[i+1])
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		for name := range w.Header() {
			if strings.HasPrefix(name, "Access-Control-") || name == "Set-Cookie" {
				t.Errorf("%s %s: %s: %s", r.Method, r.URL.Path, name, w.Header().Get(name))
			}
		}
		return w
	}
	for _, rt := range api.Table() {
		preflight := askFor(t, rt, "")
		preflight.Method = http.MethodOptions
		if w := ask(preflight, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization, content-type"); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("OPTIONS %s: %d: want 405", rt.Path, w.Code)
		}
		for _, simple := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
			r := askFor(t, rt, "")
			r.Method = http.MethodPost
			want := http.StatusMethodNotAllowed
			if rt.Post {
				want = http.StatusUnauthorized
				r.Header.Del("X-Secret") // which a browser does not know
			}
			if w := ask(r, "Content-Type", simple); w.Code != want {
				t.Errorf("POST %s as %s: %d: want %d", rt.Path, simple, w.Code, want)
			}
		}
		if !rt.Post {
			ask(askFor(t, rt, ""))
		}
	}
	if len(in.agents)+len(in.beats)+len(in.canceled)+len(in.hooks) > 0 {
		t.Error("something was written")
	}
}

// What is for debugging is not there (T26).
func TestAPI_noDebugging(t *testing.T) {
	api, _ := newServer(t, 1)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/vars", "/debug/", "/api/v1/debug"} {
		if w := get(t, api, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d: want 404", path, w.Code)
		}
	}
}
