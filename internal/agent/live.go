package agent

import (
	"errors"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/cgroup"
	"github.com/cimeter/cimeter/internal/netns"
)

const (
	// firstLook is how soon after a cgroup's birth its first process is looked
	// for: the runtime makes the folder and then moves a process in.
	firstLook = time.Millisecond
	// lastLook is the longest delay between two looks.
	lastLook = 256 * time.Millisecond
	// settleFor is how long after its birth a container is looked at for what
	// is still unknown: its network, its stage.
	settleFor = 10 * time.Second
	// networkFor is how long a process that runs may wait for its network: on a busy
	// machine a runtime takes its time. networkLook is the pace of that.
	networkFor, networkLook = time.Minute, time.Second
	// lastRead is how long after the last process's end the counters are read
	// for good: the exit is still being charged for a moment, and the runtime
	// needs 10 ms at least to remove the cgroup.
	lastRead = 4 * time.Millisecond
	// limitsAfter is how long after its birth a container's limits are looked at,
	// limitsSure is after how long for good: a runtime sets them after its own
	// process is in the cgroup, on a busy machine much later.
	limitsAfter, limitsSure = 100 * time.Millisecond, 2 * time.Second
	// maxLives bounds the containers that are tracked: the descriptors of that
	// many are within a limit of 65,536.
	maxLives = 4096
)

// live is a container's cgroup while it exists.
type live struct {
	id, path string
	inode    uint64
	group    *cgroup.Group
	segment  *attrib.Segment
	sample   cimeter.Sample
	born     time.Time
	read     time.Time                // of the last successful reading
	parent   *parent                  // nil where none is kept
	pod      *pod                     // nil where it is in none
	booked   [len(ofProcesses)]uint64 // the most that was, of each of them, nanoseconds

	token      uint64
	pidfd, pid int // pidfd is -1 while no process is watched
	events     bool

	within, walking bool   // looked into for what is nested in it; for what is there already
	withKnown       bool   // that was when it was known whose it is
	late, resumed   bool   // it had run when counting began; counting goes on from a checkpoint
	nestedKills     uint64 // of processes in cgroups below it, on v1
	besideTold      uint64 // CPU time that was counted as beside builds, nanoseconds

	net     *netns.Handle
	netDone bool // the network is attached, or known not to be metered

	looks   int
	look    time.Time // when to look again; zero: nothing is open
	inside  bool      // its processes tell the stage it is in, which may change
	looking bool      // its command lines are being looked at
	command string    // stage told by a command line, until the ledger has it
	toldBy  *look     // what told it
	turns   turns     // where inside is set
	limited bool      // limits were read with the process in place
	full    bool      // all files were read once
	pauses  bool      // it is the sandbox of a pod that is counted
	exited  time.Time // when nobody was left in it; zero before
	closed  bool
}

// appeared takes up a container's cgroup. born says that it was just made: its
// counters began at 0 while the meter watched.
func (m *meter) appeared(path string, born bool) {
	old := m.paths[path]
	if old != nil && !old.closed {
		return
	}
	id, outer, ok := cgroup.Container(path)
	switch in := m.paths[outer]; {
	case !ok:
		m.pieceAppeared(path, nil)
		return
	case outer != path:
		if in != nil {
			m.pieceAppeared(path, in)
		}
		return
	}
	if len(m.lives) >= maxLives {
		m.gauges.droppedContainers.Add(1)
		return
	}
	now := time.Now()
	g, err := m.host.Group(path)
	if err != nil {
		if !errors.Is(err, cimeter.ErrGone) {
			m.log.Warn("container not metered", "container", id, "err", err)
		}
		m.know(id).missed(m, now)
		return
	}
	if old != nil && old.inode == g.Inode() {
		g.Close() // its container has ended; only the folder is still there
		return
	}
	l := &live{id: id, path: path, group: g, inode: g.Inode(), born: now, pidfd: -1, pid: -1, read: now}
	m.token++
	l.token = m.token
	if l.segment = m.ledger.Resume(id, l.inode, now); l.segment == nil {
		l.segment = m.ledger.Open(id, path, l.inode, now, born)
		l.late = !born
	} else {
		l.resumed = true
		l.nestedKills = l.segment.Last(cimeter.OOMKillsNested)
	}
	m.intoPod(l, now)
	m.lives = append(m.lives, l)
	m.paths[path] = l
	m.tokens[l.token] = l
	if born {
		m.gauges.segmentsBirth.Add(1)
	} else {
		m.gauges.segmentsLate.Add(1)
		m.sample(l, cgroup.Full) // where counting begins
	}
	if l.pod == nil {
		l.parent = m.gauges.parentOf(m, path)
	}
	l.look = now
	m.lookAt(l, now)
	m.unsettled = append(m.unsettled, l)
	if strings.HasSuffix(path, "/"+id) && m.podman {
		m.lookInto(l) // it may be a pod of podman's, which is named as a container is
	}
	k := m.know(id)
	k.appeared(m, l, now)
	if born { // else the list has it
		m.notice(k, true)
	}
}

// settle looks at the containers that are due and returns when the next look,
// at most until, is.
func (m *meter) settle(now, until time.Time) time.Time {
	open := m.unsettled[:0]
	for _, l := range m.unsettled {
		if l.closed {
			continue
		}
		if !l.look.After(now) {
			if l.exited.IsZero() {
				m.lookAt(l, now)
			} else {
				m.close(l, now)
			}
		}
		if l.closed || l.look.IsZero() {
			continue
		}
		if l.look.Before(until) {
			until = l.look
		}
		open = append(open, l)
	}
	clear(m.unsettled[len(open):])
	m.unsettled = open
	return m.settlePieces(now, until)
}

// lookAt finds out what is still unknown of a container: files that the runtime
// makes late, its first process, its network, its stage.
func (m *meter) lookAt(l *live, now time.Time) {
	l.looks++
	missing := l.group.Retry()
	if l.pidfd < 0 {
		m.arm(l, -1)
	}
	if !l.events {
		if f := l.group.EventsFile(); f != "" {
			l.events = m.watch.AddFile(f, l.token) == nil
		}
	}
	if l.pidfd >= 0 && !l.netDone {
		m.attach(l, now)
	}
	undecided := m.readCommands(l)
	age := now.Sub(l.born)
	settled := l.pidfd >= 0 && l.netDone && missing == 0 && !undecided
	switch {
	case l.inside && l.pidfd >= 0:
		l.look = m.nextTurn(l, now)
	case !settled && age > settleFor && age < networkFor && l.pidfd >= 0 && !l.netDone && !undecided:
		l.look = now.Add(networkLook)
	case settled || age > settleFor:
		if !l.netDone { // it never came to have a network
			l.netDone = true
		}
		l.look = time.Time{}
		if age < limitsAfter {
			l.look = l.born.Add(limitsAfter)
		}
	case undecided && l.pidfd >= 0 && (age > commandLook || l.late || l.resumed):
		l.look = now.Add(openPace(age, l.late || l.resumed))
	default:
		l.look = now.Add(min(firstLook<<min(l.looks-1, 10), lastLook))
	}
	if settled {
		m.limit(l, now)
	}
}

// limit notes what limits a container has, until they are sure to be those.
func (m *meter) limit(l *live, now time.Time) {
	age := now.Sub(l.born)
	if !l.limited && age >= limitsAfter {
		l.limited = age >= limitsSure
		m.ledger.SetLimits(l.segment, l.group.Limits())
	}
}

// check finds out whether anybody is left in a container after a process ended
// (or its cgroup.events changed), and reads its counters if nobody is.
func (m *meter) check(l *live, now time.Time, ended bool) {
	if l.closed {
		return
	}
	if l.pid >= 0 {
		_ = m.readLast(l, cgroup.Fast) // first of all: the counters may be gone in a moment
	}
	if ended {
		last := l.pid
		m.disarm(l)
		if m.arm(l, last) {
			return
		}
	}
	if l.pid < 0 && !ended {
		m.lookAt(l, now) // the first process came
		return
	}
	if left, err := l.group.Populated(); err == nil && left && !m.onlyZombie(l) {
		if l.pidfd < 0 && !m.arm(l, -1) {
			return // somebody is left below, in a nested cgroup
		}
		l.exited = time.Time{} // it filled again
		return
	}
	if l.pid < 0 {
		return // nobody was ever seen in it: the runtime is making it
	}
	if l.exited.IsZero() {
		l.exited = now
		l.look = now.Add(lastRead)
		m.unsettled = append(m.unsettled, l)
		m.ended = append(m.ended, l)
	}
}

// readEnded reads the rest of what the containers that have just ended used.
// Other ends that are told meanwhile go first.
func (m *meter) readEnded() {
	for len(m.ended) > 0 {
		l := m.ended[len(m.ended)-1]
		m.ended = m.ended[:len(m.ended)-1]
		if l.closed || l.exited.IsZero() {
			continue
		}
		m.readPodNetwork(l)
		if err := m.readLast(l, cgroup.Full); errors.Is(err, cimeter.ErrGone) {
			// CPU and network are read, the rest is as of an earlier reading.
			m.missedEnd(l, l.exited, time.Now())
		} else if !l.limited {
			l.limited = true
			m.ledger.SetLimits(l.segment, l.group.Limits())
		}
		if err := m.watch.Wait(0, m.happened); err != nil {
			return // told by the loop's own wait
		}
	}
}

// readLast reads a container that has ended, or may have.
func (m *meter) readLast(l *live, tier cgroup.Tier) error {
	err := l.group.Read(&l.sample, tier)
	if l.net != nil {
		_ = l.net.ReadNow(&l.sample) // gone: the last values stand
	}
	m.book(l, err)
	return err
}

// close ends a container's segment after its last process ended.
func (m *meter) close(l *live, now time.Time) {
	if l.closed {
		return
	}
	if left, err := l.group.Populated(); err == nil && left && !m.onlyZombie(l) {
		l.exited, l.look = time.Time{}, now
		return // somebody joined in the meantime
	}
	_ = m.readLast(l, cgroup.Fast) // gone: what was read at the exit stands
	m.drop(l, l.exited)
}

// vanish ends the segment of a container whose cgroup was removed.
func (m *meter) vanish(l *live, now time.Time) {
	delete(m.paths, l.path)
	if l.closed {
		return
	}
	end := l.exited
	if end.IsZero() {
		// The last process ended and the runtime was done before the meter
		// could read: of the counters, what the last reading showed is known.
		end = now
		if l.net != nil {
			_ = l.net.ReadNow(&l.sample)
			m.ledger.Advance(l.segment, &l.sample)
		}
	}
	m.drop(l, end)
}

// drop ends a container's segment at end. What its last reading did not show is
// marked.
func (m *meter) drop(l *live, end time.Time) {
	m.bookHeld(l)
	if l.read.Before(end) {
		m.missedEnd(l, l.read, end)
	}
	m.endWithin(l, end)
	m.ledger.Close(l.segment, end, cimeter.Opt[int]{})
	m.outOfPod(l, end)
	k := m.know(l.id)
	m.tellLive(k, l, end)
	m.release(l)
	delete(m.tokens, l.token)
	k.ended(m, l, end)
	m.notice(k, false)
	if key := l.segment.BuildKey(); key != "" {
		m.changed(key, time.Now())
	}
}

// release gives a container's descriptors back.
func (m *meter) release(l *live) {
	if l.closed {
		return
	}
	l.closed = true
	m.disarm(l)
	if l.net != nil {
		l.net.Close()
	}
	l.group.Close()
}

// compact takes closed containers out of the round.
func (m *meter) compact() {
	open := m.lives[:0]
	for _, l := range m.lives {
		if !l.closed {
			open = append(open, l)
		}
	}
	clear(m.lives[len(open):])
	m.lives = open
}

// attach finds a container's network.
func (m *meter) attach(l *live, now time.Time) {
	if !m.attachesFor(l) {
		return
	}
	h, err := m.nets.Attach(l.pid)
	switch {
	case err == nil:
		l.net, l.netDone = h, true
		if l.pod != nil {
			l.pod.network = l
		}
		_ = h.ReadNow(&l.sample)
	case errors.Is(err, netns.ErrShared):
		l.netDone = true // a pod's network is counted once
		m.ledger.SetNotMetered(l.segment, "network_bytes", "shares the network of another container")
	case errors.Is(err, netns.ErrHost) && m.know(l.id).container.NetworkMode == "host":
		l.netDone = true
		m.ledger.SetNotMetered(l.segment, "network_bytes", "host network")
	case errors.Is(err, cimeter.ErrGone):
		// The process was the runtime's own; another one is watched soon.
	}
}
