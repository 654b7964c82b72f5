package prometheus_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/output/prometheus"
)

func TestHandler_formats(t *testing.T) {
	e := prometheus.New(smallTable())
	for accept, want := range map[string]prometheus.Format{"": prometheus.Text, "application/openmetrics-text; version=1.0.0": prometheus.OpenMetrics} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		body := encode(t, e, want)
		if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), body) {
			t.Errorf("%q: status %d, body:\n%s", accept, w.Code, w.Body)
		}
		if got := w.Header().Get("Content-Length"); got != strconv.Itoa(len(body)) {
			t.Errorf("%q: length %s: want %d", accept, got, len(body))
		}
		if _, contentType := prometheus.Negotiate(accept); w.Header().Get("Content-Type") != contentType {
			t.Errorf("%q: content type %q: want %q", accept, w.Header().Get("Content-Type"), contentType)
		}
		if w.Header().Get("Vary") != "Accept" {
			t.Errorf("%q: want Vary: Accept", accept)
		}
	}
}

func TestHandler_large(t *testing.T) {
	e := prometheus.New(largeTable(20_000))
	server := httptest.NewServer(e)
	defer server.Close()
	res, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(body, encode(t, e, prometheus.Text)) {
		t.Errorf("%d bytes are not what Encode writes", len(body))
	}
}

func TestHandler_methods(t *testing.T) {
	e := prometheus.New(smallTable())
	for method, want := range map[string]int{"HEAD": 200, "POST": 405, "DELETE": 405, "OPTIONS": 405} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(method, "/metrics", nil))
		if w.Code != want {
			t.Errorf("%s: status %d: want %d", method, w.Code, want)
		}
		if method == "HEAD" && (w.Body.Len() > 0 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4")) {
			t.Errorf("HEAD: %d bytes of %q", w.Body.Len(), w.Header().Get("Content-Type"))
		}
		if want == 405 && w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: allow %q", method, w.Header().Get("Allow"))
		}
	}
}

// Four scrapes whose readers do not read are served, a fifth is refused, and
// there is room again when they are done.
func TestHandler_tooMany(t *testing.T) {
	e := prometheus.New(smallTable())
	arrived, release := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	for range 4 {
		go func() {
			e.ServeHTTP(stuck{httptest.NewRecorder(), arrived, release}, httptest.NewRequest("GET", "/metrics", nil))
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-arrived
	}
	get := func() int {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Code
	}
	if got := get(); got != http.StatusServiceUnavailable {
		t.Errorf("the fifth: status %d: want 503", got)
	}
	close(release)
	for range 4 {
		<-done
	}
	if got := get(); got != 200 {
		t.Errorf("after them: status %d: want 200", got)
	}
}

type stuck struct {
	http.ResponseWriter
	arrived, release chan struct{}
}

func (s stuck) Write(p []byte) (int, error) {
	s.arrived <- struct{}{}
	<-s.release
	return s.ResponseWriter.Write(p)
}
