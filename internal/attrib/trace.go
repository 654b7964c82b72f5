package attrib

import (
	"encoding/json"
	"time"

	"github.com/cimeter/cimeter"
)

const (
	// maxTraceSteps bounds a trace: 128 steps of eight columns of at most nine
	// digits fit into maxTraceBytes.
	maxTraceSteps = 128
	maxTraceBytes = 10 << 10
)

// Step is one step of a trace in the making. Amounts are counter units.
type Step struct {
	Seconds float64 // observed time within the step
	Rise    [numRates]float64
	Has     uint32
	CPUMax  float64 // nanoseconds a second
	Memory  cimeter.Opt[uint64]
	Working cimeter.Opt[uint64]
}

func (s *Step) merge(o *Step) {
	s.Seconds += o.Seconds
	for r := range s.Rise {
		s.Rise[r] += o.Rise[r]
	}
	s.Has |= o.Has
	s.CPUMax = max(s.CPUMax, o.CPUMax)
	s.Memory = larger(s.Memory, o.Memory)
	s.Working = larger(s.Working, o.Working)
}

func larger(a, b cimeter.Opt[uint64]) cimeter.Opt[uint64] {
	if !a.Known || b.Known && b.Value > a.Value {
		return b
	}
	return a
}

// Tracer makes the trace of one build: equal steps from its start, doubled in
// length whenever there would be more than maxTraceSteps.
type Tracer struct {
	StepSeconds float64
	Steps       []Step
}

// Add spreads an interval, from and to after the build's start, over the steps
// it overlaps.
func (t *Tracer) Add(from, to time.Duration, rise *Interval, memory, working cimeter.Opt[uint64]) {
	a, b := from.Seconds(), to.Seconds()
	if b <= a || t.StepSeconds <= 0 {
		return
	}
	for b > t.StepSeconds*maxTraceSteps {
		t.double()
	}
	first, last := int(a/t.StepSeconds), min(int(b/t.StepSeconds), maxTraceSteps-1)
	for i := first; i <= last; i++ {
		lo, hi := max(a, float64(i)*t.StepSeconds), min(b, float64(i+1)*t.StepSeconds)
		if hi <= lo {
			continue
		}
		for len(t.Steps) <= i {
			t.Steps = append(t.Steps, Step{})
		}
		share := (hi - lo) / (b - a)
		s := Step{Seconds: hi - lo, Has: rise.Has, Memory: memory, Working: working}
		for r, v := range rise.Rise {
			s.Rise[r] = float64(v) * share
		}
		s.CPUMax = float64(rise.Rise[rateCPU]) / (b - a)
		t.Steps[i].merge(&s)
	}
}

func (t *Tracer) double() {
	t.StepSeconds *= 2
	n := (len(t.Steps) + 1) / 2
	for i := range n {
		s := t.Steps[2*i]
		if 2*i+1 < len(t.Steps) {
			s.merge(&t.Steps[2*i+1])
		}
		t.Steps[i] = s
	}
	t.Steps = t.Steps[:n]
}

// Trace renders the trace, or nil when there is none. It is within 10 KiB of JSON.
func (t *Tracer) Trace() *cimeter.Trace {
	if len(t.Steps) == 0 {
		return nil
	}
	c := Tracer{StepSeconds: t.StepSeconds, Steps: append([]Step(nil), t.Steps...)}
	for {
		tr := c.render()
		if b, err := json.Marshal(tr); err == nil && len(b) <= maxTraceBytes || len(c.Steps) < 2 {
			return tr
		}
		c.double()
	}
}

func (t *Tracer) render() *cimeter.Trace {
	tr := &cimeter.Trace{StepSeconds: t.StepSeconds}
	rate := func(r int, unit float64) []cimeter.Opt[int64] {
		return t.column(func(s *Step) (float64, bool) {
			return s.Rise[r] / s.Seconds * unit, s.Has&(1<<r) != 0
		})
	}
	tr.CPUMillicores = rate(rateCPU, 1e-6)
	tr.CPUMillicoresMax = t.column(func(s *Step) (float64, bool) { return s.CPUMax * 1e-6, s.Has&(1<<rateCPU) != 0 })
	tr.MemoryKiB = t.column(func(s *Step) (float64, bool) { return float64(s.Memory.Value) / 1024, s.Memory.Known })
	tr.MemoryWorkingSetKiB = t.column(func(s *Step) (float64, bool) { return float64(s.Working.Value) / 1024, s.Working.Known })
	tr.IOReadBytesPerSecond = rate(rateIORead, 1)
	tr.IOWriteBytesPerSecond = rate(rateIOWrite, 1)
	tr.NetworkReceivePerSec = rate(rateReceive, 1)
	tr.NetworkTransmitPerSec = rate(rateTransmit, 1)
	return tr
}

// column returns one column, nil when no step has it.
func (t *Tracer) column(get func(*Step) (float64, bool)) []cimeter.Opt[int64] {
	col := make([]cimeter.Opt[int64], len(t.Steps))
	some := false
	for i := range t.Steps {
		s := &t.Steps[i]
		if s.Seconds <= 0 {
			continue
		}
		if v, ok := get(s); ok {
			col[i] = cimeter.Some(int64(v + 0.5))
			some = true
		}
	}
	if !some {
		return nil
	}
	return col
}
