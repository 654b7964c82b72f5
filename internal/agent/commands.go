package agent

import (
	"context"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
)

// maxLooks bounds the looks at command lines that wait.
const maxLooks = 256

// look is a question for the stages that processes of a container run in.
type look struct {
	live *live
	ci   string // "" while it is not known
	pids []int
}

// readCommands has the command lines of a container looked at whose stage is
// open, and reports whether it is.
func (m *meter) readCommands(l *live) bool {
	k := m.know(l.id)
	open := l.inside || l.segment.Undecided() || !l.segment.Bound() && (k.stand == waiting || k.stand == nothing)
	if !open || m.opts.CommandStage == nil || l.looking {
		return open
	}
	pids, err := l.group.Procs(nil)
	if err != nil || len(pids) == 0 {
		return open
	}
	select {
	case m.looks <- look{live: l, ci: k.identity.Build.CI, pids: pids}:
		l.looking = true
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
		stage, inside, found := "", false, false
		for _, pid := range l.pids {
			b, err := a.procs.AppendCmdline(line[:0], pid)
			if err != nil {
				continue
			}
			stage, inside, found = a.opts.CommandStage(l.ci, b)
			clear(b) // it may hold a token
			if found {
				break
			}
		}
		a.meter.post(func() { a.meter.looked(l.live, stage, inside, found) })
	}
}

// looked takes what the command lines of a container told.
func (m *meter) looked(l *live, stage string, inside, found bool) {
	l.looking = false
	if !found || l.closed || !l.exited.IsZero() {
		return
	}
	switch {
	case !l.segment.Bound():
		l.command, l.inside = stage, inside
	case inside:
		l.inside = true
		m.enter(l, stage)
	default:
		m.ledger.Command(l.segment, time.Now(), stage)
	}
}

// enter reads a container's counters where one of its stages ends and the next
// begins.
func (m *meter) enter(l *live, stage string) {
	m.sample(l, cgroup.Full)
	if l.closed {
		return // it ended meanwhile
	}
	m.ledger.Enter(l.segment, time.Now(), stage, cimeter.BoundaryCommand, &l.sample)
}
