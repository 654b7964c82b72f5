package discover

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/discover/consul"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/wire"
)

// Neighbour is an exporter of others that may run on the machine.
type Neighbour struct {
	Target wire.Target // as it is told when it is found
	Find   func(ctx context.Context) (bool, error)
}

// AnnouncerOptions are what NewAnnouncer needs. Machine, Own and Tally must be set.
type AnnouncerOptions struct {
	Machine, Version string
	Pool, Runner     string
	Own              wire.Target // the agent itself
	Neighbours       []Neighbour

	Registry Registry // nil: only neighbours are looked for, for Targets
	Service  string   // that the agent is registered as; neighbours by their own names
	Tags     []string
	// TTL and DeregisterAfter are as in consul.Service. The registry hears of a
	// service three times in a TTL.
	TTL, DeregisterAfter time.Duration

	Tally *tally.Table
}

// DefaultTTL is how long a registry waits for the next sign of life.
const DefaultTTL = 30 * time.Second

// Announcer tells of one machine. Make it with NewAnnouncer, run it once.
// Targets may be called by many goroutines at once.
type Announcer struct {
	o   AnnouncerOptions
	log *slog.Logger

	registered map[string]consul.Service // by id; Run's alone
	told       map[string]string         // reason that was logged, by id; Run's alone
	count      *tally.Value
	failures   *tally.Value

	mu    sync.Mutex
	found []wire.Target
}

// NewAnnouncer returns an announcer that does nothing yet.
func NewAnnouncer(o AnnouncerOptions, log *slog.Logger) *Announcer {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	a := &Announcer{o: o, log: log, registered: map[string]consul.Service{}, told: map[string]string{}}
	if o.Registry != nil {
		a.count, a.failures = o.Tally.Value(catalog.DiscoveryTargets, "consul"), o.Tally.Value(catalog.DiscoveryFailures, "consul")
	}
	return a
}

// Targets is where the machine's exporters are scraped: the agent itself, and
// the neighbours that were found last.
func (a *Announcer) Targets() *wire.Scrape {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &wire.Scrape{Runner: a.o.Runner, Targets: append([]wire.Target{a.o.Own}, a.found...)}
}

// Run announces until ctx ends, and then takes everything back within 3 s.
func (a *Announcer) Run(ctx context.Context) error {
	defer a.leave(ctx)
	var retry backoff
	for {
		a.look(ctx)
		delay := a.o.TTL / 3
		if a.o.Registry != nil && !a.tell(ctx) {
			delay = retry.next(delay)
		} else {
			retry = backoff{}
		}
		t := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// look finds the neighbours.
func (a *Announcer) look(ctx context.Context) {
	var found []wire.Target
	for _, n := range a.o.Neighbours {
		ok, err := n.Find(ctx)
		if err != nil {
			a.once("look "+n.Target.Job, err)
		}
		if ok {
			found = append(found, n.Target)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range found {
		if !slices.Contains(a.found, t) {
			a.log.Info("exporter found on this machine", "job", t.Job, "address", t.Address)
		}
	}
	a.found = found
}

// tell makes the registry hold what is there now, and reports whether it does.
func (a *Announcer) tell(ctx context.Context) bool {
	wanted, err := a.services(ctx)
	if err != nil {
		a.failures.Add(1)
		a.once("address", err)
		return false
	}
	ok := true
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		if err := a.keep(ctx, wanted[id]); err != nil && ctx.Err() == nil {
			ok = false
			a.failures.Add(1)
			a.once(id, err)
		} else if err == nil && a.told[id] != "" {
			delete(a.told, id)
			a.log.Info("registered again", "registry", a.o.Registry.Address(), "service", id)
		}
	}
	for id := range a.registered {
		if _, still := wanted[id]; still {
			continue
		}
		if err := a.o.Registry.Deregister(ctx, id); err != nil {
			ok = false
			a.failures.Add(1)
			a.once(id, err)
			continue
		}
		delete(a.registered, id)
	}
	a.count.Set(float64(len(a.registered)))
	return ok
}

// keep registers a service, or tells that it lives when the registry has it.
func (a *Announcer) keep(ctx context.Context, s consul.Service) error {
	if was, ok := a.registered[s.ID]; ok && same(was, s) {
		err := a.o.Registry.Pass(ctx, s.ID)
		if !errors.Is(err, cimeter.ErrNotFound) {
			return err
		}
		a.log.Info("registry has forgotten this machine, it is registered again", "registry", a.o.Registry.Address(), "service", s.ID)
		delete(a.registered, s.ID)
	}
	if err := a.o.Registry.Register(ctx, s); err != nil {
		return err
	}
	a.registered[s.ID] = s
	return nil
}

func same(a, b consul.Service) bool {
	return a.Address == b.Address && a.Port == b.Port && maps.Equal(a.Meta, b.Meta)
}

// services are what should be registered now, by id.
func (a *Announcer) services(ctx context.Context) (map[string]consul.Service, error) {
	seen, err := a.o.Registry.Outward(ctx)
	if err != nil {
		return nil, err
	}
	services := map[string]consul.Service{}
	for _, t := range a.Targets().Targets {
		host, port, ok := wire.SplitTarget(t.Address)
		n, err := strconv.Atoi(port)
		if !ok || err != nil {
			continue
		}
		if host == "" {
			host = seen
		}
		name := a.o.Service
		if t.Job != a.o.Own.Job {
			name = strings.ReplaceAll(t.Job, "_", "-") // a name of DNS
		}
		s := consul.Service{
			// The machine's name makes it unique in a Consul that many machines share.
			ID: strings.Join([]string{"cimeter", t.Job, plain(a.o.Machine), port}, "-"), Name: name, Address: host, Port: n,
			Tags: append([]string{"cimeter"}, a.o.Tags...), TTL: a.o.TTL, DeregisterAfter: a.o.DeregisterAfter,
			Meta: map[string]string{"job": t.Job, "machine": a.o.Machine, "pool": a.o.Pool, "runner": a.o.Runner, "version": a.o.Version, "scheme": t.Scheme},
		}
		maps.DeleteFunc(s.Meta, func(_, v string) bool { return v == "" })
		services[s.ID] = s
	}
	return services, nil
}

// plain is a name as part of an ID, which stands in paths of URLs.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, name)
}

// leave takes everything back. What the registry does not hear of goes with its
// TTL and DeregisterAfter.
func (a *Announcer) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	for id := range a.registered {
		if err := a.o.Registry.Deregister(ctx, id); err != nil {
			a.failures.Add(1)
			a.log.Warn("not deregistered, the registry will find out", "service", id, "err", err)
			continue
		}
		delete(a.registered, id)
	}
	if a.count != nil {
		a.count.Set(float64(len(a.registered)))
	}
}

// once logs an error unless it was the last one of that subject.
func (a *Announcer) once(subject string, err error) {
	if a.told[subject] != err.Error() {
		a.told[subject] = err.Error()
		a.log.Warn("machine is not announced, it is tried again", "subject", subject, "err", err)
	}
}
