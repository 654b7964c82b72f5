package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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

// slow is a store that takes its time for a commit.
type slow struct{ memory }

func (s *slow) Put(ctx context.Context, batch []store.Put) (store.PutResult, error) {
	<-time.After(5 * time.Second)
	return s.memory.Put(ctx, batch)
}

// inProcess sends requests to a handler; while it is away nothing comes through.
type inProcess struct {
	h    http.Handler
	away atomic.Bool
	busy atomic.Int64 // answers that asked to come again
}

// RoundTrip implements http.RoundTripper.
func (p *inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.away.Load() {
		return nil, fmt.Errorf("connection refused")
	}
	w := httptest.NewRecorder()
	p.h.ServeHTTP(w, r)
	if w.Code == http.StatusTooManyRequests {
		p.busy.Add(1)
	}
	return w.Result(), nil
}

// When a server comes back all agents want it at once: it turns away what it has
// no room for, and everybody is served within minutes, though a commit takes seconds (F21).
func TestServer_thunderingReturn(t *testing.T) {
	const agents = 120
	base := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		kept := &slow{}
		role := server.New(server.Options{Store: kept, Tally: tally.New(tally.Options{})}, slog.New(slog.DiscardHandler))
		way := &inProcess{h: httpapi.New(httpapi.Options{Ingest: role})}
		way.away.Store(true)
		var running sync.WaitGroup
		running.Go(func() { role.Run(ctx) })
		var queues []*spool.Spool
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
			p := push.New(push.Options{Server: sender, Spool: queue, Tally: tally.New(tally.Options{}), Machine: "m", Heartbeat: time.Hour}, slog.New(slog.DiscardHandler))
			if err := p.Before(nowhere{}).Put(record(i)); err != nil {
				t.Fatal(err)
			}
			running.Go(func() { p.Run(ctx) })
		}
		<-time.After(10 * time.Minute)
		way.away.Store(false)
		back := time.Now()
		var last time.Duration
		for waiting := agents; waiting > 0; {
			<-time.After(time.Second)
			synctest.Wait()
			waiting = 0
			for _, q := range queues {
				waiting += q.Stats().Records
			}
			if last = time.Since(back); last > 5*time.Minute {
				t.Fatalf("%d agents are not served five minutes after the server's return", waiting)
			}
		}
		if last > 3*time.Minute || way.busy.Load() == 0 || len(kept.rows) != agents {
			t.Errorf("the last was served after %s, %d rows: want three minutes, and %d; %d were turned away", last, len(kept.rows), agents, way.busy.Load())
		}
		t.Logf("%d agents served within %s, %d answers asked to come again, %d commits", agents, last, way.busy.Load(), len(kept.commits))
		cancel()
		running.Wait()
	})
}
