package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/tally"
)

// inspectTimeout bounds one inspection: an engine that hangs must not hold up
// the containers behind it for long.
const inspectTimeout = 5 * time.Second

// maxInspections bounds the containers that wait to be inspected by one engine:
// more than a machine starts in the time that an engine may take for one.
const maxInspections = 1024

// maxRepeated bounds the events that are remembered to be known when the engine
// tells them again after a reconnection: those of the last moment.
const maxRepeated = 256

// followed is a container engine that is followed. It has two goroutines, its
// follower and its inspector.
type followed struct {
	NamedEngine
	agent   *Agent
	inspect chan string           // ids of containers to inspect
	away    atomic.Pointer[error] // why it is not followed; nil error: it is

	up, told, asked *tally.Value // the events that it streamed, and those that it was asked for

	listed bool   // the meter's: it has told of all its containers once
	bare   bool   // the meter's: the last of its containers that began has no cgroup of its own
	warned bool   // the meter's: that is told
	pulls  []pull // the meter's: of the last minutes, oldest first
}

func newFollowed(a *Agent, e NamedEngine) *followed {
	f := &followed{
		NamedEngine: e, agent: a, inspect: make(chan string, maxInspections),
		up:   a.opts.Tally.Value(catalog.AgentEngineUp, e.Name),
		told: a.opts.Tally.Value(catalog.AgentEngineEvents, e.Name, "told"), asked: a.opts.Tally.Value(catalog.AgentEngineEvents, e.Name, "asked"),
	}
	notYet := fmt.Errorf("%s: not connected yet: %w", e.Name, cimeter.ErrUnavailable)
	f.away.Store(&notYet)
	return f
}

// told is what tells one event from another.
type told struct {
	id   string
	kind cimeter.ContainerEventKind
	at   int64 // nanoseconds of the engine's clock
}

// follow follows the engine until ctx ends: the list once at each connection,
// then its events from the last one on, so that nothing falls between.
func (f *followed) follow(ctx context.Context) {
	var (
		retry  backoff
		last   time.Time // of the last event, by the engine's clock
		recent [maxRepeated]told
		n      int
	)
	for {
		since := last
		if now := time.Now(); since.IsZero() || since.After(now) { // the clock was set back
			since = now
		}
		err := f.list(ctx)
		if err == nil {
			err = f.Follow(ctx, since, func() { f.connected(&retry) }, func(e cimeter.ContainerEvent) {
				t := told{id: e.Container.ID, kind: e.Kind, at: e.At.UnixNano()}
				if slices.Contains(recent[:], t) {
					return // told again after a reconnection
				}
				recent[n%maxRepeated] = t
				n++
				last = e.At
				f.agent.meter.post(func() { f.agent.meter.told(f, e, time.Now()) })
			})
		}
		if ctx.Err() != nil {
			return
		}
		f.disconnected(err)
		if !retry.sleep(ctx) {
			return
		}
	}
}

func (f *followed) connected(retry *backoff) {
	*retry = backoff{}
	var none error
	f.away.Store(&none)
	f.up.Set(1)
	f.agent.log.Info("following the container engine", "engine", f.Name)
}

func (f *followed) disconnected(err error) {
	if before := f.away.Swap(&err); *before == nil || (*before).Error() != err.Error() {
		f.agent.log.Warn("container engine not followed, trying again", "engine", f.Name, "err", err)
	}
	f.up.Set(0)
}

// list tells the meter of all containers that exist.
func (f *followed) list(ctx context.Context) error {
	l, err := f.List(ctx)
	if err != nil {
		return err
	}
	f.agent.meter.post(func() { f.agent.meter.listed(f, l, time.Now()) })
	return nil
}

// listed takes the list of containers that exist in an engine.
func (m *meter) listed(f *followed, l []cimeter.Container, now time.Time) {
	f.listed = true
	exists := make(map[string]bool, len(l))
	for _, c := range l {
		exists[c.ID] = true
		k := m.know(c.ID)
		k.of(f)
		if k.stand == nothing {
			k.container = merge(k.container, c)
			m.identify(k, now)
		}
		if c.Running {
			k.starts = max(k.starts, k.seen)
		}
		if k.running == nil && !c.Running && k.stand == others {
			k.expires = now.Add(rememberFor) // nothing is expected of it
		}
	}
	all := !slices.ContainsFunc(m.engines, func(f *followed) bool { return !f.listed })
	m.ledger.Keep(func(id string) bool {
		k := m.known[id]
		switch {
		case exists[id]:
			return true
		case k == nil || k.engine == nil:
			return !all // one that has not told yet may have it
		}
		return k.engine != f
	})
	for id, k := range m.known {
		if !exists[id] && k.running == nil && k.expires.IsZero() && (k.engine == f || k.engine == nil && all) {
			k.expires = now.Add(rememberFor)
		}
	}
}

// inspectAll inspects the containers that the meter asks about, one at a time.
func (f *followed) inspectAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-f.inspect:
			one, cancel := context.WithTimeout(ctx, inspectTimeout)
			c, err := f.Inspect(one, id)
			cancel()
			if errors.Is(err, context.Canceled) {
				return
			}
			f.agent.meter.post(func() { f.agent.meter.inspected(f, id, c, err, time.Now()) })
		}
	}
}
