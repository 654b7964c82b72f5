package agent

import (
	"errors"
	"maps"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/catalog"
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
	ofPod                 // a sandbox: whose its pod is, is not known yet
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
	engine    *followed // whose it is; nil before one told of it
	bare      bool      // it runs in no cgroup of its own
	turn      int       // engines that were asked for it and do not have it
	unsure    bool      // one of those did not answer
	starts    int       // told by the engine
	seen      int       // cgroups seen
	asked     time.Time
	gone      bool      // the engine has removed it
	socket    bool      // an engine's socket is mounted into it
	volumes   []string  // that are mounted into it
	beside    beside    // whose it is, where it is no build's own
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
	m.released(k, l, now)
	if k.running == l {
		k.running = nil
		k.expires = now.Add(rememberFor)
		m.askLast(k, now)
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
	reason := cimeter.GapMissedSegment
	if k.bare || k.engine != nil && k.engine.bare {
		reason = cimeter.GapNoCgroup
	}
	k.gaps = append(k.gaps, cimeter.Gap{From: from, To: now, Reason: reason})
	k.bind(m, now)
}

// of notes that the container is one of engine f's. The first that tells of it has it:
// what speaks to Kubernetes for Docker shows all containers twice.
func (k *known) of(f *followed) {
	if k.engine == nil {
		k.engine = f
	}
}

// told takes one of an engine's events.
func (m *meter) told(f *followed, e cimeter.ContainerEvent, now time.Time) {
	if e.Asked {
		f.asked.Add(1)
	} else {
		f.told.Add(1)
	}
	if e.Kind == cimeter.ImagePulled {
		f.pulled(e)
		return
	}
	k := m.know(e.Container.ID)
	if k.of(f); k.engine != f {
		return
	}
	if k.stand == nothing {
		k.container = merge(k.container, e.Container)
		m.identify(k, now)
	}
	switch e.Kind {
	case cimeter.ContainerCreated:
		if k.stand == ours {
			m.ledger.Known(k.identity.Build.Key, k.id)
		}
	case cimeter.ContainerStarted:
		k.starts++
		k.container.StartedAt = e.At
		m.startedIn(k, now)
	case cimeter.ContainerDied:
		if k.latest != nil && e.Exit.Known {
			m.ledger.SetExit(k.latest, now, e.Exit.Value)
		}
		if k.starts > k.seen || k.bare {
			k.seen = k.starts
			k.missed(m, now)
		}
	case cimeter.ContainerDestroyed:
		k.gone = true
		m.ledger.Gone(k.id)
		k.expires = now.Add(rememberFor)
	}
}

// identify finds out whose a container is: by its metadata alone where that
// tells enough, else after one inspection.
func (m *meter) identify(k *known, now time.Time) {
	_, mine := m.opts.Identify(&k.container)
	if !mine && !k.container.Sandbox && !m.opts.InspectAll && !m.holds(now) {
		k.stand = others
		k.segments = nil
		m.lookIntoOthers(k)
		return
	}
	m.ask(k, now)
}

// ask has the container inspected: by the engine that has it, where none has told
// of it by each in turn.
func (m *meter) ask(k *known, now time.Time) {
	k.asked = now
	if len(m.engines) == 0 {
		m.inspected(nil, k.id, k.container, nil, now)
		return
	}
	f := k.engine
	if f == nil {
		f = m.engines[k.turn]
	}
	select {
	case f.inspect <- k.id:
		k.stand = waiting
	default:
		m.gauges.droppedInspections.Add(1)
		k.turn, k.unsure = 0, false
		m.settleIdentity(k, nil, now) // what the event told must do
	}
}

// inspected takes what engine f's inspection told; err says why it told nothing.
func (m *meter) inspected(f *followed, id string, c cimeter.Container, err error, now time.Time) {
	k := m.know(id)
	missing := errors.Is(err, cimeter.ErrNotFound)
	switch {
	case err == nil:
		k.of(f)
		k.container = merge(k.container, c)
		m.lookForCgroup(k, c.Pid)
	case !missing:
		m.log.Warn("container not inspected", "container", id, "err", err)
	}
	if k.engine != nil && f != nil && k.engine != f {
		m.ask(k, now) // its own engine has told of it meanwhile
		return
	}
	if k.engine == nil && f != nil {
		k.unsure = k.unsure || !missing
		if k.turn++; k.turn < len(m.engines) {
			m.ask(k, now)
			return
		}
		if k.unsure && missing {
			err = cimeter.ErrUnavailable // the one that has it may not have answered
		}
		k.turn, k.unsure = 0, false
	}
	m.settleIdentity(k, err, now)
	if err == nil && m.askedTooSoon(k, &c) {
		m.ask(k, now)
	}
}

// settleIdentity decides whose a container is by all that is known of it; err says
// why an inspection told nothing.
func (m *meter) settleIdentity(k *known, err error, now time.Time) {
	if k.container.Sandbox {
		k.gone = k.gone || errors.Is(err, cimeter.ErrNotFound)
		m.sandbox(k, now)
		return
	}
	identity, mine := m.opts.Identify(&k.container)
	if k.container.Mounts != nil {
		k.socket, k.volumes = hasSocket(k.container.Mounts), volumes(k.container.Mounts)
	}
	k.container.Env, k.container.Mounts = nil, nil // read, and not needed any more
	if errors.Is(err, cimeter.ErrNotFound) && k.running != nil && k.running.pod != nil {
		k.stand = nothing // a runtime shows a sandbox only when its network is made
		return
	}
	k.gone = k.gone || errors.Is(err, cimeter.ErrNotFound)
	switch {
	case mine && identity.Later:
		k.stand, k.identity = nothing, identity // asked again
		m.waitLater(k, now)
	case mine:
		k.stand, k.identity = ours, identity
		k.bind(m, now)
		if !k.gone && k.stand == ours && identity.Doubt == "" {
			m.ledger.Known(identity.Build.Key, k.id)
		}
		if k.socket {
			m.holding(k, now)
		}
	case err != nil && !errors.Is(err, cimeter.ErrNotFound):
		k.stand = nothing // asked again
	default:
		k.stand, k.segments = others, nil
		m.placeBeside(k, now)
		m.lookIntoOthers(k)
	}
}

// bind gives the container's segments to its build.
func (k *known) bind(m *meter, now time.Time) {
	switch k.stand {
	case ours:
	case others, disputed:
		k.segments, k.gaps = nil, nil
		m.lookIntoOthers(k)
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
				m.ledger.Gone(k.id) // the build that it claims does not wait for it
				m.placeBeside(k, now)
			} else {
				m.gauges.droppedBuilds.Add(1)
			}
			m.log.Warn("container not booked on the build it claims", "container", k.id, "err", err)
			break
		}
	}
	k.segments = nil
	if k.stand == ours {
		m.claimPod(k, now)
		m.tellPull(k)
		if k.identity.Role == cimeter.RoleBuild && k.container.Image != "" {
			m.ledger.Image(k.identity.Build.Key, k.container.Image)
		}
	}
	if k.gone {
		m.ledger.Gone(k.id) // it was removed before it was known whose it is
	}
	l := k.running
	if k.stand != ours || l == nil {
		return
	}
	m.lookInto(l)
	if k.container.Requested != (cimeter.Requests{}) {
		m.ledger.SetRequested(l.segment, k.container.Requested)
	}
	m.follow(l, &k.identity)
	switch {
	case l.command == "":
	case l.inside:
		m.enter(l, l.command, l.toldBy)
	default:
		m.ledger.Command(l.segment, now, l.command)
	}
	l.command, l.toldBy = "", nil
	if l.look.IsZero() && (l.segment.Undecided() || l.inside) {
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
		case k.stand == nothing && k.running != nil && len(m.engines) > 0 &&
			now.Sub(k.running.born) > askAfter && now.Sub(k.asked) > k.patience():
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
	if c.Requested == (cimeter.Requests{}) {
		c.Requested = a.Requested
	}
	c.Sandbox = c.Sandbox || a.Sandbox
	if c.Pod == nil {
		c.Pod = a.Pod
	}
	return c
}
