package agent

import (
	"errors"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/cgroup"
	"github.com/cimeter/cimeter/internal/process"
)

// maxPieces bounds the parts of builds that are read apart, each with a dozen
// descriptors. What is over it is in the counters of what it is nested in.
const maxPieces = 256

// piece is a cgroup that is a part of a build and has no account of its own: a
// container or a build step nested in one of the build's containers, or a build
// step beside them.
type piece struct {
	path, id string
	kind     cimeter.PartKind
	group    *cgroup.Group
	inode    uint64
	sample   cimeter.Sample
	within   *live  // a container of the build; nil: beside
	engine   *live  // the container that it is nested in, where that is no build's; else nil
	beside   beside // where within is nil
	told     uint64 // CPU time that was counted as beside builds, nanoseconds
	born     time.Time
	late     bool   // it had run when counting of what it is in began
	resumed  bool   // an earlier process has told of it
	kills    uint64 // of its processes, told to what it is in
	read     bool

	token      uint64
	pidfd, pid int // pidfd is -1 while no process is watched
	events     bool

	looks  int
	look   time.Time
	exited time.Time // when nobody was left in it; zero before
	closed bool
}

// lookInto watches for what is nested in a container of a build, or in one of nobody's
// that may hold an engine which builds share. Where that was done before it was known
// which of them it is, what is there is told again.
func (m *meter) lookInto(l *live) {
	known := l.segment.Bound() || m.nobodys(l) != nil
	if l.closed || l.within && (l.withKnown || !known) {
		return
	}
	l.within, l.withKnown, l.walking = true, known, true
	m.watch.Within(l.path, m.happened)
	l.walking = false
}

// pieceAppeared takes up a cgroup that is no container of its own. in is what it is
// nested in, nil for a build step beside all containers.
func (m *meter) pieceAppeared(p string, in *live) {
	old := m.pieces[p]
	if old != nil && !old.closed {
		return
	}
	q := &piece{path: p, kind: cimeter.PartContainer, within: in, pidfd: -1, pid: -1}
	var ok bool
	if q.id, ok = cgroup.BuildStep(p); ok {
		q.kind = cimeter.PartBuildStep
	} else if q.id, ok = cgroup.ContainerID(path.Base(p)); !ok {
		return
	}
	var engine *known // that builds may share
	switch {
	case in == nil:
	case in.closed:
		return
	case !in.segment.Bound():
		if engine = m.shared(in); engine == nil {
			return
		}
		q.within, q.engine = nil, in
	}
	if len(m.pieces) >= maxPieces {
		m.gauges.droppedParts.Add(1)
		return
	}
	now := time.Now()
	var err error
	if q.group, err = m.host.Group(p); err != nil {
		m.log.Debug("part of a build not read", "cgroup", p, "err", err) // it is in the counters of what it was in
		return
	}
	q.inode, q.born = q.group.Inode(), now
	if old != nil && old.inode == q.inode {
		q.group.Close() // it has ended; only the folder is still there
		return
	}
	if q.within == nil {
		if q.beside = m.whose(now, nil, p); q.beside.by == "" {
			q.group.Close() // nobody's: the machine's own
			return
		}
		if engine != nil {
			m.sharedBy(engine, in)
		}
	} else {
		q.late = in.walking && in.late
		q.resumed = in.walking && in.resumed
	}
	m.token++
	q.token = m.token
	m.pieces[p], m.pieceTokens[q.token] = q, q
	q.look = now
	m.lookPiece(q, now)
	if q.late {
		m.readPiece(q, cgroup.Full) // where counting begins
		m.tellPiece(q, time.Time{})
	}
	m.unsettledPieces = append(m.unsettledPieces, q)
}

// settlePieces is settle for pieces.
func (m *meter) settlePieces(now, until time.Time) time.Time {
	open := m.unsettledPieces[:0]
	for _, p := range m.unsettledPieces {
		if !p.closed && !p.look.After(now) {
			if p.exited.IsZero() {
				m.lookPiece(p, now)
			} else {
				m.closePiece(p)
			}
		}
		if p.closed || p.look.IsZero() {
			continue
		}
		if p.look.Before(until) {
			until = p.look
		}
		open = append(open, p)
	}
	clear(m.unsettledPieces[len(open):])
	m.unsettledPieces = open
	return until
}

// lookPiece opens files that the runtime makes late, and watches a process.
func (m *meter) lookPiece(p *piece, now time.Time) {
	p.looks++
	p.group.Retry()
	if !p.events {
		if f := p.group.EventsFile(); f != "" {
			p.events = m.watch.AddFile(f, p.token) == nil
		}
	}
	if p.pidfd < 0 {
		m.armPiece(p, -1)
	}
	switch {
	case p.pidfd >= 0 && p.looks > 1, now.Sub(p.born) > settleFor:
		p.look = time.Time{}
	default:
		p.look = now.Add(min(firstLook<<min(p.looks-1, 10), lastLook))
	}
}

// armPiece watches a process of the piece that is not ended; false: none is left.
func (m *meter) armPiece(p *piece, ended int) bool {
	var buf [16]int
	for _, pid := range p.group.ProcsBelow(buf[:0], len(buf)) {
		if pid == ended || pid <= 0 {
			continue
		}
		fd, err := process.OpenPidfd(pid)
		if err != nil {
			if errors.Is(err, cimeter.ErrGone) {
				continue
			}
			return true // the rounds look for its end
		}
		if err := m.watch.AddPidfd(fd, p.token); err != nil {
			unix.Close(fd)
			return true
		}
		p.pidfd, p.pid = fd, pid
		return true
	}
	return false
}

func (m *meter) disarmPiece(p *piece) {
	if p.pidfd >= 0 {
		m.watch.RemovePidfd(p.pidfd)
		unix.Close(p.pidfd)
		p.pidfd = -1
	}
}

// checkPiece is check for a piece.
func (m *meter) checkPiece(p *piece, now time.Time, ended bool) {
	if p.closed {
		return
	}
	if p.pid >= 0 {
		m.readPiece(p, cgroup.Full)
	}
	if ended {
		last := p.pid
		m.disarmPiece(p)
		if m.armPiece(p, last) {
			return
		}
	}
	switch {
	case p.pid < 0:
		if !ended {
			m.lookPiece(p, now) // the first process came
		}
	case p.pidfd >= 0:
	case p.exited.IsZero():
		p.exited = now
		p.look = now.Add(lastRead)
		m.unsettledPieces = append(m.unsettledPieces, p)
	}
}

// closePiece ends a piece after its last process ended.
func (m *meter) closePiece(p *piece) {
	if m.armPiece(p, p.pid) {
		p.exited, p.look = time.Time{}, time.Time{}
		return // somebody joined in the meantime
	}
	m.readPiece(p, cgroup.Full)
	m.endPiece(p, p.exited)
}

// pieceRemoved ends a piece whose cgroup was removed.
func (m *meter) pieceRemoved(p *piece, now time.Time) {
	delete(m.pieces, p.path)
	if p.closed {
		return
	}
	if p.exited.IsZero() {
		p.exited = now
	}
	m.endPiece(p, p.exited)
}

func (m *meter) endPiece(p *piece, end time.Time) {
	m.tellPiece(p, end)
	p.closed = true
	m.disarmPiece(p)
	p.group.Close()
	delete(m.pieceTokens, p.token)
}

// endWithin ends what is nested in a container that has ended.
func (m *meter) endWithin(l *live, end time.Time) {
	if !l.within {
		return
	}
	for _, p := range m.pieces {
		if p.within == l || p.engine == l {
			if !p.closed && p.exited.IsZero() {
				m.readPiece(p, cgroup.Full)
				p.exited = end
			}
			m.pieceRemoved(p, end)
		}
	}
}

// readPieces reads all pieces: what runs them may remove them in the same moment
// in which they end, sooner than a container's engine does.
func (m *meter) readPieces(now time.Time) {
	tier := cgroup.Fast
	if m.rounds%m.opts.FullEvery == 0 {
		tier = cgroup.Full
	}
	for path, p := range m.pieces {
		if p.closed || !p.exited.IsZero() {
			continue
		}
		if m.readPiece(p, tier); p.closed {
			delete(m.pieces, path) // no event told
			continue
		}
		if p.pidfd < 0 {
			m.checkPiece(p, now, true)
		}
		if !p.closed && tier == cgroup.Full {
			m.tellPiece(p, time.Time{})
		}
	}
}

// readPiece reads a piece's counters. One that is gone keeps what it showed last.
func (m *meter) readPiece(p *piece, tier cgroup.Tier) {
	if err := p.group.Read(&p.sample, tier); err != nil {
		if errors.Is(err, cimeter.ErrGone) {
			m.gauges.readsGone.Add(1)
			m.endPiece(p, time.Now())
			return
		}
		m.gauges.readErrors.Add(1)
	}
	m.gauges.reads.Add(1)
	m.passKills(p)
}

// passKills adds the kills in a nested cgroup to those that its container tells of
// what is below it: v1 counts them in the cgroup alone that the victim was in.
func (m *meter) passKills(p *piece) {
	l := p.within
	kills, ok := p.sample.Counter(cimeter.OOMKills)
	if l == nil || !ok || m.host.Layout() == "v2" {
		return
	}
	if !p.read && (p.resumed || p.late) {
		p.kills = kills // told before, or not the build's
	}
	p.read = true
	l.nestedKills += kills - min(p.kills, kills)
	rose := kills > p.kills
	p.kills = kills
	l.sample.SetCounter(cimeter.OOMKillsNested, l.nestedKills)
	if rose && !l.closed {
		m.ledger.Advance(l.segment, &l.sample)
	}
}

// tellPiece tells the ledger what is known of a piece; end is zero while it runs.
func (m *meter) tellPiece(p *piece, end time.Time) {
	if p.within == nil {
		r := part(p.path, p.inode, p.kind, p.id, p.born, end, &p.sample)
		before := p.told
		m.tellBeside(&p.beside, &p.told, &r)
		if p.engine != nil {
			p.engine.besideTold += p.told - before // it is in that container's counter, too
		}
		return
	}
	r := part(p.path, p.inode, p.kind, p.id, p.born, end, &p.sample)
	r.Attribution, r.Late = cimeter.AttributedNested, p.late
	m.ledger.Piece(p.within.segment.BuildKey(), p.within.segment, &r)
}

// part is what a sample says of a part.
func part(path string, inode uint64, kind cimeter.PartKind, id string, born, end time.Time, s *cimeter.Sample) attrib.Piece {
	p := attrib.Piece{Path: path, Inode: inode, Kind: kind, ID: id, Started: born, Ended: end}
	if v, ok := s.Counter(cimeter.CPUTotal); ok {
		p.CPU = cimeter.Some(v)
	}
	if v, ok := s.Gauge(cimeter.MemoryPeak); ok {
		p.Peak = cimeter.Some(v)
	}
	own, ok := s.Counter(cimeter.OOMKills)
	below, okBelow := s.Counter(cimeter.OOMKillsNested)
	if ok || okBelow {
		p.Kills = cimeter.Some(own + below)
	}
	return p
}

// releasePieces gives the descriptors of all pieces back.
func (m *meter) releasePieces() {
	for _, p := range m.pieces {
		if !p.closed {
			m.readPiece(p, cgroup.Full)
		}
		if !p.closed {
			m.tellPiece(p, time.Time{})
			p.closed = true
			m.disarmPiece(p)
			p.group.Close()
		}
	}
}
