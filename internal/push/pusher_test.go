package push_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/push"
	"github.com/cimeter/cimeter/internal/spool"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/wire"
)

func record(n int) *cimeter.Record {
	at := time.Date(2026, 11, 30, 12, 0, n, 0, time.UTC)
	r := &cimeter.Record{Schema: cimeter.RecordSchema, StartedAt: at.Add(-time.Minute), EndedAt: at, Complete: true}
	r.Key, r.CI = fmt.Sprintf("gitlab/x/%d", n), "gitlab"
	r.Usage.WallSeconds = 60
	return r
}

// standIn is a server that speaks the protocol, in the same goroutine.
type standIn struct {
	mu       sync.Mutex
	received []string // keys in order of receipt, each time
	stored   map[string]bool
	beats    []wire.Heartbeat
	tries    []time.Time
	tokens   []string
	// answer says what to do with a batch; nil stores it.
	answer func(w http.ResponseWriter, items []wire.Item) bool
	down   error
}

// RoundTrip implements http.RoundTripper.
func (s *standIn) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path == wire.RecordsPath {
		s.tries = append(s.tries, time.Now())
		s.tokens = append(s.tokens, r.Header.Get("Authorization"))
	}
	if s.down != nil {
		return nil, s.down
	}
	w := httptest.NewRecorder()
	s.serve(w, r)
	return w.Result(), nil
}

func (s *standIn) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == wire.HeartbeatPath {
		h, err := wire.DecodeHeartbeat(r.Body, r.Header.Get("Content-Encoding"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.beats = append(s.beats, h)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	items, err := wire.DecodeBatch(r.Body, r.Header.Get("Content-Encoding"))
	if err == nil {
		err = wire.CheckContentType(r.Header.Get("Content-Type"))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.answer != nil && s.answer(w, items) {
		return
	}
	var a wire.Answer
	for _, it := range items {
		res := wire.Result{Key: it.Key, Status: wire.Stored}
		if s.stored[it.Key] {
			res.Status = wire.Duplicate
		}
		if s.stored == nil {
			s.stored = map[string]bool{}
		}
		s.stored[it.Key] = true
		s.received = append(s.received, it.Key)
		a.Results = append(a.Results, res)
	}
	json.NewEncoder(w).Encode(a)
}

func (s *standIn) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func refuse(status int, header ...string) func(http.ResponseWriter, []wire.Item) bool {
	return func(w http.ResponseWriter, _ []wire.Item) bool {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"detail":"because"}`)
		return true
	}
}

// fake keeps the records that come behind the spool.
type fake struct {
	push.Records
	put []string
	err error
}

func (f *fake) Put(r *cimeter.Record) error {
	if f.err != nil {
		return f.err
	}
	f.put = append(f.put, r.Key)
	return nil
}

type rig struct {
	*push.Pusher
	server  *standIn
	spool   *spool.Spool
	table   *tally.Table
	records push.Records
	behind  *fake
	running []wire.Running
	log     *bytes.Buffer
	token   func() (string, error)
}

// start runs a pusher until the test's end, in a bubble of synctest.
func start(t *testing.T, o spool.Options) *rig {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	sp, err := spool.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{server: &standIn{}, spool: sp, table: tally.New(tally.Options{}), behind: &fake{}, running: []wire.Running{{Key: "gitlab/x/9"}}, log: &bytes.Buffer{}, token: func() (string, error) { return "cmt_right", nil }}
	sender, err := push.NewSender(push.SenderOptions{URL: "http://server.example.com/", Transport: r.server, Agent: sp.ID(),
		Token: func() (string, error) {
			r.server.mu.Lock()
			defer r.server.mu.Unlock()
			return r.token()
		}})
	if err != nil {
		t.Fatal(err)
	}
	r.Pusher = push.New(push.Options{Server: sender, Spool: sp, Tally: r.table, Machine: "ci-7", Version: "test",
		Running: func() []wire.Running {
			r.server.mu.Lock()
			defer r.server.mu.Unlock()
			return r.running
		}}, slog.New(slog.NewTextHandler(r.log, nil)))
	r.records = r.Before(r.behind)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		sp.Close()
	})
	return r
}

func (r *rig) put(t *testing.T, ns ...int) {
	t.Helper()
	for _, n := range ns {
		if err := r.records.Put(record(n)); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *rig) value(name string, labels ...string) float64 {
	v, _ := r.table.Value(name, labels...).Get()
	return v
}

func keys(ns ...int) (ks []string) {
	for _, n := range ns {
		ks = append(ks, record(n).Key)
	}
	return ks
}

// pass lets the bubble's clock run.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestPusher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, spool.Options{})
		r.put(t, 1, 2, 3)
		pass(time.Second)
		if !slices.Equal(r.server.received, keys(1, 2, 3)) || !slices.Equal(r.behind.put, keys(1, 2, 3)) {
			t.Errorf("server has %v, the directory %v: want all, in order", r.server.received, r.behind.put)
		}
		if st := r.spool.Stats(); st.Records != 0 || r.value(catalog.AgentPushed, "stored") != 3 || r.value(catalog.AgentSpoolRecords) != 0 {
			t.Errorf("%+v: want an empty spool, and three counted", st)
		}
		if r.server.tokens[0] != "Bearer cmt_right" || r.Ready() != nil {
			t.Errorf("%v, %v", r.server.tokens, r.Ready())
		}
		pass(time.Minute)
		if n := len(r.server.beats); n < 7 || n > 14 {
			t.Errorf("%d heartbeats in a minute: want one each 5 to 7.5 s", n)
		}
		if h := r.server.beats[0]; h.Agent != r.spool.ID() || h.Machine != "ci-7" || len(h.Running) != 1 || h.Spool == nil {
			t.Errorf("%+v", h)
		}
	})
}

// More builds than a server takes in a heartbeat are cut, not refused.
func TestPusher_manyRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, spool.Options{})
		r.server.set(func() {
			r.running = nil
			for n := range wire.MaxRunning + 5 {
				r.running = append(r.running, wire.Running{Key: record(n).Key})
			}
		})
		pass(10 * time.Second)
		r.server.set(func() {
			if n := len(r.server.beats); n == 0 || len(r.server.beats[n-1].Running) != wire.MaxRunning {
				t.Errorf("%d heartbeats: want the last with %d builds", n, wire.MaxRunning)
			}
		})
	})
}

// After a success a failure is the first again: tried soon.
func TestPusher_delayBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, spool.Options{})
		down := func(err error) { r.server.set(func() { r.server.down = err }) }
		down(errors.New("connection refused"))
		r.put(t, 1)
		pass(10 * time.Minute)
		down(nil)
		pass(time.Minute)
		down(errors.New("connection refused"))
		r.put(t, 2)
		pass(time.Millisecond)
		down(nil)
		pass(2 * time.Second)
		if !slices.Equal(r.server.received, keys(1, 2)) {
			t.Errorf("server has %v: want both, the second within a second", r.server.received)
		}
	})
}

// An hour away at ten builds a minute, then back: all are there once, in order
// of receipt, within a minute (F19).
func TestPusher_serverAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, spool.Options{})
		r.server.set(func() { r.server.down = errors.New("connection refused") })
		want := []string{}
		for n := range 600 {
			r.put(t, n)
			want = append(want, record(n).Key)
			pass(6 * time.Second)
		}
		if st := r.spool.Stats(); st.Records != 600 || r.value(catalog.AgentSpoolRecords) != 600 || r.Ready() != nil {
			t.Errorf("%+v, %v: want all to wait, and the agent ready", st, r.Ready())
		}
		if n := len(r.server.tries); n > 300 {
			t.Errorf("%d tries in an hour: want the delay to grow", n)
		}
		r.server.set(func() { r.server.down = nil })
		pass(time.Minute)
		if !slices.Equal(r.server.received, want) {
			t.Errorf("%d records there: want 600 once, in order", len(r.server.received))
		}
		if n := strings.Count(r.log.String(), "level=ERROR"); n != 0 {
			t.Errorf("%d errors: want none: nothing is lost\n%s", n, r.log)
		}
	})
}

// The spool's bound is hit: the oldest are dropped, counted exactly, and told
// of once (F20).
func TestPusher_bound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, spool.Options{MaxBytes: 10_000})
		r.server.set(func() { r.server.down = errors.New("connection refused") })
		for n := range 200 {
			r.put(t, n)
		}
		kept := r.spool.Stats().Records
		r.server.set(func() { r.server.down = nil })
		pass(time.Minute)
		if len(r.server.received) != kept || r.server.received[kept-1] != record(199).Key || r.value(catalog.AgentDropped, "spool") != float64(200-kept) {
			t.Errorf("%d received, %g dropped: want the newest %d of 200, the others counted", len(r.server.received), r.value(catalog.AgentDropped, "spool"), kept)
		}
		if n := strings.Count(r.log.String(), "spool is full"); n != 1 {
			t.Errorf("told %d times: want once\n%s", n, r.log)
		}
		if len(r.behind.put) != 200 {
			t.Errorf("%d in the directory: want all", len(r.behind.put))
		}
	})
}

// One record that the server will never take is set aside and the others flow,
// however it says so (F26).
func TestPusher_poison(t *testing.T) {
	poisoned := func(items []wire.Item) bool {
		return slices.ContainsFunc(items, func(it wire.Item) bool { return it.Key == record(2).Key })
	}
	for name, answer := range map[string]func(http.ResponseWriter, []wire.Item) bool{
		"413": func(w http.ResponseWriter, items []wire.Item) bool {
			return poisoned(items) && refuse(http.StatusRequestEntityTooLarge)(w, items)
		},
		"400": func(w http.ResponseWriter, items []wire.Item) bool {
			return poisoned(items) && refuse(http.StatusBadRequest)(w, items)
		},
		"a result": func(w http.ResponseWriter, items []wire.Item) bool {
			if !poisoned(items) {
				return false
			}
			var a wire.Answer
			for _, it := range items {
				res := wire.Result{Key: it.Key, Status: wire.Stored}
				if it.Key == record(2).Key {
					res.Status, res.Reason = wire.Refused, "because"
				}
				a.Results = append(a.Results, res)
			}
			json.NewEncoder(w).Encode(a)
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, spool.Options{})
				r.server.set(func() { r.server.answer = answer })
				r.put(t, 0, 1, 2, 3, 4)
				pass(5 * time.Minute)
				if st := r.spool.Stats(); st.Records != 0 || st.Refused != 1 || r.value(catalog.AgentPushed, "refused") != 1 {
					t.Errorf("%+v: want one set aside, the others sent", st)
				}
				if name != "a result" && !slices.Equal(slices.Sorted(slices.Values(r.server.received)), keys(0, 1, 3, 4)) {
					t.Errorf("server has %v", r.server.received)
				}
				if !strings.Contains(r.log.String(), "because") || !strings.Contains(r.log.String(), record(2).Key) {
					t.Errorf("log does not tell which and why:\n%s", r.log)
				}
			})
		})
	}
}

// What the server has already, since its answer was lost, is done with.
func TestPusher_duplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, spool.Options{})
		tries := 0
		r.server.set(func() {
			r.server.stored = map[string]bool{record(1).Key: true}
			r.server.answer = func(w http.ResponseWriter, items []wire.Item) bool {
				tries++ // one that is sent for ever is not answered for ever
				return tries > 10 && refuse(http.StatusServiceUnavailable)(w, items)
			}
		})
		r.put(t, 1, 2)
		pass(time.Minute)
		if st := r.spool.Stats(); st.Records != 0 || r.value(catalog.AgentPushed, "duplicate") != 1 || r.value(catalog.AgentPushed, "stored") != 1 || len(r.server.received) != 2 {
			t.Errorf("%+v, server was sent %v: want each once and an empty spool", st, r.server.received)
		}
	})
}

// A record at which the server breaks is neither dropped nor in the way.
func TestPusher_serverBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, spool.Options{})
		r.server.set(func() {
			r.server.answer = func(w http.ResponseWriter, items []wire.Item) bool {
				return slices.ContainsFunc(items, func(it wire.Item) bool { return it.Key == record(0).Key }) && refuse(http.StatusInternalServerError)(w, items)
			}
		})
		r.put(t, 0, 1, 2)
		pass(5 * time.Minute)
		if st := r.spool.Stats(); st.Records != 1 || st.Refused != 0 || len(r.server.received) != 2 {
			t.Errorf("%+v, server has %v: want one to wait, the others sent", st, r.server.received)
		}
		r.server.set(func() { r.server.answer = nil })
		pass(5 * time.Minute)
		if st := r.spool.Stats(); st.Records != 0 || len(r.server.received) != 3 {
			t.Errorf("%+v, server has %v: want all", st, r.server.received)
		}
	})
}

// A wrong token: kept, tried slowly, named; then the right one (F25).
func TestPusher_token(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, spool.Options{})
				r.server.set(func() { r.server.answer = refuse(status) })
				r.put(t, 1, 2)
				pass(10 * time.Minute)
				if n := len(r.server.tries); n < 5 || n > 10 {
					t.Errorf("%d tries in ten minutes: want one each 60 to 90 s", n)
				}
				if err := r.Ready(); err == nil || !strings.Contains(err.Error(), fmt.Sprint(status)) || !strings.Contains(err.Error(), "because") {
					t.Errorf("ready: %v: want the status and the server's words", err)
				}
				if strings.Contains(r.log.String()+r.Ready().Error(), "cmt_") {
					t.Error("the token is told")
				}
				r.server.set(func() { r.server.answer = nil })
				pass(2 * time.Minute)
				if r.Ready() != nil || !slices.Equal(r.server.received, keys(1, 2)) || r.spool.Stats().Refused != 0 {
					t.Errorf("ready: %v, server has %v: want all", r.Ready(), r.server.received)
				}
			})
		})
	}
}

// A token file that cannot be read is named; when it can be, all is sent.
func TestPusher_tokenFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, spool.Options{})
		broken := errors.New("read secret: open /etc/token: permission denied")
		r.server.set(func() { r.token = func() (string, error) { return "", broken } })
		r.put(t, 1)
		pass(10 * time.Minute)
		if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "/etc/token") || len(r.server.tries) > 0 {
			t.Errorf("ready: %v, %d tries: want the file named, and nothing sent without a token", err, len(r.server.tries))
		}
		r.server.set(func() { broken = nil })
		pass(2 * time.Minute)
		if r.Ready() != nil || !slices.Equal(r.server.received, keys(1)) {
			t.Errorf("ready: %v, server has %v", r.Ready(), r.server.received)
		}
	})
}

// A server that is overloaded is left alone for as long as it asks.
func TestPusher_retryAfter(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, spool.Options{})
			r.server.set(func() { r.server.answer = refuse(status, "Retry-After", "40") })
			r.put(t, 1)
			pass(10 * time.Minute)
			for i, at := range r.server.tries[1:] {
				if d := at.Sub(r.server.tries[i]); d < 40*time.Second || d > 61*time.Second {
					t.Errorf("tried again after %s: want 40 to 60 s", d)
				}
			}
			if len(r.server.tries) < 9 || r.Ready() != nil {
				t.Errorf("%d tries, %v", len(r.server.tries), r.Ready())
			}
		})
	}
}

// When the directory fails after the spool took a record, the next try does not
// put it into the spool again.
func TestPusher_beforeRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, spool.Options{})
		r.behind.err = errors.New("disk full")
		for range 3 {
			if err := r.records.Put(record(1)); err == nil {
				t.Fatal("want the directory's error")
			}
			pass(time.Second)
		}
		r.behind.err = nil
		r.put(t, 1, 2)
		pass(time.Second)
		if !slices.Equal(r.server.received, keys(1, 2)) || !slices.Equal(r.behind.put, keys(1, 2)) {
			t.Errorf("server has %v, the directory %v: want each once", r.server.received, r.behind.put)
		}
	})
}

// A record that is too large to send does not keep the next ones.
func TestPusher_tooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, spool.Options{})
		large := record(1)
		large.Project = strings.Repeat("x", 2<<20)
		if err := r.records.Put(large); err != nil {
			t.Fatal(err)
		}
		r.put(t, 2)
		pass(time.Second)
		if !slices.Equal(r.server.received, keys(2)) || r.value(catalog.AgentDropped, "invalid") != 1 {
			t.Errorf("server has %v, %g counted", r.server.received, r.value(catalog.AgentDropped, "invalid"))
		}
	})
}
