package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/push"
	"github.com/cimeter/cimeter/internal/server"
	"github.com/cimeter/cimeter/internal/spool"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/tally"
)

// slow is a store that takes its time for a commit, and keeps the order in which
// what each agent sent came.
type slow struct {
	memory
	order map[string][]string // keys of each agent, as they were first stored
}

func (s *slow) Put(ctx context.Context, batch []store.Put) (store.PutResult, error) {
	<-time.After(100 * time.Millisecond)
	result, err := s.memory.Put(ctx, batch)
	for i, fresh := range result.Fresh {
		if p := &batch[i]; fresh {
			s.order[p.Agent] = append(s.order[p.Agent], p.Record.Key)
		}
	}
	return result, err
}

// inProcess sends requests to a handler; while it is away nothing comes through,
// and now and then an answer is lost on its way.
type inProcess struct {
	h    http.Handler
	away atomic.Bool
	lost atomic.Int64

	mu     sync.Mutex
	came   map[int64]int  // requests in each second
	busy   map[string]int // answers that asked to come again, by how long after
	random *rand.Rand
}

// RoundTrip implements http.RoundTripper.
func (p *inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.away.Load() {
		return nil, fmt.Errorf("connection refused")
	}
	w := httptest.NewRecorder()
	p.mu.Lock()
	p.came[time.Now().Unix()]++
	lose := p.random.IntN(20) == 0
	p.mu.Unlock()
	p.h.ServeHTTP(w, r)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case w.Code == http.StatusTooManyRequests, w.Code == http.StatusServiceUnavailable:
		p.busy[w.Header().Get("Retry-After")]++
	case lose:
		p.lost.Add(1)
		return nil, fmt.Errorf("connection reset")
	}
	return w.Result(), nil
}

// A server comes back after an hour, and 2,000 agents want it at once, each with
// records of the hour. It turns away what it has no room for, and tells when to come
// again; nobody comes in step with the others, all are served within two minutes, and
// what each sent is there once, in its order, though answers are lost (F19, F21).
func TestServer_thunderingReturn(t *testing.T) {
	const agents, each = 2000, 3
	base, err := os.MkdirTemp("/dev/shm", "crowd") // six thousand syncs are not what is tested
	if err != nil {
		base = t.TempDir()
	}
	defer os.RemoveAll(base)
	random := seeded(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		kept := &slow{order: map[string][]string{}}
		table := tally.New(tally.Options{})
		role := server.New(server.Options{Store: kept, Tally: table}, slog.New(slog.DiscardHandler))
		way := &inProcess{h: httpapi.New(httpapi.Options{Ingest: role}), came: map[int64]int{}, busy: map[string]int{}, random: random}
		way.away.Store(true)
		var running sync.WaitGroup
		running.Go(func() { role.Run(ctx) })
		away := time.Now()
		var queues []*spool.Spool
		want := map[string][]string{}
		for i := range agents {
			queue, err := spool.Open(spool.Options{Dir: filepath.Join(base, fmt.Sprint(i))})
			if err != nil {
				t.Fatal(err)
			}
			defer queue.Close()
			queues = append(queues, queue)
			sender, err := push.NewSender(push.SenderOptions{URL: "http://server.example.com", Transport: way, Agent: queue.ID()})
			if err != nil {
				t.Fatal(err)
			}
			p := push.New(push.Options{Server: sender, Spool: queue, Tally: tally.New(tally.Options{}), Machine: "m", Heartbeat: 3 * time.Hour}, slog.New(slog.DiscardHandler))
			ends := make([]time.Duration, each) // of its builds, most in the last minutes: each try of each agent is a real one
			for n := range ends {
				ends[n] = time.Hour - time.Duration(random.Int64N(int64(2*time.Minute)))
				if i%100 == 0 && n == 0 {
					ends[n] = time.Duration(random.Int64N(int64(time.Hour)))
				}
				want[queue.ID()] = append(want[queue.ID()], key(i*each+n))
			}
			slices.Sort(ends)
			records := p.Before(nowhere{})
			running.Go(func() {
				for n, end := range ends {
					time.Sleep(end - time.Since(away))
					if err := records.Put(record(i*each + n)); err != nil {
						t.Error(err)
					}
				}
			})
			running.Go(func() { p.Run(ctx) })
		}
		time.Sleep(time.Hour - time.Since(away))
		synctest.Wait()
		way.away.Store(false)
		back := time.Now()
		var last time.Duration
		for waiting := agents * each; waiting > 0; {
			time.Sleep(time.Second)
			synctest.Wait()
			waiting = 0
			for _, q := range queues {
				waiting += q.Stats().Records
			}
			if last = time.Since(back); last > 5*time.Minute {
				t.Fatalf("%d records wait five minutes after the server's return", waiting)
			}
		}
		turned, most := 0, 0
		for _, n := range way.busy {
			turned += n
		}
		for _, n := range way.came {
			most = max(most, n)
		}
		if last > 2*time.Minute || turned == 0 || len(way.busy) < 3 || way.busy[""] > 0 || most > agents/4 || way.lost.Load() == 0 {
			t.Errorf("the last was served after %s, %v were turned away until so many seconds later, at most %d came in a second, %d answers were lost: want all within two minutes, spread", last, way.busy, most, way.lost.Load())
		}
		if len(kept.rows) != agents*each || !maps.EqualFunc(kept.order, want, slices.Equal) {
			t.Errorf("%d rows of %d agents: want %d, those of each agent once and in its order", len(kept.rows), len(kept.order), agents*each)
		}
		t.Logf("%d agents served within %s, %d requests turned away, at most %d came in a second, %d answers lost, %d commits", agents, last, turned, most, way.lost.Load(), len(kept.commits))
		cancel()
		running.Wait()
	})
}
