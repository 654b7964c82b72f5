package tally

import (
	"sync/atomic"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
)

// Stage holds what one label set has spent.
type Stage struct {
	labels   Labels
	bounds   *stageBounds
	present  atomic.Uint32 // bit for each counter that was added to
	counters [cimeter.NumCounters]atomic.Uint64
	gauges   [cimeter.NumGauges]sum

	duration, memoryPeak, cpuCores lazyHistogram
}

// sum is a gauge over the shares that contribute to it now.
type sum struct {
	total atomic.Uint64 // modulo 1<<64, so that a share takes away what it put in
	of    atomic.Int64  // shares
}

type stageBounds struct{ duration, memoryPeak, cpuCores []float64 }

// Labels returns the label set. Its values are bounded and valid UTF-8; an
// empty one is not known.
func (s *Stage) Labels() Labels { return s.labels }

// Add adds delta to counter c, in c's unit. Adding 0 says that the counter
// exists: its series is there, with 0.
func (s *Stage) Add(c cimeter.Counter, delta uint64) {
	s.counters[c].Add(delta)
	if bit := uint32(1) << c; s.present.Load()&bit == 0 {
		s.present.Or(bit)
	}
}

// Counter returns counter c, in c's unit, and whether it exists.
func (s *Stage) Counter(c cimeter.Counter) (uint64, bool) {
	return s.counters[c].Load(), s.present.Load()&(1<<c) != 0
}

// Gauge returns gauge g, summed over the shares that have it now, and whether
// any has.
func (s *Stage) Gauge(g cimeter.Gauge) (uint64, bool) {
	return s.gauges[g].total.Load(), s.gauges[g].of.Load() > 0
}

// Ended counts the end of one run of the stage: how long it took in seconds,
// the most memory that it held in bytes, and its average of CPU cores.
func (s *Stage) Ended(durationSeconds float64, peakBytes cimeter.Opt[uint64], cores cimeter.Opt[float64]) {
	s.EndedOf(Exemplar{}, durationSeconds, peakBytes, cores)
}

// EndedOf is Ended in a build that is named: Build and At of the exemplar.
func (s *Stage) EndedOf(of Exemplar, durationSeconds float64, peakBytes cimeter.Opt[uint64], cores cimeter.Opt[float64]) {
	s.duration.get(s.bounds.duration).observe(durationSeconds, of)
	if peak, ok := peakBytes.Get(); ok {
		s.memoryPeak.get(s.bounds.memoryPeak).observe(float64(peak), of)
	}
	if c, ok := cores.Get(); ok {
		s.cpuCores.get(s.bounds.cpuCores).observe(c, of)
	}
}

// Histogram returns the histogram of that catalogue name, or nil when nothing
// was counted in it yet.
func (s *Stage) Histogram(name string) *Histogram {
	switch name {
	case catalog.StageDuration:
		return s.duration.p.Load()
	case catalog.StageMemoryPeak:
		return s.memoryPeak.p.Load()
	case catalog.StageCPUCores:
		return s.cpuCores.p.Load()
	}
	return nil
}

// Share returns a new share: what one running segment adds to the stage's
// gauges. It adds nothing until it is set.
func (s *Stage) Share() *Share { return &Share{stage: s} }

// Share is one running segment's part of a stage's gauges. It is for one
// goroutine; many shares of a stage may be set at once.
type Share struct {
	stage *Stage
	has   uint32
	last  [cimeter.NumGauges]uint64
}

// Set makes the share what the sample says now. A gauge that the sample does
// not have is not contributed.
func (sh *Share) Set(sample *cimeter.Sample) {
	for g := range cimeter.NumGauges {
		v, ok := sample.Gauge(g)
		sh.set(g, v, ok)
	}
}

// Release takes the share out of its stage's gauges. It may be set again.
func (sh *Share) Release() {
	for g := range cimeter.NumGauges {
		sh.set(g, 0, false)
	}
}

func (sh *Share) set(g cimeter.Gauge, v uint64, ok bool) {
	to, bit := &sh.stage.gauges[g], uint32(1)<<g
	had := sh.has&bit != 0
	if !ok {
		v = 0
	}
	if v != sh.last[g] {
		to.total.Add(v - sh.last[g])
		sh.last[g] = v
	}
	switch {
	case ok && !had:
		to.of.Add(1)
		sh.has |= bit
	case !ok && had:
		to.of.Add(-1)
		sh.has &^= bit
	}
}

// lazyHistogram is made when something is first counted: most label sets of a
// young process have none.
type lazyHistogram struct{ p atomic.Pointer[Histogram] }

func (l *lazyHistogram) get(bounds []float64) *Histogram {
	if h := l.p.Load(); h != nil {
		return h
	}
	l.p.CompareAndSwap(nil, newHistogram(bounds))
	return l.p.Load()
}
