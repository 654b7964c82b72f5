package httpapi_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/httpapi"
)

// streaming is pages with a stream that ends when they are closed.
type streaming struct {
	closed chan struct{}
	once   sync.Once
}

func (s *streaming) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	http.NewResponseController(w).Flush()
	select {
	case <-s.closed:
		io.WriteString(w, "end")
	case <-r.Context().Done():
	}
}

func (s *streaming) Close() { s.once.Do(func() { close(s.closed) }) }

// A stream that nobody ends does not hold up the shutdown: the pages are told,
// and their client sees the end of it.
func TestServer_shutdownEndsStreams(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httpapi.NewServer(httpapi.New(httpapi.Options{Pages: &streaming{closed: make(chan struct{})}}), nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l, nil) }()
	r, err := http.Get("http://" + l.Addr().String() + "/live")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	cancel()
	if b, err := io.ReadAll(r.Body); err != nil || string(b) != "end" {
		t.Errorf("%q, %v: want the stream's own end", b, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Tokens are asked for again, at most once a second; what is no newer list
// changes nothing.
func TestAccess_reload(t *testing.T) {
	hex := func(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var next []httpapi.Token
	changed, asked := false, 0
	old, err := httpapi.ParseTokens("read me " + hex("cmt_old"))
	if err != nil {
		t.Fatal(err)
	}
	access := httpapi.NewAccess(httpapi.AccessOptions{Tokens: old, Now: func() time.Time { return now }, Reload: func() ([]httpapi.Token, bool) { asked++; return next, changed }})
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	api := httpapi.New(httpapi.Options{Metrics: metrics, Access: access})
	try := func(token string) int { return get(t, api, "/metrics", "Authorization", "Bearer "+token).Code }
	if got := try("cmt_old"); got != http.StatusOK || asked != 0 {
		t.Errorf("%d, asked %d times: want 200 and no reload within a second", got, asked)
	}
	now = now.Add(2 * time.Second)
	for range 5 {
		if got := try("cmt_old"); got != http.StatusOK {
			t.Errorf("%d: want 200, nothing has changed", got)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times: want once a second", asked)
	}
	if next, err = httpapi.ParseTokens("read me " + hex("cmt_new")); err != nil {
		t.Fatal(err)
	}
	changed, now = true, now.Add(2*time.Second)
	if a, b := try("cmt_new"), try("cmt_old"); a != http.StatusOK || b != http.StatusUnauthorized {
		t.Errorf("new %d, old %d: want 200 and 401", a, b)
	}
}
