package agent

import (
	"errors"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/tally"
)

// takeShells books what families of processes spent. It is the meter's.
func (m *meter) takeShells(now time.Time) {
	s := m.shells
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.list[:0]
	for _, sh := range s.list {
		if m.takeShell(sh, now) {
			kept = append(kept, sh)
		}
	}
	clear(s.list[len(kept):])
	s.list = kept
	for _, holder := range s.freed {
		m.ledger.Gone(holder)
	}
	s.freed = s.freed[:0]
	for len(s.pausing) > 0 && !now.Before(s.pausing[0].until) {
		m.ledger.Gone(s.pausing[0].id)
		s.pausing = append(s.pausing[:0], s.pausing[1:]...)
	}
}

// takeShell books one family; false: it is done with.
func (m *meter) takeShell(sh *shell, now time.Time) bool {
	over := !sh.ended.IsZero()
	if !sh.known {
		if over {
			if cpu, ok := sh.sample.Counter(cimeter.CPUTotal); ok && sh.family.Runner != 0 {
				m.shells.gauges.unidentified.Add(float64(cpu) / 1e9)
			}
		}
		return !over
	}
	if sh.segment == nil && !sh.dropped {
		m.openShell(sh, now)
	}
	if sh.dropped {
		return !over
	}
	m.ledger.Advance(sh.segment, &sh.sample)
	if how := howMemory(sh.proportional); sh.memory != how {
		sh.memory = how
		m.ledger.SetNotMetered(sh.segment, "memory_bytes.peak", how)
	}
	if sh.command != "" && !sh.told {
		sh.told = true
		if !sh.fixed {
			m.ledger.Command(sh.segment, now, sh.command)
		} else {
			m.ledger.Enter(sh.segment, now, sh.command, cimeter.BoundaryCommand, &sh.sample)
		}
	}
	if sh.holder != "" {
		m.ledger.Known(sh.segment.BuildKey(), sh.holder)
		s := m.shells
		s.holders[sh.holder] = sh.family.Runner
	}
	if over {
		m.closeShell(sh, now)
	}
	return !over
}

// howMemory says in the record what the memory of processes is.
func howMemory(proportional bool) string {
	if proportional {
		return "no cgroup: memory is looked at, and is what the processes have resident, shared pages divided between those that share them (Pss)"
	}
	return "no cgroup: memory is looked at, and is what the processes have resident, shared pages counted for each (Rss)"
}

// eachShell calls fn for each running family that has a segment.
func (m *meter) eachShell(fn func(*shell)) {
	if m.shells == nil {
		return
	}
	m.shells.mu.Lock()
	defer m.shells.mu.Unlock()
	for _, sh := range m.shells.list {
		if sh.segment != nil && !sh.dropped && sh.ended.IsZero() {
			fn(sh)
		}
	}
}

// openShell begins the segment of a family.
func (m *meter) openShell(sh *shell, now time.Time) {
	if sh.late && !m.restored.IsZero() {
		sh.segment = m.ledger.Resume(sh.id, sh.start, now)
	}
	if sh.segment == nil {
		sh.segment = m.ledger.Open(sh.id, "", sh.start, sh.started, !sh.late)
	}
	sh.segment.By(cimeter.BoundaryProcess)
	id := sh.identity
	if sh.fixed && id.Stage == "" {
		id.Stage, sh.told = sh.command, true
		sh.segment.By(cimeter.BoundaryCommand)
	}
	m.ledger.SetNotMetered(sh.segment, "network_bytes", "processes of the machine, which share its network")
	if err := m.ledger.Bind(sh.segment, now, m.shells.opts.Container, id); err != nil {
		sh.dropped = true
		if errors.Is(err, cimeter.ErrConflict) {
			m.gauges.disputed.Add(1)
		} else {
			m.gauges.droppedBuilds.Add(1)
		}
		m.log.Warn("processes not booked on the build they claim", "process", sh.family.Root, "err", err)
		return
	}
	m.askJobs()
	m.changed(sh.segment.BuildKey(), now)
}

// closeShell ends the segment of a family.
func (m *meter) closeShell(sh *shell, now time.Time) {
	if sh.scanned {
		m.ledger.SegmentGap(sh.segment, cimeter.Gap{From: sh.started, To: sh.ended, Reason: cimeter.GapProcessesScanned})
	}
	m.ledger.Close(sh.segment, sh.ended, sh.exit)
	if m.shells.opts.Pauses(sh.identity.Build.CI) {
		m.shells.pausing = append(m.shells.pausing, pause{sh.id, now.Add(min(pauseFor, m.opts.Quiet))})
	} else {
		m.ledger.Gone(sh.id)
	}
	m.changed(sh.segment.BuildKey(), now)
}

// shellGauges are what is told of processes.
type shellGauges struct {
	processes, runners, eventsUp, events, overruns *tally.Value
	read, gone, dropped, missed, unidentified      *tally.Value
	missedBefore                                   uint64
}

func newShellGauges(t *tally.Table) shellGauges {
	return shellGauges{
		processes:    t.Value(catalog.AgentProcesses),
		runners:      t.Value(catalog.AgentProcessRunners),
		eventsUp:     t.Value(catalog.AgentProcessEventsUp),
		events:       t.Value(catalog.AgentProcessEvents),
		overruns:     t.Value(catalog.AgentProcessOverruns),
		read:         t.Value(catalog.AgentProcessEnds, "read"),
		gone:         t.Value(catalog.AgentProcessEnds, "gone"),
		dropped:      t.Value(catalog.AgentDropped, "processes"),
		missed:       t.Value(catalog.AgentProcessMissedCPU, "unseen"),
		unidentified: t.Value(catalog.AgentProcessMissedCPU, "unidentified"),
	}
}

// count brings them up to date.
func (s *shells) count() {
	g, now := &s.gauges, s.forest.Stats()
	g.processes.Set(float64(s.forest.Processes()))
	g.runners.Set(float64(s.forest.Runners()))
	g.read.Add(float64(now.Read - s.counts.Read))
	g.gone.Add(float64(now.Gone - s.counts.Gone))
	g.dropped.Add(float64(now.Dropped - s.counts.Dropped))
	s.counts = now
	missed := s.forest.Missed()
	g.missed.Add(float64(missed-g.missedBefore) / 1e9)
	g.missedBefore = missed
}
