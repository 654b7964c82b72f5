package agent

import (
	"sync/atomic"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/machine"
)

// Figures are what the agent tells of its machine and of itself. What is not
// known is absent.
type Figures struct {
	machine.Facts
	machine.Figures
	ReadAt     time.Time
	StartedAt  time.Time // of metering
	Cgroup     string    // v1, v2 or hybrid
	Cores      cimeter.Opt[float64]
	CPU        *Shares              // CPU seconds since StartedAt
	Coverage   cimeter.Opt[float64] // since the last call; absent when no build ran
	Containers cimeter.Opt[uint64]
	OwnCPU     cimeter.Opt[float64] // seconds since the process started
	OwnMemory  cimeter.Opt[uint64]  // bytes resident
}

// Shares are the CPU seconds of a machine by who had them.
type Shares struct{ Builds, Other, Cimeter float64 }

// covered is what coverage is made of: nanoseconds of CPU while builds ran, and
// of those the builds' own. The meter adds, [Agent.Figures] reads.
type covered struct {
	known       atomic.Bool // the machine's CPU time is
	busy, mine  atomic.Uint64
	toldBusy    uint64 // Figures' own
	toldMine    uint64
	factsAre    bool
	facts       machine.Facts
	startedUnix atomic.Int64 // nanoseconds; 0: not yet
}

// Figures reads what the machine shows now. The meter does not wait for it, nor
// it for the meter. It has one caller at a time.
func (a *Agent) Figures() Figures {
	c, g := &a.covered, &a.meter.gauges
	if !c.factsAre {
		c.facts, c.factsAre = a.machine.Facts(), true
	}
	f := Figures{Facts: c.facts, Figures: a.machine.Read(), ReadAt: time.Now().UTC(), Cgroup: a.Layout()}
	if n := a.host.MachineCores(); n > 0 {
		f.Cores = cimeter.Some(n)
	}
	if ns := c.startedUnix.Load(); ns != 0 {
		f.StartedAt = time.Unix(0, ns).UTC()
	}
	if c.known.Load() {
		builds, _ := g.machineBuilds.Get()
		other, _ := g.machineOther.Get()
		own, _ := g.machineOwn.Get()
		f.CPU = &Shares{builds, other, own}
	}
	busy, mine := c.busy.Load(), c.mine.Load()
	if busy > c.toldBusy {
		f.Coverage = cimeter.Some(min(1, float64(mine-c.toldMine)/float64(busy-c.toldBusy)))
	}
	c.toldBusy, c.toldMine = busy, mine
	if v, ok := g.containers.Get(); ok {
		f.Containers = cimeter.Some(uint64(v))
	}
	if v, ok := g.ownCPU.Get(); ok && v > 0 {
		f.OwnCPU = cimeter.Some(v)
	}
	if v, ok := g.memory.Get(); ok {
		f.OwnMemory = cimeter.Some(uint64(v))
	}
	return f
}
