package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/docker"
)

// inspectTimeout bounds one inspection: an engine that hangs must not hold up
// the containers behind it for long.
const inspectTimeout = 5 * time.Second

// maxRepeated bounds the events that are remembered to be known when the engine
// tells them again after a reconnection: those of the last moment.
const maxRepeated = 256

// told is what tells one event from another.
type told struct {
	id   string
	kind docker.Kind
	at   int64 // nanoseconds of the engine's clock
}

// follow follows the engine until ctx ends: the list once at each connection,
// then its events from the last one on, so that nothing falls between.
func (a *Agent) follow(ctx context.Context) {
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
		err := a.list(ctx)
		if err == nil {
			err = a.opts.Engine.Follow(ctx, since, func() { a.connected(&retry) }, func(e docker.Event) {
				t := told{id: e.Container.ID, kind: e.Kind, at: e.At.UnixNano()}
				if slices.Contains(recent[:], t) {
					return // told again after a reconnection
				}
				recent[n%maxRepeated] = t
				n++
				last = e.At
				a.meter.post(func() { a.meter.told(e, time.Now()) })
			})
		}
		if ctx.Err() != nil {
			return
		}
		a.disconnected(err)
		if !retry.sleep(ctx) {
			return
		}
	}
}

func (a *Agent) connected(retry *backoff) {
	*retry = backoff{}
	var none error
	a.engineUp.Store(&none)
	a.meter.gauges.engineUp.Set(1)
	a.log.Info("following the container engine")
}

func (a *Agent) disconnected(err error) {
	if before := a.engineUp.Swap(&err); *before == nil || (*before).Error() != err.Error() {
		a.log.Warn("container engine not followed, trying again", "err", err)
	}
	a.meter.gauges.engineUp.Set(0)
}

// list tells the meter of all containers that exist.
func (a *Agent) list(ctx context.Context) error {
	l, err := a.opts.Engine.List(ctx)
	if err != nil {
		return err
	}
	a.meter.post(func() { a.meter.listed(l, time.Now()) })
	return nil
}

// listed takes the list of containers that exist.
func (m *meter) listed(l []cimeter.Container, now time.Time) {
	exists := make(map[string]bool, len(l))
	for _, c := range l {
		exists[c.ID] = true
		k := m.know(c.ID)
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
	m.ledger.Keep(exists)
	for id, k := range m.known {
		if !exists[id] && k.running == nil && k.expires.IsZero() {
			k.expires = now.Add(rememberFor)
		}
	}
}

// inspectAll inspects the containers that the meter asks about, one at a time.
func (a *Agent) inspectAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-a.inspect:
			one, cancel := context.WithTimeout(ctx, inspectTimeout)
			c, err := a.opts.Engine.Inspect(one, id)
			cancel()
			if errors.Is(err, context.Canceled) {
				return
			}
			a.meter.post(func() { a.meter.inspected(id, c, err, time.Now()) })
		}
	}
}
