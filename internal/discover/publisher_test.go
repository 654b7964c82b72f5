package discover_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/discover"
	"github.com/cimeter/cimeter/internal/discover/targets"
	"github.com/cimeter/cimeter/internal/tally"
)

type file struct {
	groups  []targets.Group
	writes  int
	removed bool
	err     error
}

func (f *file) Write(groups []targets.Group) error {
	f.writes++
	if f.err == nil {
		f.groups = groups
	}
	return f.err
}
func (f *file) Remove() error { f.removed = true; return f.err }
func (f *file) Path() string  { return "targets.json" }

func TestPublisher(t *testing.T) {
	for _, leave := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ready := false
			f, log, list := &file{}, &lines{}, []targets.Group{{Targets: []string{"a:1"}}}
			counts := tally.New(tally.Options{Budget: 1000})
			p := discover.NewPublisher(discover.PublisherOptions{
				File: f, List: func() []targets.Group { return list }, Ready: func() bool { return ready }, Leave: leave, Tally: counts,
			}, slog.New(slog.NewTextHandler(log, nil)))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- p.Run(ctx) }()
			synctest.Wait()
			if f.writes != 0 {
				t.Fatal("written before it is ready")
			}
			ready = true
			wait(5 * time.Second)
			if len(f.groups) != 1 {
				t.Fatalf("%v at the start", f.groups)
			}
			list = nil
			wait(5 * time.Second)
			if len(f.groups) != 0 || f.writes != 2 {
				t.Errorf("%v after %d writes: want it empty", f.groups, f.writes)
			}
			f.err = errors.New("disk full")
			list = []targets.Group{{Targets: []string{"b:1"}}}
			wait(time.Minute)
			if n := read(counts.Value(catalog.DiscoveryFailures, "file")); n != 12 || log.count("disk full") != 1 {
				t.Errorf("%g failures, told %d times: want 12 and once", n, log.count("disk full"))
			}
			f.err = nil
			wait(5 * time.Second)
			if len(f.groups) != 1 || log.count("written again") != 1 {
				t.Errorf("%v: want it written when the disk has room", f.groups)
			}
			cancel()
			if err := <-ended; err != nil || f.removed != leave {
				t.Errorf("%v, removed: %t, want %t", err, f.removed, leave)
			}
		})
	}
}

func read(v *tally.Value) float64 {
	f, _ := v.Get()
	return f
}
