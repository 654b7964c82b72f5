package web_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/webtest"
)

func pages(t testing.TB, m *webtest.Memory) *web.Pages {
	t.Helper()
	p, err := web.New(web.Options{Source: m, Totals: m, Fleet: m, Queue: m.Queue, Sections: m.Sections, Names: m.Names, Past: m.Past, Now: func() time.Time { return webtest.Now }, Version: "1.0.0",
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
