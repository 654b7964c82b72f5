package discover_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/discover"
	"github.com/cimeter/cimeter/internal/discover/consul"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/wire"
)

// registry is a Consul that can be away and can forget.
type registry struct {
	mu       sync.Mutex
	services map[string]consul.Service
	passed   map[string]int
	err      error
	tries    int
	outward  string
}

func newRegistry() *registry {
	return &registry{services: map[string]consul.Service{}, passed: map[string]int{}}
}

func (r *registry) Register(_ context.Context, s consul.Service) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	if r.err == nil {
		r.services[s.ID] = s
	}
	return r.err
}

func (r *registry) Pass(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	if _, ok := r.services[id]; !ok && r.err == nil {
		return fmt.Errorf("pass %s: %w", id, cimeter.ErrNotFound)
	}
	r.passed[id]++
	return r.err
}

func (r *registry) Deregister(ctx context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r.err == nil {
		delete(r.services, id)
	}
	return r.err
}

func (r *registry) Outward(context.Context) (string, error) { return r.outward, nil }
func (r *registry) Address() string                         { return "http://consul:8500" }

func (r *registry) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.services))
}

func (r *registry) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

type lines struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.Builder.String(), s)
}

func options(r discover.Registry) discover.AnnouncerOptions {
	return discover.AnnouncerOptions{
		Machine: "ci 7", Version: "0.2.0", Pool: "large", Own: wire.Target{Job: "cimeter", Address: ":9808"},
		Registry: r, Service: "cimeter", Tags: []string{"linux"}, TTL: 30 * time.Second, DeregisterAfter: time.Minute,
		Tally: tally.New(tally.Options{Budget: 1000}),
	}
}

// start runs an announcer in the bubble; stop ends it and waits.
func start(t *testing.T, o discover.AnnouncerOptions) (a *discover.Announcer, log *lines, stop func()) {
	t.Helper()
	log = &lines{}
	a = discover.NewAnnouncer(o, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	synctest.Wait()
	return a, log, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}

func wait(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

func TestAnnouncer_keepsAliveAndLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		r.outward = "10.0.0.7"
		o := options(r)
		_, _, stop := start(t, o)
		const id = "cimeter-cimeter-ci-7-9808"
		s, ok := r.services[id]
		if !ok || s.Address != "10.0.0.7" || s.Port != 9808 || s.Name != "cimeter" || !slices.Equal(s.Tags, []string{"cimeter", "linux"}) {
			t.Fatalf("registered %+v", r.services)
		}
		want := map[string]string{"job": "cimeter", "machine": "ci 7", "pool": "large", "version": "0.2.0"}
		if !maps.Equal(s.Meta, want) {
			t.Errorf("meta %v: want %v", s.Meta, want)
		}
		wait(5 * time.Minute)
		if n := r.passed[id]; n < 29 || n > 31 {
			t.Errorf("%d signs of life in ten TTLs: want three a TTL", n)
		}
		if got := read(o.Tally.Value(catalog.DiscoveryTargets, "consul")); got != 1 {
			t.Errorf("%g targets told: want 1", got)
		}
		stop()
		if ids := r.ids(); len(ids) != 0 {
			t.Errorf("left %v behind", ids)
		}
	})
}

func TestAnnouncer_registryForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		_, _, stop := start(t, options(r))
		r.mu.Lock()
		clear(r.services)
		r.mu.Unlock()
		wait(10 * time.Second)
		if ids := r.ids(); len(ids) != 1 {
			t.Errorf("%v after a third of the TTL: want it registered with again", ids)
		}
		stop()
	})
}

// A registry that is away is tried ever more seldom, counted each time, told of
// once, and registered with when it is back.
func TestAnnouncer_registryAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		r.set(fmt.Errorf("dial: %w", cimeter.ErrUnavailable))
		o := options(r)
		_, log, stop := start(t, o)
		wait(time.Hour)
		failures := read(o.Tally.Value(catalog.DiscoveryFailures, "consul"))
		if int(failures) != r.tries || r.tries < 300 || r.tries > 800 {
			t.Errorf("%g failures counted of %d tries in an hour: want all, one each 5 to 10 s", failures, r.tries)
		}
		if n := log.count("not announced"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		r.set(nil)
		wait(10 * time.Second)
		if ids := r.ids(); len(ids) != 1 || log.count("registered again") != 1 {
			t.Errorf("%v, told %d times: want it registered and told", ids, log.count("registered again"))
		}
		stop()
	})
}

// A registry that hangs does not keep the agent from ending.
func TestAnnouncer_leaveIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hanging{newRegistry()}
		_, log, stop := start(t, options(r))
		began := time.Now()
		stop()
		if took := time.Since(began); took > 4*time.Second || log.count("not deregistered") != 1 {
			t.Errorf("leaving took %s, told %d times: want 3 s and a line", took, log.count("not deregistered"))
		}
	})
}

type hanging struct{ *registry }

func (hanging) Deregister(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// A neighbour is told while it is there.
func TestAnnouncer_neighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		there := false
		var failed error
		o := options(r)
		o.Neighbours = []discover.Neighbour{{
			Target: wire.Target{Job: "node_exporter", Address: ":9100"},
			Find: func(context.Context) (bool, error) {
				r.mu.Lock()
				defer r.mu.Unlock()
				return there, failed
			},
		}}
		a, log, stop := start(t, o)
		set := func(is bool, err error) {
			r.mu.Lock()
			there, failed = is, err
			r.mu.Unlock()
			wait(10 * time.Second)
		}
		if n := len(a.Targets().Targets); n != 1 {
			t.Errorf("%d targets: want the agent alone", n)
		}
		set(true, nil)
		want := []string{"cimeter-cimeter-ci-7-9808", "cimeter-node_exporter-ci-7-9100"}
		if ids := r.ids(); !slices.Equal(ids, want) || len(a.Targets().Targets) != 2 || r.services[want[1]].Name != "node-exporter" {
			t.Errorf("%v %v: want %v", ids, a.Targets(), want)
		}
		set(false, nil)
		if ids := r.ids(); !slices.Equal(ids, want[:1]) || len(a.Targets().Targets) != 1 {
			t.Errorf("%v %v: want it gone", ids, a.Targets())
		}
		set(false, errors.New("no such address"))
		set(false, errors.New("no such address"))
		if n := log.count("no such address"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		stop()
	})
}

// Without a registry the neighbours are looked for all the same: heartbeats
// tell them.
func TestAnnouncer_noRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(nil)
		o.Registry = nil
		o.Neighbours = []discover.Neighbour{{Target: wire.Target{Job: "cadvisor", Address: ":8080"}, Find: func(context.Context) (bool, error) { return true, nil }}}
		a, _, stop := start(t, o)
		if n := len(a.Targets().Targets); n != 2 {
			t.Errorf("%d targets: want 2", n)
		}
		stop()
	})
}
