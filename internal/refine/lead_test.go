package refine

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/tally"
)

// shared is a store of one build that several servers use.
type shared struct {
	mu   sync.Mutex
	kept map[string][]byte
}

func (s *shared) List(context.Context, store.Query) (store.Page, error) {
	at := time.Now().Add(-10 * time.Minute)
	return store.Page{Records: []*cimeter.Record{{EndedAt: at, Build: cimeter.Build{Key: "gitlab/h/1", CI: "gitlab", Server: "h", Project: "group/app"}, Stages: []cimeter.Stage{{}}}}}, nil
}

func (s *shared) SectionsOf(context.Context, []string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept, nil
}

func (s *shared) PutSections(_ context.Context, all []store.Sections) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range all {
		s.kept[one.Key] = one.JSON
	}
	return nil
}

// lock is one lock, of which one holds.
type lock struct {
	turn chan struct{}
	lost chan struct{} // closed: whoever holds has lost it
}

func (l lock) Lead(ctx context.Context, _ string) (<-chan struct{}, func(), error) {
	select {
	case l.turn <- struct{}{}:
		return l.lost, func() { <-l.turn }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// Of two servers on one store one reads; when it ends the other goes on, and reads
// nothing again.
func TestRun_oneReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, l := &shared{kept: map[string][]byte{}}, lock{make(chan struct{}, 1), make(chan struct{})}
		readers := [2]*logs{{}, {}}
		var stops [2]context.CancelFunc
		var done sync.WaitGroup
		for i := range 2 {
			f := New(Options{Store: kept, Tally: tally.New(tally.Options{}), Leader: l,
				Servers: []Server{{Name: "g", CI: "gitlab", Host: "h", Reader: readers[i], Wanted: func(string) bool { return true }}}}, slog.New(slog.DiscardHandler))
			var ctx context.Context
			ctx, stops[i] = context.WithCancel(t.Context())
			done.Go(func() { _ = f.Run(ctx) })
			time.Sleep(time.Minute)
		}
		if a, b := len(readers[0].read), len(readers[1].read); a != 1 || b != 0 {
			t.Errorf("%d and %d logs are read: want the leader's alone", a, b)
		}
		stops[0]()
		time.Sleep(time.Minute)
		if len(l.turn) != 1 || len(readers[1].read) != 0 {
			t.Errorf("nobody took over, or the log was read again: %d", len(readers[1].read))
		}
		stops[1]()
		done.Wait()
		if len(l.turn) != 0 {
			t.Error("the lock is held yet")
		}
	})
}
