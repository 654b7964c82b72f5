package server_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/server"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/tally"
)

// stuck is a store that does not answer, whatever deadline it is given, while hangs
// is open.
type stuck struct {
	*memory
	hangs atomic.Pointer[chan struct{}]
}

func (s *stuck) wait() {
	if c := s.hangs.Load(); c != nil {
		<-*c
	}
}

func (s *stuck) Stats(ctx context.Context) (store.Stats, error) {
	s.wait()
	return s.memory.Stats(ctx)
}

func (s *stuck) Put(ctx context.Context, batch []store.Put) (store.PutResult, error) {
	s.wait()
	return s.memory.Put(ctx, batch)
}

// The server tells that it is alive while it works, also while its store answers with
// errors and while a disk hangs for a time, and no more when the store is stuck.
func TestServer_alive(t *testing.T) {
	for _, every := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := &stuck{memory: &memory{}}
			var told atomic.Int64
			o := server.Options{Store: s, Tally: tally.New(tally.Options{}), AliveEvery: every,
				Alive: func(time.Time) { told.Add(1) }}
			role := server.New(o, slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- role.Run(ctx) }()
			in := func(d time.Duration) int64 {
				synctest.Wait()
				before := told.Load()
				time.Sleep(d)
				synctest.Wait()
				return told.Load() - before
			}
			step := every
			if step == 0 {
				step = 5 * time.Second
			}
			perMinute := int64(time.Minute / step)
			check := func(what string, got, want int64) {
				t.Helper()
				if got < want-1 || got > want+1 {
					t.Errorf("every %v: %s: told %d times, want %d", every, what, got, want)
				}
			}
			check("while it works", in(time.Minute), perMinute)
			s.mu.Lock()
			s.err = cimeter.ErrUnavailable
			s.mu.Unlock()
			check("while the store refuses", in(5*time.Minute), 5*perMinute)
			hang := make(chan struct{})
			s.hangs.Store(&hang)
			check("in a hang's first two minutes", in(2*time.Minute), 2*perMinute)
			in(time.Minute) // when it was asked last before
			check("while the store hangs", in(10*time.Minute), 0)
			s.hangs.Store(nil)
			close(hang)
			check("when it answers again", in(time.Minute), perMinute)

			// A commit that hangs is no answer either.
			hang = make(chan struct{})
			s.hangs.Store(&hang)
			go role.Put(ctx, "a", records(1))
			in(3 * time.Minute)
			check("while a commit hangs", in(time.Minute), 0)
			s.hangs.Store(nil)
			close(hang)
			cancel()
			<-done
		})
	}
}
