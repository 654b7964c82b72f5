package server_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter/internal/server"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/tally"
)

// keeper is a store of which several servers keep house.
type keeper struct {
	mu    sync.Mutex
	lead  chan struct{} // held by who leads
	asked []store.Retention
	more  int // runs that leave something over
	err   error
	lost  chan struct{}
}

func (k *keeper) Lead(ctx context.Context, _ string) (<-chan struct{}, func(), error) {
	select {
	case k.lead <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost = make(chan struct{})
	return k.lost, func() { <-k.lead }, nil
}

func (k *keeper) Retain(_ context.Context, r store.Retention) (store.Retained, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, r)
	if k.err != nil {
		return store.Retained{}, k.err
	}
	k.more--
	return store.Retained{Builds: 1, More: k.more >= 0}, nil
}

func (k *keeper) runs() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.asked)
}

func TestServer_retention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{lead: make(chan struct{}, 1), more: 5}
		ctx, cancel := context.WithCancel(t.Context())
		var servers sync.WaitGroup
		for range 2 { // on one store
			s := server.New(server.Options{Store: &memory{}, Tally: tally.New(tally.Options{}), Keeper: k,
				KeepBuilds: 24 * time.Hour, KeepTotals: 48 * time.Hour, MaxBytes: 1000}, slog.New(slog.DiscardHandler))
			servers.Go(func() { s.Run(ctx) })
		}
		began := time.Now()
		<-time.After(time.Minute)
		if n := k.runs(); n != 6 {
			t.Errorf("%d runs in a minute: want one, and five more for what was left over", n)
		}
		k.mu.Lock()
		first := k.asked[0]
		k.mu.Unlock()
		if !first.KeepFrom.Equal(began.Add(-24*time.Hour)) || !first.TotalsFrom.Equal(began.Add(-48*time.Hour)) || first.MaxBytes != 1000 {
			t.Errorf("%+v", first)
		}
		<-time.After(time.Hour)
		if n := k.runs(); n != 12 {
			t.Errorf("%d runs: want six more in an hour, by one of the two servers", n)
		}
		k.mu.Lock()
		close(k.lost) // the database ended the leader's session
		k.err = errors.New("disk full")
		k.mu.Unlock()
		<-time.After(time.Minute)
		if n := k.runs(); n != 13 {
			t.Errorf("%d runs: want the next leader to begin at once, and a failure to wait", n)
		}
		cancel()
		servers.Wait()
	})
}
