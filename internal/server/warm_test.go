package server_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter/internal/server"
	"github.com/cimeter/cimeter/internal/tally"
)

// warmer is a store that counts how often it was asked to add up.
type warmer struct {
	*memory
	mu    sync.Mutex
	asked int
}

func (w *warmer) Warm(context.Context, time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	return nil
}

// Sums are there before the first page asks, and again when builds came; a
// server that nobody sends to does not read its store for nobody.
func TestServer_warm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &warmer{memory: &memory{}}
		s := server.New(server.Options{Store: w, Tally: tally.New(tally.Options{})}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		count := func() int {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.asked
		}
		if n := count(); n != 1 {
			t.Errorf("asked %d times at the start: want once", n)
		}
		time.Sleep(10 * time.Minute)
		if n := count(); n != 1 {
			t.Errorf("asked %d times though nothing came", n)
		}
		if _, err := s.Put(ctx, "a", records(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		if n := count(); n != 2 {
			t.Errorf("asked %d times: want again when a build came, once", n)
		}
		cancel()
		<-done
	})
}
