package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/server"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/wire"
)

// memory is a store in memory.
type memory struct {
	mu      sync.Mutex
	rows    map[string]store.Put
	commits []int // sizes
	err     error
	hold    chan struct{} // not nil: Put waits for it
	poison  string        // a key that is never taken
}

func (m *memory) Put(ctx context.Context, batch []store.Put) (store.PutResult, error) {
	if m.hold != nil {
		select {
		case <-m.hold:
		case <-ctx.Done():
			return store.PutResult{}, ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return store.PutResult{}, m.err
	}
	if slices.ContainsFunc(batch, func(p store.Put) bool { return p.Record.Key == m.poison }) {
		return store.PutResult{}, fmt.Errorf("put: bad: %w", cimeter.ErrInvalid)
	}
	if m.rows == nil {
		m.rows = map[string]store.Put{}
	}
	m.commits = append(m.commits, len(batch))
	res := store.PutResult{Fresh: make([]bool, len(batch))}
	for i, p := range batch {
		if _, ok := m.rows[p.Record.Key]; ok {
			res.Duplicates++
			continue
		}
		m.rows[p.Record.Key] = p
		res.Stored++
		res.Fresh[i] = true
	}
	return res, nil
}

func (m *memory) Stats(context.Context) (store.Stats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return store.Stats{Builds: int64(len(m.rows)), Bytes: 1000 * int64(len(m.rows))}, m.err
}

type rig struct {
	*server.Server
	store *memory
	table *tally.Table
	log   *bytes.Buffer
	stop  func()
}

func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{store: &memory{}, table: tally.New(tally.Options{}), log: &bytes.Buffer{}}
	r.Server = server.New(server.Options{Store: r.store, Tally: r.table}, slog.New(slog.NewTextHandler(r.log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *rig) value(name string, labels ...string) float64 {
	v, _ := r.table.Value(name, labels...).Get()
	return v
}

func records(ns ...int) (rs []*cimeter.Record) {
	for _, n := range ns {
		rs = append(rs, record(n))
	}
	return rs
}

func statuses(results []wire.Result) (ss []wire.Status) {
	for _, r := range results {
		ss = append(ss, r.Status)
	}
	return ss
}

func TestServer_Put(t *testing.T) {
	r := start(t)
	before := time.Now()
	got, err := r.Put(t.Context(), "agent-1", records(1, 2))
	if err != nil || !slices.Equal(statuses(got), []wire.Status{wire.Stored, wire.Stored}) || got[1].Key != key(2) {
		t.Fatalf("%v, %v: want both stored", got, err)
	}
	if p := r.store.rows[key(1)]; p.Agent != "agent-1" || p.ReceivedAt.Before(before) || p.ReceivedAt.After(time.Now()) {
		t.Errorf("%+v: want who sent it, and when it came", p)
	}
	got, err = r.Put(t.Context(), strings.Repeat("x", 500), records(2, 3, 1))
	if err != nil || !slices.Equal(statuses(got), []wire.Status{wire.Duplicate, wire.Stored, wire.Duplicate}) {
		t.Errorf("%v, %v: want the third to be new", got, err)
	}
	if r.store.rows[key(3)].Agent != "" {
		t.Error("a forged agent's name is kept")
	}
	r.Refused(2)
	for status, want := range map[string]float64{"stored": 3, "duplicate": 2, "refused": 2} {
		if got := r.value(catalog.ServerRecords, status); got != want {
			t.Errorf("%s: %g counted: want %g", status, got, want)
		}
	}
	// The fleet's counters have each build once.
	b := r.table.Build(tally.BuildLabels{CI: "gitlab", Project: "group/app", Machine: "ci-7"})
	if n, _ := b.Count(0); n != 3 || b.Running() != 0 || b.Duration(0).Sum() != 180 {
		t.Errorf("%d builds, %d running, %g s: want 3, 0, 180", n, b.Running(), b.Duration(0).Sum())
	}
	st := r.table.Stage(tally.Labels{CI: "gitlab", Project: "group/app", Machine: "ci-7", Stage: "step_script"})
	if ns, _ := st.Counter(cimeter.CPUTotal); ns != 4_500_000_000 {
		t.Errorf("%d ns of CPU: want 4.5 s", ns)
	}
}

// A build that is counted elsewhere in this process is not counted again, and a forged
// number makes no counter wrap around.
func TestServer_Put_counts(t *testing.T) {
	m, table := &memory{}, tally.New(tally.Options{})
	s := server.New(server.Options{Store: m, Tally: table, Counted: func(r *cimeter.Record) bool { return r.Key == key(1) }}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	rs := records(1, 2, 3)
	rs[2].Stages[0].Usage.CPUSeconds.Total = cimeter.Some(1e12)
	if _, err := s.Put(t.Context(), "agent-1", rs); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n, _ := table.Build(tally.BuildLabels{CI: "gitlab", Project: "group/app", Machine: "ci-7"}).Count(0); n != 2 {
		t.Errorf("%d builds, want 2", n)
	}
	if ns, _ := table.Stage(tally.Labels{CI: "gitlab", Project: "group/app", Machine: "ci-7", Stage: "step_script"}).Counter(cimeter.CPUTotal); ns != 1_500_000_000 {
		t.Errorf("%d ns of CPU, want 1.5 s", ns)
	}
}

// A record that the store never takes is refused by itself; those of other
// requests in the same commit stand.
func TestServer_Put_poison(t *testing.T) {
	r := start(t)
	r.store.poison = key(2)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			got, err := r.Put(t.Context(), "", records(10+i))
			if err != nil || got[0].Status != wire.Stored {
				t.Errorf("%v, %v: want it stored", got, err)
			}
		})
	}
	got, err := r.Put(t.Context(), "", records(1, 2, 3))
	if err != nil || !slices.Equal(statuses(got), []wire.Status{wire.Stored, wire.Refused, wire.Stored}) || !strings.Contains(got[1].Reason, "bad") {
		t.Errorf("%v, %v: want the second refused with the reason", got, err)
	}
	wg.Wait()
	if len(r.store.rows) != 7 || r.Ready() != nil {
		t.Errorf("%d rows, %v: want 7", len(r.store.rows), r.Ready())
	}
}

// When the store takes nothing, nobody is told that it has something, and it
// shows; then it goes on.
func TestServer_Put_storeFails(t *testing.T) {
	r := start(t)
	r.store.mu.Lock()
	r.store.err = errors.New("disk full")
	r.store.mu.Unlock()
	if got, err := r.Put(t.Context(), "", records(1)); !errors.Is(err, cimeter.ErrUnavailable) || got != nil {
		t.Errorf("%v, %v: want unavailable", got, err)
	}
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "disk full") || r.value(catalog.ServerStoreFailures) != 1 {
		t.Errorf("ready: %v: want the store's error", err)
	}
	r.store.mu.Lock()
	r.store.err = nil
	r.store.mu.Unlock()
	if got, err := r.Put(t.Context(), "", records(1)); err != nil || got[0].Status != wire.Stored || r.Ready() != nil {
		t.Errorf("%v, %v, %v: want it stored", got, err, r.Ready())
	}
}

// Requests that wait are committed together, at most a batch at once; those over
// the bound are turned away at once; those whose client is gone are not committed.
func TestServer_Put_overload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.store.hold = make(chan struct{})
		gone, leave := context.WithCancel(t.Context())
		results := make(chan error, 100)
		put := func(ctx context.Context, n int) {
			_, err := r.Put(ctx, "", records(n))
			results <- err
		}
		go put(t.Context(), 0) // is being committed
		synctest.Wait()
		go put(gone, 1000)
		for n := range 62 {
			go put(t.Context(), 1+n)
		}
		synctest.Wait()
		leave()
		if _, err := r.Put(t.Context(), "", records(2000)); !errors.Is(err, httpapi.ErrBusy) {
			t.Errorf("%v: want busy", err)
		}
		if r.value(catalog.ServerQueue) != 64 || r.value(catalog.ServerRejected, "busy") != 1 {
			t.Errorf("%g wait, %g turned away: want 64 and 1", r.value(catalog.ServerQueue), r.value(catalog.ServerRejected, "busy"))
		}
		close(r.store.hold)
		failed := 0
		for range 64 {
			if err := <-results; errors.Is(err, context.Canceled) {
				failed++
			} else if err != nil {
				t.Error(err)
			}
		}
		if failed != 1 || len(r.store.rows) != 63 || r.store.rows[key(1000)].Record != nil {
			t.Errorf("%d failed, %d rows: want the one whose client is gone to fail", failed, len(r.store.rows))
		}
		if n := len(r.store.commits); n > 3 {
			t.Errorf("%d commits %v: want those that wait in one", n, r.store.commits)
		}
		if r.value(catalog.ServerQueue) != 0 {
			t.Errorf("%g wait: want none", r.value(catalog.ServerQueue))
		}
	})
}

// The server's end tells those that wait to come again.
func TestServer_Run_stops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.store.hold = make(chan struct{})
		results := make(chan error, 2)
		for n := range 2 {
			go func() {
				_, err := r.Put(t.Context(), "", records(n))
				results <- err
			}()
			synctest.Wait()
		}
		go r.stop()
		synctest.Wait()
		close(r.store.hold)
		committed := 0
		for range 2 {
			if err := <-results; err == nil {
				committed++
			} else if !errors.Is(err, cimeter.ErrUnavailable) {
				t.Errorf("%v: want unavailable", err)
			}
		}
		if len(r.store.rows) != committed || committed < 1 {
			t.Errorf("%d told, %d rows: want the same", committed, len(r.store.rows))
		}
		if _, err := r.Put(t.Context(), "", records(5)); !errors.Is(err, cimeter.ErrUnavailable) {
			t.Errorf("%v: want unavailable", err)
		}
	})
}

// The server tells what its store holds, and nothing when it cannot be told.
func TestServer_weight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		if _, err := r.Put(t.Context(), "", records(1, 2)); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if r.value(catalog.ServerStoreBuilds) != 2 || r.value(catalog.ServerStoreBytes) != 2000 {
			t.Errorf("%g builds, %g bytes: want 2 and 2000", r.value(catalog.ServerStoreBuilds), r.value(catalog.ServerStoreBytes))
		}
		r.store.mu.Lock()
		r.store.err = errors.New("gone")
		r.store.mu.Unlock()
		<-time.After(time.Minute)
		synctest.Wait()
		if _, known := r.table.Value(catalog.ServerStoreBytes).Get(); known {
			t.Error("a size is told though the store does not tell it")
		}
	})
}

func TestServer_Heartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		beat := func(agent, machine string, running int) {
			h := wire.Heartbeat{Agent: agent, Machine: machine, IntervalSeconds: 5}
			for n := range running {
				h.Running = append(h.Running, wire.Running{Key: key(n)})
			}
			r.Heartbeat(h)
		}
		beat("b", "ci-2", 3)
		beat("a", "ci-1", 1)
		beat("b", "ci-2", 2)
		got := r.Agents()
		if len(got) != 2 || got[0].Machine != "ci-1" || len(got[1].Running) != 2 || got[0].Away {
			t.Errorf("%+v: want two, by machine, as they said last", got)
		}
		beat("b", "ci-0", 2) // its machine has another name now, and then again
		if got := r.Agents(); len(got) != 2 || got[0].Agent != "b" || got[0].Machine != "ci-0" || got[1].Machine != "ci-1" {
			t.Errorf("%+v: want the order of the machines' new names", got)
		}
		beat("b", "ci-2", 2)
		<-time.After(6 * time.Second)
		if r.value(catalog.ServerAgents) != 2 || r.value(catalog.ServerRunning) != 3 || r.value(catalog.ServerHeartbeats) != 5 {
			t.Errorf("%g agents, %g builds", r.value(catalog.ServerAgents), r.value(catalog.ServerRunning))
		}
		<-time.After(time.Minute)
		beat("a", "ci-1", 1)
		<-time.After(6 * time.Second)
		if got := r.Agents(); got[0].Away || !got[1].Away || r.value(catalog.ServerAgents) != 1 || r.value(catalog.ServerRunning) != 1 {
			t.Errorf("%+v: want the second away, and its builds not counted", got)
		}
		<-time.After(25 * time.Hour)
		if got := r.Agents(); len(got) != 0 || r.value(catalog.ServerRunning) != 0 {
			t.Errorf("%+v: want them forgotten after a day", got)
		}
		for n := range 20_010 {
			beat(fmt.Sprint(n), "m", 0)
		}
		if len(r.Agents()) != 20_000 || r.value(catalog.ServerAgentsDropped) != 10 {
			t.Errorf("%d agents, %g dropped: want a bound", len(r.Agents()), r.value(catalog.ServerAgentsDropped))
		}
		// Builds that are told again and again take no more room than they are.
		for range 100 {
			beat("1", "m", 2000)
		}
		builds := 0
		for _, a := range r.Agents() {
			builds += len(a.Running)
		}
		if builds != 2000 {
			t.Errorf("%d builds, want 2000", builds)
		}
	})
}
