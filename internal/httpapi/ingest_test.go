package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/wire"
)

func resultsOf(t *testing.T, w *httptest.ResponseRecorder) []wire.Result {
	t.Helper()
	var a wire.Answer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s %v", w.Code, w.Body, err)
	}
	return a.Results
}

func TestIngest_records(t *testing.T) {
	api, in := newServer(t, 0)
	lines := bytes.Split(bytes.TrimSpace(batch(t, build(0), build(1))), []byte("\n"))
	body, encoding, err := wire.EncodeBatch([][]byte{lines[0], []byte(`{"key":"a/b"}`), lines[1]})
	if err != nil {
		t.Fatal(err)
	}
	header := []string{"Content-Type", wire.ContentType(), "Content-Encoding", encoding, wire.AgentHeader, "agent-1"}
	for round, want := range []wire.Status{wire.Stored, wire.Duplicate} {
		got := resultsOf(t, post(t, api, wire.RecordsPath, body, header...))
		if len(got) != 3 || got[0] != (wire.Result{Key: build(0).Key, Status: want}) || got[2] != (wire.Result{Key: build(1).Key, Status: want}) {
			t.Errorf("round %d: %+v: want %s", round, got, want)
		}
		if got[1].Status != wire.Refused || got[1].Key != "a/b" || !strings.Contains(got[1].Reason, "line 2") {
			t.Errorf("%+v: want the second refused", got[1])
		}
	}
	if in.refused != 2 || in.agents[0] != "agent-1" {
		t.Errorf("%d refused, agents %v", in.refused, in.agents)
	}
	if p := decode(t, get(t, api, "/api/v1/builds")); len(p.Builds) != 2 {
		t.Errorf("%d builds: want 2", len(p.Builds))
	}
	if got := resultsOf(t, post(t, api, wire.RecordsPath, nil, header[:2]...)); len(got) != 0 {
		t.Errorf("an empty batch: %v", got)
	}
}

func TestIngest_refusals(t *testing.T) {
	api, in := newServer(t, 0)
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	io.Copy(z, io.LimitReader(zeros{}, 64<<20))
	z.Close()
	for name, c := range map[string]struct {
		path, contentType, encoding string
		body                        []byte
		want                        int
	}{
		"no content type":       {wire.RecordsPath, "", "", nil, 415},
		"a version of later":    {wire.RecordsPath, "application/x-ndjson; version=9", "", nil, 415},
		"an encoding":           {wire.RecordsPath, wire.ContentType(), "br", []byte("x"), 415},
		"no gzip":               {wire.RecordsPath, wire.ContentType(), "gzip", []byte("x"), 400},
		"a bomb":                {wire.RecordsPath, wire.ContentType(), "gzip", bomb.Bytes(), 413},
		"a large body":          {wire.RecordsPath, wire.ContentType(), "", bytes.Repeat([]byte("\n"), wire.MaxBodyBytes+1), 413},
		"a heartbeat of no one": {wire.HeartbeatPath, "application/json", "", []byte("{}"), 400},
		"a heartbeat bomb":      {wire.HeartbeatPath, "application/json", "gzip", bomb.Bytes(), 413},
		"a large heartbeat":     {wire.HeartbeatPath, "application/json", "", bytes.Repeat([]byte(" "), wire.MaxHeartbeatBytes+1), 413},
	} {
		t.Run(name, func(t *testing.T) {
			w := post(t, api, c.path, c.body, "Content-Type", c.contentType, "Content-Encoding", c.encoding)
			if p := problemOf(t, w); p.Status != c.want || p.Detail == "" {
				t.Errorf("%+v: want %d", p, c.want)
			}
		})
	}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodHead} {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, wire.RecordsPath, nil))
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" {
			t.Errorf("%s: %d, Allow %q: want 405 and POST", method, w.Code, w.Header().Get("Allow"))
		}
	}
	if w := post(t, api, "/api/v1/builds", nil); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST of builds: %d: want 405", w.Code)
	}
	if len(in.agents)+len(in.beats) > 0 {
		t.Error("something was taken")
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// A store that takes nothing, and a server with no room, say when to come again.
func TestIngest_overload(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"no room":        {fmt.Errorf("put: %w", httpapi.ErrBusy), 429},
		"the store":      {fmt.Errorf("put: disk full: %w", cimeter.ErrUnavailable), 503},
		"the unexpected": {errors.New("secret detail"), 500},
	} {
		t.Run(name, func(t *testing.T) {
			api, in := newServer(t, 0)
			in.err = c.err
			w := post(t, api, wire.RecordsPath, batch(t, build(0)), "Content-Type", wire.ContentType())
			if p := problemOf(t, w); p.Status != c.want || strings.Contains(p.Detail, "disk full") || strings.Contains(p.Detail, "secret") {
				t.Errorf("%+v: want %d without its cause", p, c.want)
			}
			if after := w.Header().Get("Retry-After"); (after != "") != (c.want != 500) {
				t.Errorf("Retry-After %q", after)
			}
		})
	}
	t.Run("bodies at once", func(t *testing.T) {
		api, in := newServer(t, 0)
		in.hold, in.started = make(chan struct{}), make(chan struct{})
		codes := make(chan int, 16)
		var wg sync.WaitGroup
		for n := range 16 {
			wg.Go(func() {
				codes <- post(t, api, wire.RecordsPath, batch(t, build(n)), "Content-Type", wire.ContentType()).Code
			})
			<-in.started
		}
		w := post(t, api, wire.RecordsPath, batch(t, build(20)), "Content-Type", wire.ContentType())
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Errorf("%d, Retry-After %q: want 429 at once", w.Code, w.Header().Get("Retry-After"))
		}
		for range 100 {
			if w := post(t, api, wire.HeartbeatPath, []byte(`{"agent":"a","machine":"m","interval_seconds":5}`)); w.Code != http.StatusNoContent {
				t.Fatalf("a heartbeat meanwhile: %d: want 204: batches have no room of its", w.Code)
			}
		}
		close(in.hold)
		wg.Wait()
		for range 16 {
			if c := <-codes; c != http.StatusOK {
				t.Errorf("%d: want 200", c)
			}
		}
	})
}

// A client that breaks off leaves nothing, and nobody is told of it.
func TestIngest_brokenOff(t *testing.T) {
	reported := 0
	api, in := newServer(t, 0, func(o *httpapi.Options) { o.Report = func(string, error) { reported++ } })
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, wire.RecordsPath, io.MultiReader(bytes.NewReader(batch(t, build(0))), broken{}))
	r.Header.Set("Content-Type", wire.ContentType())
	cancel()
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	if w.Code != http.StatusRequestTimeout || len(in.agents) > 0 || reported > 0 {
		t.Errorf("%d, %d taken, %d reported: want 408 and nothing else", w.Code, len(in.agents), reported)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
