package cri

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
)

// noticed is a container whose cgroup was seen to come or to be left.
type noticed struct {
	id      string
	running bool
}

// seen is what the last event of a container told.
type seen struct {
	state state
	pod   *cimeter.Pod
}

// Noticed tells that the cgroup of a container has come (running), or that its last
// process has gone. A runtime without events is asked about it at once, another one
// when its event is late. It never waits, and may be told of containers that are not
// the runtime's.
func (c *Client) Noticed(id string, running bool) {
	select {
	case c.noticed <- noticed{id, running}:
	default: // the next list tells
	}
}

// A runtime notes an exit after the kernel, and a sandbox only when its network is
// made: it is asked again until it says what was noticed.
const (
	firstAgain = 10 * time.Millisecond
	lastAgain  = 320 * time.Millisecond // a runner may remove what has ended soon
	maxAsked   = 20                     // within five seconds
)

// A stream tells sooner than this, also on a busy machine, or the event is lost: CRI-O
// drops those for which it has no room. Then the runtime is asked, and as often again.
const late = time.Second

// open is a container that the runtime does not yet say of what was noticed.
type open struct {
	running bool
	asked   int
	next    time.Time
}

// closedBy reports whether what is known of the container is what was noticed, or
// more.
func (o *open) closedBy(s state) bool { return s == exited || o.running && s == running }

// Follow calls fn for each event until ctx ends or the runtime does not answer, and
// returns why it ended: never nil. What happened since List is told first, whatever
// since is. Where the runtime sends no events, they are what has changed from one
// list to the next, and when the cgroup of a container was noticed.
func (c *Client) Follow(ctx context.Context, _ time.Time, connected func(), fn func(cimeter.ContainerEvent)) error {
	ctx, cancel := context.WithCancel(ctx)
	f := &follower{Client: c, fn: fn, open: make(map[string]*open), stirred: make(chan struct{}, 1)}
	events := make(chan streamed)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if !c.noEvents {
			c.stream(ctx, events, f.stirred)
		}
	}()
	defer func() { cancel(); <-ended }()

	if err := f.all(ctx); err != nil {
		return err
	}
	connected()
	next, every := time.Now().Add(c.every), c.every
	tick := time.NewTimer(c.every) // not before next
	defer tick.Stop()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return c.wrap("follow", ctx.Err())
		case e := <-events:
			switch {
			case e.err != nil:
				return c.wrap("GetContainerEvents", e.err)
			case e.missed:
				next = time.Now()
			case e.idle:
				f.streams, every, next = false, c.every, time.Now().Add(c.every)
				tick.Reset(c.every)
			default:
				f.streams, every = true, 6*c.every
				err = f.event(ctx, e.message)
			}
		case n := <-c.noticed:
			err = f.notice(ctx, n)
		case <-again.C:
			err = f.again(ctx)
		case <-tick.C:
		}
		if now := time.Now(); err == nil && !now.Before(next) {
			err = f.all(ctx)
			next = now.Add(every)
			tick.Reset(every)
		}
		if err != nil {
			return err
		}
		if due, ok := f.due(); ok {
			again.Reset(time.Until(due))
		}
	}
}

// follower is what Follow keeps while it follows.
type follower struct {
	*Client
	fn      func(cimeter.ContainerEvent)
	open    map[string]*open
	streams bool          // events come
	stirred chan struct{} // something was asked for: there may be events
	recent  [maxRecent]happened
	n       int
}

// happened is what tells one event from another.
type happened struct {
	id   string
	kind uint64
	at   int64
}

// maxRecent bounds the events that are known again when a second stream tells them:
// more than one tells before the other does.
const maxRecent = 128

// notice asks about a container that was noticed, or has the stream tell of it first.
func (f *follower) notice(ctx context.Context, n noticed) error {
	if !f.streams {
		return f.look(ctx, n)
	}
	o := &open{running: n.running, asked: maxAsked - 5, next: time.Now().Add(late)}
	if !o.closedBy(f.seen[n.id].state) && len(f.open) < maxNoticed {
		f.open[n.id] = o
	}
	return nil
}

// all lists, and tells what has changed.
func (f *follower) all(ctx context.Context) error {
	l, err := f.list(ctx, "")
	if err != nil {
		return err
	}
	exists := make(map[string]bool, len(l))
	for i := range l {
		exists[l[i].ID] = true
		if err := f.observe(ctx, &l[i]); err != nil {
			return err
		}
	}
	for id, s := range f.seen {
		if !exists[id] {
			f.destroyed(id, s, time.Now(), true)
		}
	}
	return nil
}

// look asks about one container that was noticed.
func (f *follower) look(ctx context.Context, n noticed) error {
	o := f.open[n.id]
	if o == nil || o.running != n.running {
		if o == nil && len(f.open) >= maxNoticed {
			return nil // the next list tells
		}
		o = &open{running: n.running}
		f.open[n.id] = o
	}
	l, err := f.list(ctx, n.id)
	if err != nil {
		return err
	}
	done := false
	if len(l) > 0 {
		if err := f.observe(ctx, &l[0]); err != nil {
			return err
		}
		done = o.closedBy(l[0].state)
	} else if s, known := f.seen[n.id]; known && !n.running {
		f.destroyed(n.id, s, time.Now(), true)
		done = true
	}
	pause := min(firstAgain<<o.asked, lastAgain)
	if f.streams {
		pause = late
	}
	o.next = time.Now().Add(pause)
	if o.asked++; done || o.asked >= maxAsked {
		delete(f.open, n.id)
	}
	return nil
}

// due returns when a container is to be asked about again.
func (f *follower) due() (first time.Time, ok bool) {
	for _, o := range f.open {
		if !ok || o.next.Before(first) {
			first, ok = o.next, true
		}
	}
	return first, ok
}

// again asks about the containers that are due, and of which no event has come.
func (f *follower) again(ctx context.Context) error {
	now := time.Now()
	for id, o := range f.open {
		if o.next.After(now) {
			continue
		}
		if o.closedBy(f.seen[id].state) {
			delete(f.open, id)
			continue
		}
		if err := f.look(ctx, noticed{id, o.running}); err != nil {
			return err
		}
	}
	return nil
}

// observe tells what has changed of a container since the last event.
func (f *follower) observe(ctx context.Context, l *listed) error {
	if l.state <= f.seen[l.ID].state {
		return nil
	}
	var exit cimeter.Opt[int]
	started, ended := l.StartedAt, time.Time{}
	if !l.Sandbox && l.state != created {
		b, _, err := f.status(ctx, "ContainerStatus", l.ID, false)
		if err != nil && !errors.Is(err, cimeter.ErrNotFound) {
			return err
		}
		if s, err := parseContainer(b, true); b != nil && err == nil {
			started, ended = s.startedAt, s.finishedAt
			if s.state == exited {
				exit = cimeter.Some(s.exit)
			}
		}
	}
	f.tell(l, true, exit, started, ended)
	return nil
}

// tell tells of the states that a container has gone through since the last event.
func (f *follower) tell(l *listed, asked bool, exit cimeter.Opt[int], started, ended time.Time) {
	if asked {
		select {
		case f.stirred <- struct{}{}:
		default:
		}
	}
	before, now := f.seen[l.ID].state, time.Now()
	if started.IsZero() {
		started = now
	}
	if ended.IsZero() {
		ended = now
	}
	if before < created {
		f.fn(cimeter.ContainerEvent{Kind: cimeter.ContainerCreated, At: l.CreatedAt, Container: l.Container, Asked: asked})
	}
	if before < running && l.state >= running {
		f.fn(cimeter.ContainerEvent{Kind: cimeter.ContainerStarted, At: started, Container: l.Container, Asked: asked})
	}
	if l.state == exited {
		f.fn(cimeter.ContainerEvent{Kind: cimeter.ContainerDied, At: ended, Container: l.Container, Exit: exit, Asked: asked})
	}
	f.seen[l.ID] = seen{l.state, l.Pod}
}

func (f *follower) destroyed(id string, s seen, at time.Time, asked bool) {
	gone := cimeter.Container{ID: id, Pod: s.pod}
	if s.state == running {
		f.fn(cimeter.ContainerEvent{Kind: cimeter.ContainerDied, At: at, Container: gone, Asked: asked})
	}
	f.fn(cimeter.ContainerEvent{Kind: cimeter.ContainerDestroyed, At: at, Container: gone, Asked: asked})
	delete(f.seen, id)
	delete(f.open, id)
}

// event takes a ContainerEventResponse: a container that something happened to, its
// pod, and the containers of that.
func (f *follower) event(ctx context.Context, b []byte) error {
	const deleted = 3
	var (
		id       string
		kind     uint64
		at       time.Time
		p        *pod
		statuses [][]byte
	)
	err := fields(b, func(e field) (err error) {
		switch e.number {
		case 1:
			id = e.text()
		case 2:
			kind = e.value
		case 3:
			at = e.at()
		case 4:
			p, err = parsePod(e.bytes, true)
		case 5:
			statuses = append(statuses, e.bytes)
		}
		return err
	})
	if err != nil {
		return f.wrap("GetContainerEvents", err)
	}
	h := happened{id, kind, at.UnixNano()}
	if slices.Contains(f.recent[:], h) {
		return nil
	}
	f.recent[f.n%maxRecent] = h
	f.n++
	if kind == deleted {
		if s, known := f.seen[id]; known {
			f.destroyed(id, s, at, false)
		}
		return nil
	}
	if p != nil && p.id == id {
		l := listed{p.container(), p.state}
		if l.state > f.seen[id].state {
			f.tell(&l, false, cimeter.Opt[int]{}, p.createdAt, at)
		}
		return nil
	}
	for _, b := range statuses {
		k, err := parseContainer(b, true)
		if err != nil {
			return f.wrap("GetContainerEvents", err)
		}
		if k.id != id || p == nil {
			continue
		}
		l := listed{k.container(p.id, p), k.state}
		var exit cimeter.Opt[int]
		if k.state == exited {
			exit = cimeter.Some(k.exit)
		}
		if l.state > f.seen[id].state {
			f.tell(&l, false, exit, k.startedAt, k.finishedAt)
		}
		return nil
	}
	return f.look(ctx, noticed{id, kind != 2})
}
