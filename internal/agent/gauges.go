package agent

import (
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/process"
	"github.com/cimeter/cimeter/internal/tally"
)

// gauges are what the agent says of itself and of its machine.
type gauges struct {
	tally *tally.Table
	self  *process.Self

	containers, segmentsBirth, segmentsLate, segmentsMissed *tally.Value
	reads, readsGone, readErrors, readsDegraded             *tally.Value
	rounds, roundCPU, ownCPU, memory                        *tally.Value
	droppedContainers, droppedKnown, droppedBuilds          *tally.Value
	droppedInspections                                      *tally.Value
	overflows, disputed                                     *tally.Value
	uncaptured, coverage, droppedParts                      *tally.Value
	beside                                                  map[cimeter.Attribution]*tally.Value
	machineBuilds, machineOther, machineOwn                 *tally.Value

	machine    uint64 // CPU time of the machine at the last round, nanoseconds
	attributed uint64
	besides    uint64 // what was attributed to builds that is beside them, nanoseconds
	own        time.Duration
	degraded   uint64
	parents    map[string]*parent
}

func newGauges(t *tally.Table, self *process.Self, machine string) gauges {
	return gauges{
		tally:              t,
		self:               self,
		containers:         t.Value(catalog.AgentContainers),
		segmentsBirth:      t.Value(catalog.AgentSegments, "birth"),
		segmentsLate:       t.Value(catalog.AgentSegments, "late"),
		segmentsMissed:     t.Value(catalog.AgentSegments, "missed"),
		reads:              t.Value(catalog.AgentReads, "ok"),
		readsGone:          t.Value(catalog.AgentReads, "gone"),
		readErrors:         t.Value(catalog.AgentReads, "error"),
		readsDegraded:      t.Value(catalog.AgentReads, "degraded"),
		rounds:             t.Value(catalog.AgentRounds),
		roundCPU:           t.Value(catalog.AgentRoundCPU),
		ownCPU:             t.Value(catalog.AgentCPU),
		memory:             t.Value(catalog.AgentMemory),
		droppedContainers:  t.Value(catalog.AgentDropped, "containers"),
		droppedKnown:       t.Value(catalog.AgentDropped, "metadata"),
		droppedBuilds:      t.Value(catalog.AgentDropped, "builds"),
		droppedInspections: t.Value(catalog.AgentDropped, "inspections"),
		droppedParts:       t.Value(catalog.AgentDropped, "parts"),
		beside:             besideValues(t),
		overflows:          t.Value(catalog.AgentWatchOverflows),
		disputed:           t.Value(catalog.AgentDisputed),
		uncaptured:         t.Value(catalog.AgentUncapturedCPU),
		coverage:           t.Value(catalog.AgentCoverage),
		machineBuilds:      t.Value(catalog.MachineCPU, machine, "builds"),
		machineOther:       t.Value(catalog.MachineCPU, machine, "other"),
		machineOwn:         t.Value(catalog.MachineCPU, machine, "cimeter"),
		parents:            make(map[string]*parent),
	}
}

// cpu returns the CPU time that the agent has used.
func (g *gauges) cpu() time.Duration {
	cpu, err := g.self.CPU()
	if err != nil {
		return g.own
	}
	return cpu
}

func besideValues(t *tally.Table) map[cimeter.Attribution]*tally.Value {
	all := make(map[cimeter.Attribution]*tally.Value)
	for _, by := range []cimeter.Attribution{
		cimeter.AttributedCgroupParent, cimeter.AttributedNetwork, cimeter.AttributedVolume, cimeter.AttributedClient,
		cimeter.AttributedSole, cimeter.Unattributed,
	} {
		all[by] = t.Value(catalog.AgentBesideCPU, string(by))
	}
	return all
}

func (g *gauges) gap(reason string) { g.tally.Value(catalog.AgentGaps, reason).Add(1) }

// round brings everything up to date after a round that began with before of
// the agent's CPU time used; machine is that of all.
func (g *gauges) round(m *meter, machine cimeter.Opt[uint64], before time.Duration) {
	cpu := g.cpu()
	g.roundCPU.Add((cpu - before).Seconds())
	g.ownCPU.Set(cpu.Seconds())
	g.rounds.Add(1)
	g.containers.Set(float64(len(m.lives)))
	if d := m.host.Degraded(); d > g.degraded {
		g.readsDegraded.Add(float64(d - g.degraded))
		g.degraded = d
	}
	g.machineTime(m, machine, cpu)
	if m.rounds%m.opts.FullEvery == 0 || m.rounds == 1 {
		if resident, err := g.self.Resident(); err == nil {
			g.memory.Set(float64(resident))
		}
		g.capture(m)
	}
}

// machineTime divides what the machine's CPUs did among builds, the agent and
// everything else.
func (g *gauges) machineTime(m *meter, now cimeter.Opt[uint64], cpu time.Duration) {
	if !now.Known {
		return
	}
	builds, beside := m.ledger.AttributedCPU(), m.ledger.BesideCPU()
	if g.machine > 0 && now.Value >= g.machine {
		total := float64(now.Value-g.machine) / 1e9
		mine := float64(builds-g.attributed) / 1e9
		theirs := builds - g.attributed + beside - g.besides
		own := (cpu - g.own).Seconds()
		g.machineBuilds.Add(mine)
		g.machineOwn.Add(own)
		g.machineOther.Add(max(0, total-mine-own))
		if m.ledger.Builds() > 0 && total > 0 {
			g.coverage.Set(min(1, float64(theirs)/1e9/total))
			m.covered.busy.Add(now.Value - g.machine)
			m.covered.mine.Add(theirs)
		}
		m.covered.known.Store(true)
	}
	g.machine, g.attributed, g.besides, g.own = now.Value, builds, beside, cpu
}

// info exports the series that joins a container's other metrics to its build.
func (m *meter) info(k *known) {
	b := k.identity.Build
	m.opts.Tally.SetInfo(catalog.ContainerInfo, k.id, b.CI, b.Project, m.opts.Machine, b.Runner.Key(), k.id, b.Key)
}
