package citest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

// Token is the token that a stand-in of a CI server wants, and that must stand in
// no error.
const Token = "geheim-0123456789abcdef"

// Poller is a client of a CI server.
type Poller interface {
	Poll(ctx context.Context) (queue.Report, error)
}

// fault is what goes wrong with one answer.
type fault struct {
	name   string
	answer func(w http.ResponseWriter, r *http.Request, good []byte)
	want   error // nil: any
	status int
	after  time.Duration
}

func faults() []fault {
	status := func(code int, header ...string) func(http.ResponseWriter, *http.Request, []byte) {
		return func(w http.ResponseWriter, r *http.Request, _ []byte) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			w.Write([]byte(`{"message":"no: ` + r.Header.Get("Authorization") + `"}`))
		}
	}
	text := func(s string) func(http.ResponseWriter, *http.Request, []byte) {
		return func(w http.ResponseWriter, _ *http.Request, _ []byte) { w.Write([]byte(s)) }
	}
	return []fault{
		{name: "401", answer: status(401), want: cimeter.ErrUnauthorized, status: 401},
		{name: "429 that says when", answer: status(429, "Retry-After", "17"), want: cimeter.ErrUnavailable, status: 429, after: 17 * time.Second},
		{name: "429 that does not", answer: status(429), want: cimeter.ErrUnavailable, status: 429},
		{name: "500", answer: status(500), want: cimeter.ErrUnavailable, status: 500},
		{name: "moved", answer: status(302, "Location", "http://127.0.0.1:1/login"), want: cimeter.ErrUnavailable, status: 302},
		{name: "page of a proxy", answer: text("<html><body>Sign in</body></html>"), want: cimeter.ErrInvalid},
		{name: "nothing", answer: text(""), want: cimeter.ErrInvalid},
		{name: "null", answer: text("null"), want: cimeter.ErrInvalid},
		{name: "another type", answer: text(`"x"`), want: cimeter.ErrInvalid},
		{name: "bytes", answer: text("\x00\xff\xfe{[}\x80"), want: cimeter.ErrInvalid},
		{name: "half, and looks whole", answer: func(w http.ResponseWriter, _ *http.Request, good []byte) { w.Write(good[:len(good)/2]) }, want: cimeter.ErrInvalid},
		{name: "half, and broken off", answer: func(w http.ResponseWriter, _ *http.Request, good []byte) {
			w.Header().Set("Content-Length", strconv.Itoa(len(good)))
			w.Write(good[:len(good)/2])
			panic(http.ErrAbortHandler)
		}},
		{name: "hangs up", answer: func(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) }},
	}
}

// Faults polls a server each of whose answers goes wrong in each way, one at a
// time, and wants an error that says what it was, without the token, and no report
// that could be taken for the server's state; and from the next poll, when all is well
// again, what a first one tells. Then it polls with clocks an hour off. client makes a
// new client.
func Faults(t *testing.T, good http.Handler, client func(t *testing.T, url string) Poller) {
	t.Helper()
	n := 0
	count := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n++; good.ServeHTTP(w, r) }))
	whole, err := client(t, count.URL).Poll(t.Context())
	count.Close()
	if err != nil {
		t.Fatalf("the server that all is well with: %v", err)
	}
	if n == 0 || whole.Requests != n {
		t.Errorf("poll made %d requests and says %d", n, whole.Requests)
	}
	for _, f := range faults() {
		for at := range n {
			t.Run(f.name+"/"+strconv.Itoa(at+1), func(t *testing.T) {
				var seen atomic.Int32
				var mended atomic.Bool
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if int(seen.Add(1)) <= at || mended.Load() { // all from there on: a transport may repeat what was cut off
						good.ServeHTTP(w, r)
						return
					}
					rec := httptest.NewRecorder()
					good.ServeHTTP(rec, r)
					f.answer(w, r, rec.Body.Bytes())
				}))
				defer s.Close()
				c := client(t, s.URL)
				r, err := c.Poll(t.Context())
				var source *queue.SourceError
				switch {
				case err == nil:
					t.Fatalf("no error and %d jobs, whole %v", len(r.Jobs), r.WholeJobs)
				case !errors.As(err, &source):
					t.Fatalf("%v: want a queue.SourceError", err)
				case len(r.Jobs)+len(r.Workers) > 0 || r.WholeJobs || r.WholeWorkers:
					t.Errorf("an error and a report of %d jobs", len(r.Jobs))
				case f.want != nil && !errors.Is(err, f.want):
					t.Errorf("%v: want one that is %v", err, f.want)
				case f.status != 0 && source.Status != f.status:
					t.Errorf("status %d: want %d", source.Status, f.status)
				case source.RetryAfter != f.after:
					t.Errorf("retry after %v: want %v", source.RetryAfter, f.after)
				case source.Requests != at+1:
					t.Errorf("says %d requests: want %d", source.Requests, at+1)
				case strings.Contains(err.Error(), Token) || len(err.Error()) > 400:
					t.Errorf("%v: holds the token, or what the server said", err)
				}
				mended.Store(true)
				if r, err = c.Poll(t.Context()); err != nil || !reflect.DeepEqual(r.Jobs, whole.Jobs) || !reflect.DeepEqual(r.Workers, whole.Workers) || r.WholeJobs != whole.WholeJobs {
					t.Errorf("when all is well again: %+v, %v: want what a first poll tells", r, err)
				}
			})
		}
	}
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		t.Run("clock "+off.String(), func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
				good.ServeHTTP(w, r)
			}))
			defer s.Close()
			r, err := client(t, s.URL).Poll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if d := r.Clock.Value - off; !r.Clock.Known || d.Abs() > 2*time.Minute {
				t.Errorf("clock %v: want %v", r.Clock, off)
			}
			for _, j := range r.Jobs {
				if j.QueueSeconds.Value < 0 {
					t.Errorf("%s: waited %v s", j.Key, j.QueueSeconds.Value)
				}
			}
			if len(r.Jobs) != len(whole.Jobs) {
				t.Errorf("%d jobs: want %d", len(r.Jobs), len(whole.Jobs))
			}
		})
	}
}

// Report compares what was told with a golden file: jobs by key, workers by id.
func Report(t testing.TB, file string, r queue.Report) {
	t.Helper()
	r.Clock, r.At = cimeter.Opt[time.Duration]{}, time.Time{}
	Golden(t, file, r)
}

// Sane fails a test whose webhook, whatever its bytes were, gave a report that
// cannot be: what fuzz tests of parsers call.
func Sane(t testing.TB, r queue.Report, err error) {
	t.Helper()
	if err != nil && (len(r.Jobs) > 0 || len(r.Workers) > 0) {
		t.Errorf("an error and a report: %v", err)
	}
	if r.WholeJobs || r.WholeWorkers {
		t.Error("a webhook says that it is the whole queue")
	}
	seen := map[string]bool{}
	for _, j := range r.Jobs {
		switch {
		case j.Key == "" || seen[j.Key]:
			t.Errorf("key %q: none, or twice", j.Key)
		case j.QueueSeconds.Value < 0:
			t.Errorf("%s waited %v s", j.Key, j.QueueSeconds.Value)
		case j.CI == "" || !strings.HasPrefix(j.Key, j.CI+"/"):
			t.Errorf("%s is of %q", j.Key, j.CI)
		}
		seen[j.Key] = true
	}
}
