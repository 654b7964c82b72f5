package agent

import (
	"errors"
	"maps"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/docker"
)

const (
	// maxKnown bounds the containers of which something is remembered.
	maxKnown = 4 * maxLives
	// rememberFor is how long a container is remembered after its end and
	// removal: its events and its inspection may come late.
	rememberFor = time.Minute
	// askAfter is how long a container's cgroup may exist without an event
	// that tells what it is, before the engine is asked.
	askAfter = 2 * time.Second
)

// stand is what is known of whether a container belongs to a build.
type stand uint8

const (
	nothing  stand = iota // no event has told of it
	waiting               // its inspection is under way
	ours                  // identity says whose it is
	others                // it belongs to no build
	disputed              // it claims a build that is not its own
)

// known is what is known of one container, whatever its cgroup does.
type known struct {
	id        string
	container cimeter.Container
	stand     stand
	identity  cimeter.Identity
	segments  []*attrib.Segment // not bound yet
	gaps      []cimeter.Gap     // of lives that were missed, not told to the ledger yet
	latest    *attrib.Segment   // the one whose exit code comes next
	running   *live
	starts    int // told by the engine
	seen      int // cgroups seen
	asked     time.Time
	gone      bool      // the engine has removed it
	expires   time.Time // zero while something is expected of it
}

func (m *meter) know(id string) *known {
	k := m.known[id]
	if k == nil {
		k = &known{id: id, container: cimeter.Container{ID: id}}
		if len(m.known) >= maxKnown {
			m.gauges.droppedKnown.Add(1)
			return k // used once and forgotten
		}
		m.known[id] = k
	}
	return k
}

// appeared notes a new segment of the container.
func (k *known) appeared(m *meter, l *live, now time.Time) {
	k.seen++
	k.latest, k.running = l.segment, l
	k.expires = time.Time{}
	if !l.segment.Bound() {
		k.segments = append(k.segments, l.segment)
	}
	k.bind(m, now)
}

// ended notes that the container's cgroup is gone.
func (k *known) ended(m *meter, l *live, now time.Time) {
	if k.running == l {
		k.running = nil
		k.expires = now.Add(rememberFor)
	}
	if m.opts.ContainerInfo {
		m.opts.Tally.RemoveInfo(catalog.ContainerInfo, k.id)
	}
}

// missed notes a start whose counters were never read.
func (k *known) missed(m *meter, now time.Time) {
	m.gauges.segmentsMissed.Add(1)
	from := k.container.StartedAt
	if from.IsZero() {
		from = now
	}
	k.gaps = append(k.gaps, cimeter.Gap{From: from, To: now, Reason: cimeter.GapMissedSegment})
	k.bind(m, now)
}

// told takes one of the engine's events.
func (m *meter) told(e docker.Event, now time.Time) {
	m.gauges.engineEvents.Add(1)
	k := m.know(e.Container.ID)
	if k.stand == nothing {
		k.container = merge(k.container, e.Container)
		m.identify(k, now)
	}
	switch e.Kind {
	case docker.Created:
		if k.stand == ours {
			m.ledger.Known(k.identity.Build.Key, k.id)
		}
	case docker.Started:
		k.starts++
		k.container.StartedAt = e.At
	case docker.Died:
		if k.latest != nil && e.Exit.Known {
			m.ledger.SetExit(k.latest, now, e.Exit.Value)
		}
		if k.starts > k.seen {
			k.seen = k.starts
			k.missed(m, now)
		}
	case docker.Destroyed:
		k.gone = true
		m.ledger.Gone(k.id)
		k.expires = now.Add(rememberFor)
	}
}

// identify finds out whose a container is: by its metadata alone where that
// tells enough, else after one inspection.
func (m *meter) identify(k *known, now time.Time) {
	_, mine := m.opts.Identify(&k.container)
	if !mine && !m.opts.InspectAll {
		k.stand = others
		k.segments = nil
		return
	}
	m.ask(k, now)
}

// ask has the container inspected.
func (m *meter) ask(k *known, now time.Time) {
	k.asked = now
	if m.opts.Engine == nil {
		m.inspected(k.id, k.container, nil, now)
		return
	}
	select {
	case m.inspect <- k.id:
		k.stand = waiting
	default:
		m.gauges.droppedInspections.Add(1)
		m.inspected(k.id, k.container, nil, now) // what the event told must do
	}
}

// inspected takes what an inspection told; err says why it told nothing.
func (m *meter) inspected(id string, c cimeter.Container, err error, now time.Time) {
	k := m.know(id)
	if err == nil {
		k.container = merge(k.container, c)
	} else if !errors.Is(err, cimeter.ErrNotFound) {
		m.log.Warn("container not inspected", "container", id, "err", err)
	}
	identity, mine := m.opts.Identify(&k.container)
	k.container.Env = nil // read, and not needed any more
	k.gone = k.gone || errors.Is(err, cimeter.ErrNotFound)
	switch {
	case mine:
		k.stand, k.identity = ours, identity
		k.bind(m, now)
		if !k.gone {
			m.ledger.Known(identity.Build.Key, id)
		}
	case err != nil && !errors.Is(err, cimeter.ErrNotFound):
		k.stand = nothing // asked again
	default:
		k.stand, k.segments = others, nil
	}
}

// bind gives the container's segments to its build.
func (k *known) bind(m *meter, now time.Time) {
	switch k.stand {
	case ours:
	case others, disputed:
		k.segments, k.gaps = nil, nil
		return
	default:
		return
	}
	for _, g := range k.gaps {
		m.ledger.Miss(now, k.identity, g)
	}
	k.gaps = nil
	for _, s := range k.segments {
		if err := m.ledger.Bind(s, now, k.container.Name, k.identity); err != nil {
			if errors.Is(err, cimeter.ErrConflict) {
				k.stand = disputed
				m.gauges.disputed.Add(1)
			} else {
				m.gauges.droppedBuilds.Add(1)
			}
			m.log.Warn("container not booked on the build it claims", "container", k.id, "err", err)
			break
		}
	}
	k.segments = nil
	if k.gone {
		m.ledger.Gone(k.id) // it was removed before it was known whose it is
	}
	l := k.running
	if k.stand != ours || l == nil {
		return
	}
	switch {
	case l.command == "":
	case l.inside:
		m.enter(l, l.command)
	default:
		m.ledger.Command(l.segment, now, l.command)
	}
	l.command = ""
	if l.look.IsZero() && l.segment.Undecided() {
		l.look = now
		m.unsettled = append(m.unsettled, l)
	}
	if m.opts.ContainerInfo {
		m.info(k)
	}
	m.askJobs()
	m.changed(l.segment.BuildKey(), now)
}

// forget drops what is not needed any more, and asks about containers that no
// event told of.
func (m *meter) forget(now time.Time) {
	for id, k := range m.known {
		switch {
		case !k.expires.IsZero() && now.After(k.expires):
			delete(m.known, id)
		case k.stand == nothing && k.running != nil && m.opts.Engine != nil &&
			now.Sub(k.running.born) > askAfter && now.Sub(k.asked) > 10*askAfter:
			m.ask(k, now)
		}
	}
}

// merge returns a with what b knows: b is newer.
func merge(a, b cimeter.Container) cimeter.Container {
	c := b
	if c.Name == "" {
		c.Name = a.Name
	}
	if c.Image == "" {
		c.Image = a.Image
	}
	if c.NetworkMode == "" {
		c.NetworkMode, c.Networks = a.NetworkMode, a.Networks
	}
	if c.StartedAt.IsZero() {
		c.StartedAt = a.StartedAt
	}
	if len(c.Labels) == 0 {
		c.Labels = maps.Clone(a.Labels)
	}
	return c
}
