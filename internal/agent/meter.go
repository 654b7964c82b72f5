package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
	"github.com/cimeter/cimeter/internal/watch"
)

// lookEvery is after how many containers of a round the meter looks whether one
// ended: a final read must come within the 10 ms that a runtime takes to remove
// a cgroup, and a round over hundreds takes as long.
const lookEvery = 16

// rescanEvery is the number of rounds after which folders that could not be
// watched are walked; only where there are any.
const rescanEvery = 5

// calmAfter is how long after the last birth, end or removal of a container the
// meter itself reads networks: a runtime is done with those by then.
const calmAfter = 5 * time.Second

// maxStall is how long a reading of all networks may have kept the meter before
// it leaves them to another goroutine for a while: far more than it takes.
const maxStall = 2 * time.Millisecond

// meter is the goroutine that reads counters. Everything in it belongs to that
// goroutine but the inbox.
type meter struct {
	*Agent
	lives  []*live // containers whose cgroups exist, in the order of their births
	paths  map[string]*live
	tokens map[uint64]*live
	token  uint64
	known  map[string]*known
	// Parts of builds, by path and by token; those of them that something is still
	// to be found out about; and who had an engine's socket lately.
	pieces          map[string]*piece
	pieceTokens     map[uint64]*piece
	unsettledPieces []*piece
	held            []hold
	podman          bool                 // it is followed: there may be pods of its
	pods            map[string]*pod      // by UID
	due             map[string]time.Time // when each running build is checkpointed next
	rounds          int
	gauges          gauges
	stirred         time.Time // when a container last came, ended or went
	restored        time.Time // when builds of an earlier life were taken up; zero once what is gone of them is given up
	// unsettled are those of lives that something is still to be found out about.
	unsettled []*live
	// ended are those whose last process has just ended: their counters of CPU
	// and network are read, the others not yet.
	ended []*live

	mu    sync.Mutex
	inbox []func()
	spare []func()
}

func newMeter(a *Agent) *meter {
	self, err := a.procs.Self()
	if err != nil {
		a.log.Warn("own memory is not told", "err", err)
	}
	return &meter{
		Agent: a, paths: make(map[string]*live), tokens: make(map[uint64]*live), known: make(map[string]*known),
		pieces: make(map[string]*piece), pieceTokens: make(map[uint64]*piece), due: make(map[string]time.Time), pods: make(map[string]*pod),
		podman: slices.ContainsFunc(a.engines, func(f *followed) bool { return strings.HasPrefix(f.Name, "podman") }),
		gauges: newGauges(a.opts.Tally, self, a.opts.Machine),
	}
}

// post has f called by the meter goroutine. Any goroutine may post.
func (m *meter) post(f func()) {
	m.mu.Lock()
	m.inbox = append(m.inbox, f)
	m.mu.Unlock()
	m.watch.Wake()
}

func (m *meter) takeInbox() {
	m.mu.Lock()
	m.inbox, m.spare = m.spare[:0], m.inbox
	m.mu.Unlock()
	for i, f := range m.spare {
		f()
		m.spare[i] = nil
	}
}

// begin takes up the builds of an earlier life and the containers that run.
func (m *meter) begin(now time.Time) {
	err := m.opts.Records.Checkpoints(func(key string, state []byte) error {
		if err := m.ledger.Restore(state, now); err != nil {
			m.log.Warn("checkpoint dropped", "build", key, "err", err)
			m.writer.checkpoint(key, nil)
		}
		return nil
	})
	if err != nil {
		m.log.Warn("checkpoints not read", "err", err)
	}
	if err := m.watch.Scan(func(e watch.Event) { m.appeared(e.Path, false) }); err != nil {
		m.log.Error("cgroups not scanned", "err", err)
	}
	m.restored = now
	if m.shells != nil {
		m.shells.begin(now)
		m.takeShells(now)
	} else {
		m.abandon()
	}
	m.stirred = time.Now()
	m.log.Info("metering", "cgroups", m.host.Layout(), "containers", len(m.lives), "builds", m.ledger.Builds())
	m.covered.startedUnix.Store(now.UnixNano())
	m.started.Store(true)
}

// abandon gives up the segments of an earlier life that nothing has taken up.
func (m *meter) abandon() {
	m.ledger.Abandon(m.restored)
	m.restored = time.Time{}
}

// loop meters until ctx ends.
func (m *meter) loop(ctx context.Context) error {
	next := time.Now()
	for ctx.Err() == nil {
		now := time.Now()
		m.alive(now)
		if !now.Before(next) {
			m.round(now)
			next = next.Add(m.opts.Interval)
			if now.After(next) { // starved: the intervals are recorded as they were
				next = now.Add(m.opts.Interval)
			}
			continue
		}
		if err := m.watch.Wait(m.untilAlive(m.settle(now, next).Sub(now)), m.happened); err != nil {
			return err
		}
		m.readEnded()
		m.takeInbox()
	}
	return nil
}

// alive tells that the loop turns: all rounds that were due are done.
func (m *meter) alive(now time.Time) {
	if m.opts.Alive != nil {
		m.opts.Alive(now)
	}
}

// untilAlive shortens a wait so that alive is told often enough.
func (m *meter) untilAlive(d time.Duration) time.Duration {
	if m.opts.Alive != nil && m.opts.AliveEvery > 0 {
		return min(d, m.opts.AliveEvery)
	}
	return d
}

// happened takes one event of the watcher.
func (m *meter) happened(e watch.Event) {
	m.stirred = time.Now()
	switch e.Kind {
	case watch.Born:
		m.appeared(e.Path, true)
	case watch.Removed:
		if l := m.paths[e.Path]; l != nil {
			m.vanish(l, time.Now())
		} else if p := m.pieces[e.Path]; p != nil {
			m.pieceRemoved(p, time.Now())
		}
	case watch.Exited, watch.Changed:
		if l := m.tokens[e.Token]; l != nil {
			m.check(l, time.Now(), e.Kind == watch.Exited)
		} else if p := m.pieceTokens[e.Token]; p != nil {
			m.checkPiece(p, time.Now(), e.Kind == watch.Exited)
		}
	case watch.Overflow:
		m.gauges.overflows.Add(1)
		m.rescan(time.Now())
	}
}

// readNetworks reads the counters of all networks. While containers come and go
// the kernel makes whoever asks wait for the runtime that makes and removes
// their networks, and a goroutine of its own waits for it; else the meter asks
// itself, as waking another thread costs more than to ask.
func (m *meter) readNetworks(now time.Time) {
	if now.Sub(m.stirred) < calmAfter {
		select {
		case m.refresh <- struct{}{}:
		default: // the last one still waits for the kernel
		}
		return
	}
	m.refreshNetworks()
	if time.Since(now) > maxStall {
		m.stirred = time.Now() // somebody else changes networks
	}
}

// rescan finds births and removals that no event told.
func (m *meter) rescan(now time.Time) {
	seen := make(map[string]bool, len(m.paths))
	if err := m.watch.Scan(func(e watch.Event) {
		seen[e.Path] = true
		m.appeared(e.Path, true)
	}); err != nil {
		m.log.Error("cgroups not scanned", "err", err)
		return
	}
	for path, l := range m.paths {
		if !seen[path] {
			m.vanish(l, now)
		}
	}
	for path, p := range m.pieces {
		if !seen[path] {
			m.pieceRemoved(p, now)
		}
	}
}

// round samples every container once and ends the ledger's interval.
func (m *meter) round(now time.Time) {
	before := m.gauges.cpu()
	m.rounds++
	m.readNetworks(now)
	for i := 0; i < len(m.lives); i++ {
		l := m.lives[i]
		tier := cgroup.Fast
		if (m.rounds+i)%m.opts.FullEvery == 0 || !l.full {
			tier = cgroup.Full
			l.pauses = l.full && m.pauses(l)
			l.full = true
		}
		switch {
		case l.closed || !l.exited.IsZero():
		case l.pauses && (m.rounds+i)%(m.opts.FullEvery*pauseEvery) != 0:
			m.readNetworkOf(l)
		default:
			if err := m.read(l, tier); err != nil || !m.stirs(l) {
				m.sampled(l, tier, err)
				m.lookParked(l)
			}
		}
		if i%lookEvery == lookEvery-1 {
			if err := m.watch.Wait(0, m.happened); err != nil {
				break // told by the loop's own wait
			}
			m.readEnded()
		}
	}
	m.compact()
	m.readPieces(now)
	if m.rounds%m.opts.FullEvery == 0 {
		m.tellBesides()
	}
	if _, missed := m.watch.Folders(); missed > 0 && m.rounds%rescanEvery == 0 {
		m.rescan(now)
	}
	m.takeShells(now)
	if !m.restored.IsZero() && now.Sub(m.restored) >= resumeFor {
		m.abandon()
	}
	machine := m.machineCPU()
	m.ledger.Tick(now, machine)
	for _, r := range m.ledger.Finish(now) {
		m.finished(r)
	}
	m.checkpoints(now)
	m.forget(now)
	m.forgetPods(now)
	m.gauges.round(m, machine, before)
}

func (m *meter) machineCPU() cimeter.Opt[uint64] {
	ns, err := m.host.MachineCPU()
	if err != nil {
		return cimeter.Opt[uint64]{}
	}
	return cimeter.Some(ns)
}

// sample reads a container's counters and books their rise.
func (m *meter) sample(l *live, tier cgroup.Tier) {
	m.sampled(l, tier, m.read(l, tier))
}

// read reads a container's counters.
func (m *meter) read(l *live, tier cgroup.Tier) error {
	err := l.group.Read(&l.sample, tier)
	if l.net != nil {
		_ = l.net.Read(&l.sample) // gone: the last values stand
	}
	return err
}

// sampled takes a container's counters as they were read, with the error of that.
func (m *meter) sampled(l *live, tier cgroup.Tier, err error) {
	m.book(l, err)
	if tier == cgroup.Full {
		m.limit(l, time.Now())
	}
	switch {
	case errors.Is(err, cimeter.ErrGone):
		m.vanish(l, time.Now()) // no event told
	case l.pidfd < 0 && err == nil:
		m.check(l, time.Now(), true) // no descriptor tells of its end
	}
}

// book hands what was read to the ledger.
func (m *meter) book(l *live, err error) {
	switch {
	case err == nil:
		m.gauges.reads.Add(1)
		l.read = time.Now()
	case errors.Is(err, cimeter.ErrGone):
		m.gauges.readsGone.Add(1)
		return
	default:
		m.gauges.readErrors.Add(1)
	}
	m.advance(l)
}

// advance books what a container's sample shows more than the last.
func (m *meter) advance(l *live) {
	m.ledger.Advance(l.segment, &l.sample)
	before := l.cpu()
	for i, c := range ofProcesses {
		v, _ := l.sample.Counter(c)
		l.booked[i] = max(l.booked[i], v)
	}
	if l.parent != nil {
		l.parent.captured += l.cpu() - before
	}
}

// finished takes a record off the ledger's hands.
func (m *meter) finished(r *cimeter.Record) {
	if m.opts.NoTrace {
		r.Trace = nil
	}
	r.Host = m.size
	for _, g := range r.Gaps {
		m.gauges.gap(g.Reason)
	}
	m.writer.put(r)
	m.log.Debug("build metered", "build", r.Key, "result", r.Result, "stages", len(r.Stages), "complete", r.Complete)
}

// end stops metering at now: what runs is read once more and checkpointed.
func (m *meter) end(now time.Time) {
	m.takeInbox()
	for _, l := range m.lives {
		if l.exited.IsZero() && !l.closed {
			m.sample(l, cgroup.Full)
		}
	}
	m.releasePieces()
	m.tellBesides()
	m.takeShells(now)
	m.ledger.Drain(now)
	for _, key := range m.ledger.Keys() {
		m.checkpoint(key, now)
	}
	for _, l := range m.lives {
		m.release(l)
	}
}
