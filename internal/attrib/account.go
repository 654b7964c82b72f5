package attrib

import (
	"math"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/counter"
)

// shortest is the length in seconds below which an interval joins its
// neighbour before a rate is taken: over a few milliseconds a rate says more
// about the instant of reading than about the build.
const shortest = 0.1

// The rates whose maximum and deviation are kept, and the counter of each.
var rateCounters = [...]cimeter.Counter{
	cimeter.CPUTotal,
	cimeter.IOReadBytes, cimeter.IOWriteBytes,
	cimeter.IOReadOperations, cimeter.IOWriteOperations,
	cimeter.NetworkReceiveBytes, cimeter.NetworkTransmitBytes,
}

const (
	rateCPU = iota
	rateIORead
	rateIOWrite
	rateReads
	rateWrites
	rateReceive
	rateTransmit
	numRates
)

// The levels whose average, maximum and deviation are kept, and the gauge of each.
var levelGauges = [...]cimeter.Gauge{
	cimeter.MemoryCurrent, cimeter.MemoryWorkingSet, cimeter.MemoryAnon, cimeter.MemorySwap, cimeter.Processes,
}

const (
	levelMemory = iota
	levelWorkingSet
	levelAnon
	levelSwap
	levelProcesses
	numLevels
)

// Account adds up what one stage, or one build, spends: totals as differences
// of kernel counters, the shape of rates over the intervals between ticks, and
// levels at the ticks. Add and SetLevels say what happened, Tick ends an
// interval, Usage renders the whole. The zero value is an empty account. It is
// not safe for concurrent use. Fields are exported for checkpoints only.
type Account struct {
	Total  counter.Delta
	Open   Interval // since the last tick
	Held   Interval // the last closed one, kept back so that a short neighbour can join it
	Rates  [numRates]Moments
	Levels [numLevels]Moments
	Now    [numLevels]cimeter.Opt[uint64] // latest level of each
	// Peak is the kernel's maximum of memory in bytes, where it is known to
	// fall into this account.
	Peak cimeter.Opt[uint64]
}

// Interval is what the rate counters rose by in some seconds.
type Interval struct {
	Seconds float64
	Rise    [numRates]uint64
	Has     uint32 // bit r: Rise[r] is known
}

func (i *Interval) join(o *Interval) {
	i.Seconds += o.Seconds
	for r := range i.Rise {
		i.Rise[r] += o.Rise[r]
	}
	i.Has |= o.Has
	*o = Interval{}
}

// Moments describes a quantity over time, weighted by time.
type Moments struct {
	Seconds  float64 // time over which it was observed
	Integral float64 // sum of value × seconds
	Square   float64 // sum of value² × seconds
	Max      float64
	Count    int // observations
}

func (m *Moments) observe(v, seconds float64) {
	m.Seconds += seconds
	m.Integral += v * seconds
	m.Square += v * v * seconds
	m.Max = max(m.Max, v)
	m.Count++
}

func (m *Moments) merge(o *Moments) {
	m.Seconds += o.Seconds
	m.Integral += o.Integral
	m.Square += o.Square
	m.Max = max(m.Max, o.Max)
	m.Count += o.Count
}

// average is 0 before the first observation.
func (m *Moments) average() float64 {
	if m.Seconds <= 0 {
		return 0
	}
	return m.Integral / m.Seconds
}

func (m *Moments) deviation() cimeter.Opt[float64] {
	if m.Count < 2 || m.Seconds <= 0 {
		return cimeter.Opt[float64]{}
	}
	a := m.average()
	return cimeter.Some(math.Sqrt(max(0, m.Square/m.Seconds-a*a)))
}

// Add books the rise d.
func (a *Account) Add(d *counter.Delta) {
	a.Total.Add(d)
	for r, c := range rateCounters {
		if v, ok := d.Get(c); ok {
			a.Open.Rise[r] += v
			a.Open.Has |= 1 << r
		}
	}
}

// SetLevels notes the levels that s has as the latest ones.
func (a *Account) SetLevels(s *cimeter.Sample) {
	for l, g := range levelGauges {
		if v, ok := s.Gauge(g); ok {
			a.Now[l] = cimeter.Some(v)
		}
	}
}

// RaisePeak notes a kernel maximum of memory in bytes.
func (a *Account) RaisePeak(bytes uint64) {
	if !a.Peak.Known || bytes > a.Peak.Value {
		a.Peak = cimeter.Some(bytes)
	}
}

// Tick ends the open interval, d after the last tick (or the beginning). With
// paused set nobody looked in between (a suspended machine, a starved agent):
// totals count, but no rate or level is taken over it.
func (a *Account) Tick(d time.Duration, paused bool) {
	if d <= 0 {
		return
	}
	a.Open.Seconds = d.Seconds()
	if paused {
		a.Open = Interval{}
		return
	}
	for l, v := range a.Now {
		if v.Known {
			a.Levels[l].observe(float64(v.Value), a.Open.Seconds)
		}
	}
	if a.Held.Seconds > 0 && (a.Held.Seconds < shortest || a.Open.Seconds < shortest) {
		a.Held.join(&a.Open)
		return
	}
	a.settle()
	a.Held, a.Open = a.Open, Interval{}
}

// settle takes the rates of the held interval.
func (a *Account) settle() {
	h := &a.Held
	if h.Seconds <= 0 {
		return
	}
	for r := range h.Rise {
		if h.Has&(1<<r) != 0 {
			a.Rates[r].observe(float64(h.Rise[r])/h.Seconds, h.Seconds)
		}
	}
	*h = Interval{}
}

// Merge adds o, another part of the same stage, to a. o is spent by it.
func (a *Account) Merge(o *Account) {
	a.settle()
	o.settle()
	a.Total.Add(&o.Total)
	for r := range a.Rates {
		a.Rates[r].merge(&o.Rates[r])
	}
	for l := range a.Levels {
		a.Levels[l].merge(&o.Levels[l])
	}
	if o.Peak.Known {
		a.RaisePeak(o.Peak.Value)
	}
}

// Usage renders the account of something that took wall time. It leaves the
// account as it is. What no sample showed is absent.
func (a *Account) Usage(wall time.Duration) cimeter.Usage {
	b := *a
	b.settle()
	u := cimeter.Usage{WallSeconds: wall.Seconds()}
	t := &b.Total
	u.CPUSeconds = cimeter.CPUSeconds{
		Total: t.Seconds(cimeter.CPUTotal), User: t.Seconds(cimeter.CPUUser), System: t.Seconds(cimeter.CPUSystem),
	}
	u.CPUCores = b.rate(rateCPU, wall, 1e-9)
	u.CPUPeriods = t.Count(cimeter.CPUPeriods)
	u.CPUThrottledPeriods = t.Count(cimeter.CPUThrottledPeriods)
	u.CPUThrottledSeconds = t.Seconds(cimeter.CPUThrottled)

	if s := b.level(levelMemory); s != nil || b.Peak.Known {
		m := &cimeter.MemoryStat{Peak: b.peak()}
		if s != nil {
			m.Stat = *s
			m.Max = max(m.Max, float64(m.Peak.Value))
		} else {
			m.Avg, m.Max = float64(m.Peak.Value), float64(m.Peak.Value)
		}
		u.MemoryBytes = m
	}
	u.MemoryWorkingSetBytes = b.level(levelWorkingSet)
	u.MemoryAnonBytes = b.level(levelAnon)
	u.MemorySwapBytes = b.level(levelSwap)
	if s := b.level(levelProcesses); s != nil {
		u.ProcessesMax = cimeter.Some(uint64(s.Max))
	}

	u.IOBytes = readWrite(t, cimeter.IOReadBytes, cimeter.IOWriteBytes)
	u.IOOperations = readWrite(t, cimeter.IOReadOperations, cimeter.IOWriteOperations)
	if r, w := b.rate(rateIORead, wall, 1), b.rate(rateIOWrite, wall, 1); r != nil && w != nil {
		u.IOBytesPerSecond = &cimeter.ReadWrite[cimeter.Stat]{Read: *r, Write: *w}
	}
	if r, w := b.rate(rateReads, wall, 1), b.rate(rateWrites, wall, 1); r != nil && w != nil {
		u.IOOperationsPerSecond = &cimeter.ReadWrite[cimeter.Stat]{Read: *r, Write: *w}
	}
	if rx, ok := t.Get(cimeter.NetworkReceiveBytes); ok {
		tx, _ := t.Get(cimeter.NetworkTransmitBytes)
		u.NetworkBytes = &cimeter.ReceiveTransmit[uint64]{Receive: rx, Transmit: tx}
	}
	if r, x := b.rate(rateReceive, wall, 1), b.rate(rateTransmit, wall, 1); r != nil && x != nil {
		u.NetworkBytesPerSecond = &cimeter.ReceiveTransmit[cimeter.Stat]{Receive: *r, Transmit: *x}
	}
	p := cimeter.PressureSeconds{
		CPUSome: t.Seconds(cimeter.CPUSomePressure), CPUFull: t.Seconds(cimeter.CPUFullPressure),
		MemorySome: t.Seconds(cimeter.MemorySomePressure), MemoryFull: t.Seconds(cimeter.MemoryFullPressure),
		IOSome: t.Seconds(cimeter.IOSomePressure), IOFull: t.Seconds(cimeter.IOFullPressure),
	}
	if p != (cimeter.PressureSeconds{}) {
		u.PressureSeconds = &p
	}
	u.OOMKills = t.Count(cimeter.OOMKills)
	u.OOMKillsNested = t.Count(cimeter.OOMKillsNested)
	return u
}

// rate returns the stat of rate r in unit × its counter's unit a second, nil
// when its counter was never read. The average is total over wall, exactly.
func (a *Account) rate(r int, wall time.Duration, unit float64) *cimeter.Stat {
	total, ok := a.Total.Get(rateCounters[r])
	if !ok || wall <= 0 {
		return nil
	}
	m := &a.Rates[r]
	s := &cimeter.Stat{Avg: float64(total) / wall.Seconds() * unit, Max: m.Max * unit}
	s.Max = max(s.Max, s.Avg)
	if d := m.deviation(); d.Known {
		s.StdDev = cimeter.Some(d.Value * unit)
	}
	return s
}

func (a *Account) level(l int) *cimeter.Stat {
	m := &a.Levels[l]
	if m.Count == 0 {
		return nil
	}
	return &cimeter.Stat{Avg: m.average(), Max: m.Max, StdDev: m.deviation()}
}

// peak is the kernel's maximum, or what was seen above it by adding up several
// containers at a tick.
func (a *Account) peak() cimeter.Opt[uint64] {
	p := a.Peak
	if m := &a.Levels[levelMemory]; m.Count > 0 && p.Known && uint64(m.Max) > p.Value {
		p.Value = uint64(m.Max)
	}
	return p
}

func readWrite(t *counter.Delta, r, w cimeter.Counter) *cimeter.ReadWrite[uint64] {
	rv, ok := t.Get(r)
	wv, okw := t.Get(w)
	if !ok && !okw {
		return nil
	}
	return &cimeter.ReadWrite[uint64]{Read: rv, Write: wv}
}
