package web_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/webtest"
)

func pages(t testing.TB, m *webtest.Memory) *web.Pages {
	t.Helper()
	p, err := web.New(web.Options{Source: m, Totals: m, Fleet: m, Queue: m.Queue, Sections: m.Sections, Neighbours: m.Neighbours, Names: m.Names, Past: m.Past, Now: func() time.Time { return webtest.Now }, Version: "1.0.0",
		Report: func(route string, err error) { t.Errorf("%s: %v", route, err) }})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func get(t testing.TB, h http.Handler, target string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(b)
}

func TestBuilds(t *testing.T) {
	h := pages(t, &webtest.Memory{Records: webtest.History(200)})
	code, body := get(t, h, "/builds")
	if code != 200 || !strings.Contains(body, "group/app / build-and-test #4242") {
		t.Errorf("got %d\n%s", code, body)
	}
}

func TestBuild(t *testing.T) {
	m := &webtest.Memory{Records: append(webtest.History(200), webtest.Nothing())}
	h := pages(t, m)
	for _, r := range m.Records[:6] {
		code, body := get(t, h, "/builds/"+r.Key)
		if code != 200 || !strings.Contains(body, "</html>") {
			t.Errorf("%s: got %d\n%s", r.Key, code, body)
		}
	}
	if code, body := get(t, h, "/builds/gitlab/x/1"); code != 404 || !strings.Contains(body, "no build gitlab/x/1") {
		t.Errorf("got %d %s", code, body)
	}
	_ = fmt.Sprint
}

// A page is compressed for those who take it alone.
func TestCompression(t *testing.T) {
	h := pages(t, &webtest.Memory{Records: webtest.History(3)})
	for accept, want := range map[string]string{"": "", "br": "", "gzip;q=0": "", "br, gzip; q=0": "", "gzip": "gzip", "br, gzip;q=0.5": "gzip", "x-gzip": ""} {
		r := httptest.NewRequest(http.MethodGet, "/builds", nil)
		r.Header.Set("Accept-Encoding", accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Encoding"); w.Code != 200 || got != want {
			t.Errorf("%q: %d, %q: want %q", accept, w.Code, got, want)
		}
	}
}

// A key leads to its build, whatever it is made of.
func TestBuildLinks(t *testing.T) {
	r := webtest.History(1)[0]
	r.Key = `gitlab/x/a?b#c d"<e>%2F`
	_, body := get(t, pages(t, &webtest.Memory{Records: []*cimeter.Record{r}}), "/builds")
	if want := `href="/builds/gitlab/x/a%3Fb%23c%20d%22%3Ce%3E%2F`; !strings.Contains(body, want) {
		t.Errorf("no %s in\n%s", want, body)
	}
}

// A stream that has ended makes room for another.
func TestLive_slots(t *testing.T) {
	h := pages(t, &webtest.Memory{})
	for i := range 500 {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/live", nil)); w.Code != 200 {
			t.Fatalf("stream %d, after the others ended: %d", i, w.Code)
		}
	}
}
