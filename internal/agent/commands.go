package agent

import (
	"context"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
	"github.com/cimeter/cimeter/internal/process"
)

const (
	// maxLooks bounds the looks at command lines that wait.
	maxLooks = 256
	// maxCommands bounds the processes of a container that one look is at.
	maxCommands = 256
	// commandLook is the delay between looks at command lines while the stage of a
	// segment is open, or changed lately.
	commandLook = 25 * time.Millisecond
	// steadyLooks is after how many looks without a change the delay doubles.
	steadyLooks = 40
	// steadyDoubles is how often it does: to 0.8 s, after half a minute.
	steadyDoubles = 5
	// parkInterval is the longest time between rounds that may pass without a look.
	parkInterval = time.Second
	// freshLook is every how many looks command lines are read again though the
	// processes are the same, once nothing has changed for 2*steadyLooks: one may have
	// become another program.
	freshLook = 4
	// idleLooks is after how many looks that find nothing of a stage a container is
	// taken to wait: a process that becomes another has no command line for a moment.
	idleLooks = 2
)

// CommandTold is what the command line of a process tells. The zero value tells
// that it is a process of the build, of no stage that it would know.
type CommandTold struct {
	Stage  string // that it is part of; "" is not told
	Inside bool   // Stage is what its container is in now, which may go through several
	Own    bool   // it is the runner's, and is there while the container waits
}

// look is a question for the stages that processes of a container run in.
type look struct {
	live     *live
	identity cimeter.Identity // its zero value while it is not known
	pids     []int
	since    uint64 // of those that began later the stage is new; ticks since the machine began
	named    bool   // command lines of the build have named stages
	teller   int    // the process that told the stage
}

// turns is how the stages of a container are followed that goes through several.
type turns struct {
	stage  string    // it was told to be in last
	named  bool      // command lines of the build have named stages
	next   bool      // stage is the identity's Next, as no command line names one
	procs  uint64    // the processes at the last look
	steady int       // looks since anything changed
	parked bool      // looked at with a round only, where it has used CPU time
	cpu    uint64    // of the reading at the last look while it is parked, nanoseconds
	idle   int       // looks since a stage was told
	held   bool      // the last round's reading waits for a look
	looks  [2]uint64 // when its processes were looked at last, and before; ticks since the machine began
}

// pace is the time to the next look.
func (t *turns) pace() time.Duration {
	return commandLook << min(t.steady/steadyLooks, steadyDoubles)
}

// openPace is the time to the next look at a segment whose stage is open: the
// longer nothing told it, the longer. One that ran already when it was found,
// beside hundreds of others after a start, is not about to begin a stage.
func openPace(age time.Duration, late bool) time.Duration {
	if late {
		return lastLook
	}
	return max(commandLook, age/32)
}

// nextTurn is when the stage of a container that goes through several is looked for
// again. One that has not changed for long is parked: without CPU time nothing in it
// has begun, and a round tells that anyway.
func (m *meter) nextTurn(l *live, now time.Time) time.Time {
	if l.turns.steady >= steadyLooks*steadyDoubles && m.opts.Interval <= parkInterval {
		l.turns.parked, l.turns.cpu = true, l.cpu()
		return time.Time{}
	}
	return now.Add(l.turns.pace())
}

// stirs reports whether a container that waits has used CPU time that is not booked
// yet, and has it looked at. What it has used is booked when that has told whether a
// stage has begun: by the look, or by the next round.
func (m *meter) stirs(l *live) bool {
	cpu, _ := l.sample.Counter(cimeter.CPUTotal)
	if !l.inside || l.turns.stage != cimeter.StageWaiting || cpu <= l.cpu() || l.turns.held {
		l.turns.held = false
		return false
	}
	m.readCommands(l)
	l.turns.held = l.looking
	return l.looking
}

// lookParked looks at a parked container that has used CPU time since it was looked
// at last.
func (m *meter) lookParked(l *live) {
	if l.turns.parked && l.cpu() != l.turns.cpu {
		l.turns.cpu = l.cpu()
		m.readCommands(l)
	}
}

// same reports whether the processes are those of the last look, whose answer
// stands then.
func (t *turns) same(pids []int) bool {
	h := uint64(14695981039346656037) // FNV-1a, a process at a time
	for _, pid := range pids {
		h = (h ^ uint64(pid)) * 1099511628211
	}
	same := h == t.procs && t.idle != 1 && t.steady > 2*steadyLooks && t.steady%freshLook != 0
	t.procs = h
	return same
}

// readCommands has the command lines of a container looked at whose stage is
// open, and reports whether it is.
func (m *meter) readCommands(l *live) bool {
	k := m.know(l.id)
	open := l.inside || l.segment.Undecided() || !l.segment.Bound() && (k.stand == waiting || k.stand == nothing)
	if !open || m.opts.CommandStage == nil || l.looking {
		return open
	}
	now := process.Ticks()
	pids, err := l.group.Procs(nil)
	if err != nil || len(pids) == 0 {
		return open
	}
	if l.inside {
		l.turns.steady++
		if l.turns.same(pids) {
			l.turns.at(now)
			return open
		}
	}
	select {
	case m.looks <- look{
		live: l, identity: k.identity, pids: pids[:min(len(pids), maxCommands)], since: l.turns.since(), named: l.turns.named,
	}:
		l.looking = true
		l.turns.at(now)
	default: // the next look comes soon
	}
	return open
}

// lookAtCommands reads command lines for the meter. Reading one waits for the
// process's memory map, which a process that starts others holds for tens of
// milliseconds: the meter itself must not.
func (a *Agent) lookAtCommands(ctx context.Context) {
	var line [4096]byte
	for {
		var l look
		select {
		case <-ctx.Done():
			return
		case l = <-a.looks:
		}
		told, foreign := CommandTold{}, false
		for _, pid := range l.pids {
			b, err := a.procs.AppendCmdline(line[:0], pid)
			if err != nil {
				continue
			}
			told = a.opts.CommandStage(&l.identity, b)
			clear(b) // it may hold a token
			if told.Stage != "" {
				l.teller = pid
				break
			}
			foreign = foreign || !told.Own
		}
		next := told.Stage == "" && l.identity.Inside && foreign && l.identity.Next != "" && !l.named
		if next {
			told = CommandTold{Stage: l.identity.Next, Inside: true}
		}
		a.meter.post(func() { a.meter.looked(&l, told, next) })
	}
}

// looked takes what the command lines of a container told. next: they named no
// stage, and some process is the build's. It stays in that stage then: what a shell
// does itself is no process.
func (m *meter) looked(by *look, told CommandTold, next bool) {
	l := by.live
	l.looking = false
	if l.closed || !l.exited.IsZero() {
		return
	}
	if told.Stage == "" {
		if l.turns.idle++; l.turns.idle == idleLooks && !l.turns.next && l.segment.Bound() && m.know(l.id).identity.Inside {
			m.enter(l, cimeter.StageWaiting, nil)
		}
		return
	}
	l.turns.idle, l.turns.next = 0, next
	switch {
	case !l.segment.Bound():
		if l.toldBy != nil && l.command == told.Stage {
			by.since, by.teller = l.toldBy.since, l.toldBy.teller // it began then
		}
		l.command, l.inside, l.toldBy = told.Stage, told.Inside, by
	case told.Inside:
		l.inside = true
		m.enter(l, told.Stage, by)
	default:
		m.ledger.Command(l.segment, time.Now(), told.Stage)
	}
}

// enter reads a container's counters where one of its stages ends and the next
// begins; by is the look that found it so, where its processes tell since when. What
// is the end of a stage in one container is often the beginning of another in the
// next: all of the build are looked at often again.
func (m *meter) enter(l *live, stage string, by *look) {
	if l.turns.stage == stage {
		return
	}
	err := m.read(l, cgroup.Full)
	read, begun := l.sample, beginning{}
	if by != nil && err == nil && (!l.read.IsZero() || !l.late && !l.resumed) {
		begun = m.begun(by)
		begun.takeFrom(&l.sample, &l.booked)
	}
	m.sampled(l, cgroup.Full, err)
	if l.closed {
		return // it ended meanwhile
	}
	l.turns.stage = stage
	if l.group.ResetPeak() {
		l.sample.SetGauge(cimeter.MemoryPeak, 0) // of the stage that begins
	}
	now := time.Now()
	m.ledger.Enter(l.segment, now.Add(-begun.ago), stage, cimeter.BoundaryCommand, &l.sample)
	if begun.cpu > 0 {
		begun.giveBack(&l.sample, &read)
		m.advance(l)
	}
	key, named := l.segment.BuildKey(), !l.turns.next && stage != cimeter.StageWaiting
	for _, o := range m.lives {
		if o.inside && !o.closed && o.segment.BuildKey() == key {
			o.turns.steady, o.turns.named = 0, o.turns.named || named
			if o.turns.parked {
				o.turns.parked, o.look = false, now.Add(commandLook)
				m.unsettled = append(m.unsettled, o)
			} else if soon := now.Add(commandLook); !o.look.IsZero() && o.look.After(soon) {
				o.look = soon
			}
		}
	}
}

// follow begins to follow the stages of a container whose identity says that it has
// several.
func (m *meter) follow(l *live, id *cimeter.Identity) {
	if id.Inside && !l.inside {
		l.inside = true
		l.turns = turns{stage: id.Stage, looks: l.turns.looks}
	}
}
