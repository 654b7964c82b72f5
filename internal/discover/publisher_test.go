package discover_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/discover"
	"github.com/cimeter/cimeter/internal/discover/targets"
	"github.com/cimeter/cimeter/internal/tally"
)

type file struct {
	mu      sync.Mutex
	groups  []targets.Group
	writes  int
	removed bool
	err     error
}

func (f *file) Write(groups []targets.Group) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	if f.err == nil {
		f.groups = groups
	}
	return f.err
}
func (f *file) Remove() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removed = true
	return f.err
}
func (f *file) Path() string { return "targets.json" }

func (f *file) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// state is how many groups there are, after how many writes, and whether it was removed.
func (f *file) state() (groups, writes int, removed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.groups), f.writes, f.removed
}

func TestPublisher(t *testing.T) {
	for _, leave := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var ready atomic.Bool
			var list atomic.Pointer[[]targets.Group]
			list.Store(&[]targets.Group{{Targets: []string{"a:1"}}})
			f, log := &file{}, &lines{}
			counts := tally.New(tally.Options{Budget: 1000})
			p := discover.NewPublisher(discover.PublisherOptions{
				File: f, List: func() []targets.Group { return *list.Load() }, Ready: ready.Load, Leave: leave, Tally: counts,
			}, slog.New(slog.NewTextHandler(log, nil)))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- p.Run(ctx) }()
			synctest.Wait()
			if _, writes, _ := f.state(); writes != 0 {
				t.Fatal("written before it is ready")
			}
			ready.Store(true)
			wait(5 * time.Second)
			if groups, _, _ := f.state(); groups != 1 {
				t.Fatalf("%d groups at the start", groups)
			}
			list.Store(new([]targets.Group))
			wait(5 * time.Second)
			if groups, writes, _ := f.state(); groups != 0 || writes != 2 {
				t.Errorf("%d groups after %d writes: want it empty", groups, writes)
			}
			f.fail(errors.New("disk full"))
			list.Store(&[]targets.Group{{Targets: []string{"b:1"}}})
			wait(time.Minute)
			if n := read(counts.Value(catalog.DiscoveryFailures, "file")); n != 12 || log.count("disk full") != 1 {
				t.Errorf("%g failures, told %d times: want 12 and once", n, log.count("disk full"))
			}
			f.fail(nil)
			wait(5 * time.Second)
			if groups, _, _ := f.state(); groups != 1 || log.count("written again") != 1 {
				t.Errorf("%d groups: want it written when the disk has room", groups)
			}
			cancel()
			err := <-ended
			if _, _, removed := f.state(); err != nil || removed != leave {
				t.Errorf("%v, removed: %t, want %t", err, removed, leave)
			}
		})
	}
}

func read(v *tally.Value) float64 {
	f, _ := v.Get()
	return f
}
