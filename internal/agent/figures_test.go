package agent

import (
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

// What the machine spends is divided among builds, the agent and the rest; the
// builds' part is what their records say.
func TestAgent_Figures(t *testing.T) {
	e, s := newEngine(), newShelf()
	a, _ := start(t, options(e, s))
	within(t, "the machine's CPU time is known", func() bool { return a.covered.known.Load() })
	f := a.Figures()
	if f.CPU == nil || f.CPU.Builds != 0 || f.Coverage.Known || !f.OwnCPU.Known || f.StartedAt.IsZero() || f.Cores.Value < 1 || f.Cgroup != a.Layout() || !f.Containers.Known {
		t.Errorf("before any build: %+v, CPU %+v", f, f.CPU)
	}
	before := *f.CPU
	one := newBox(t, "one", 300*time.Millisecond)
	e.tell(cimeter.ContainerCreated, one.Container, cimeter.Opt[int]{})
	e.tell(cimeter.ContainerStarted, one.Container, cimeter.Opt[int]{})
	used := one.finish(t, a)
	within(t, "the build's CPU time is told", func() bool {
		v, _ := a.meter.gauges.machineBuilds.Get()
		return v >= used.Seconds()-0.001
	})
	f = a.Figures()
	if d := f.CPU.Builds - used.Seconds(); d < -0.001 || d > 0.1 {
		t.Errorf("builds had %.3f s: want %v", f.CPU.Builds, used)
	}
	if f.CPU.Other < before.Other || f.CPU.Cimeter < before.Cimeter || f.Coverage.Value <= 0 || f.Coverage.Value > 1 {
		t.Errorf("%+v, then %+v, coverage %+v", before, f.CPU, f.Coverage)
	}
	e.tell(cimeter.ContainerDied, one.Container, cimeter.Some(0))
	e.tell(cimeter.ContainerDestroyed, one.Container, cimeter.Opt[int]{})
	s.await(t, "test/build")
	a.Figures()
	if f := a.Figures(); f.Coverage.Known {
		t.Errorf("coverage %v while no build ran: want none", f.Coverage.Value)
	}
}
