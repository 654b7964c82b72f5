package server_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/server"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/wire"
)

// Servers of one store count a record once, whoever gets it again, and even
// after more others than anybody remembers.
func TestServer_severalCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := start(t), start(t)
		kept := a.store
		b.stop()
		b.table = tally.New(tally.Options{})
		b.Server = server.New(server.Options{Store: kept, Tally: b.table}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		synctest.Wait()
		if v := a.value(catalog.ServerStoreBuilds); v != 0 {
			t.Errorf("%g builds in an empty store", v)
		}
		put := func(r *rig, ns ...int) (fresh int) {
			results, err := r.Put(t.Context(), "x", records(ns...))
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range results {
				if got.Status == wire.Stored {
					fresh++
				}
			}
			return fresh
		}
		if n := put(a, 1, 2, 3); n != 3 {
			t.Errorf("%d fresh: want 3", n)
		}
		if v := a.value(catalog.ServerStoreBuilds); v != 3 {
			t.Errorf("%g builds are told right after the first: want 3", v)
		}
		if n := put(b, 2, 3, 4, 5); n != 2 {
			t.Errorf("%d fresh: want 2", n)
		}
		if n := put(a, 1, 4, 5, 6, 6); n != 1 {
			t.Errorf("%d fresh: want 1", n)
		}
		builds := func(r *rig) float64 {
			n := 0.0
			for _, x := range r.table.Builds() {
				for i := range 4 {
					count, _ := x.Count(i)
					n += float64(count)
				}
			}
			return n
		}
		if x, y := builds(a), builds(b); x != 4 || y != 2 {
			t.Errorf("counters tell %g and %g builds: want 4 and 2, each once", x, y)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if x, y := a.value(catalog.ServerStoreBuilds), b.value(catalog.ServerStoreBuilds); x != 6 || y != 6 {
			t.Errorf("%g and %g builds are told of one store: want 6", x, y)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
