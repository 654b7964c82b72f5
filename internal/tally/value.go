package tally

import (
	"math"
	"sync/atomic"
)

// Value is one series of a metric of the machine or the program. A counter is
// there from the start, with 0; a gauge is absent until it is set.
type Value struct {
	labels  []string
	counter bool
	known   atomic.Bool
	bits    atomic.Uint64
}

// Labels returns the values of the metric's labels, in its order. Do not change
// them.
func (v *Value) Labels() []string { return v.labels }

// Get returns the value and whether there is one.
func (v *Value) Get() (float64, bool) {
	return math.Float64frombits(v.bits.Load()), v.known.Load()
}

// Add adds d. A counter takes nothing from a negative d. NaN and infinities
// are not added to either kind.
func (v *Value) Add(d float64) {
	if !finite(d) || (v.counter && d < 0) {
		return
	}
	addFloat(&v.bits, d)
	v.present()
}

// Set makes the value f. A counter only ever rises to it, so that a source
// that starts again from 0 does not make it fall. NaN and infinities are not
// taken.
func (v *Value) Set(f float64) {
	if !finite(f) {
		return
	}
	for {
		old := v.bits.Load()
		if v.counter && f <= math.Float64frombits(old) {
			return
		}
		if v.bits.CompareAndSwap(old, math.Float64bits(f)) {
			break
		}
	}
	v.present()
}

// Clear makes a gauge absent until it is set again. A counter stays.
func (v *Value) Clear() {
	if !v.counter {
		v.known.Store(false)
	}
}

func (v *Value) present() {
	if !v.known.Load() {
		v.known.Store(true)
	}
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

func addFloat(bits *atomic.Uint64, d float64) {
	for {
		old := bits.Load()
		if bits.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+d)) {
			return
		}
	}
}

// Histogram counts observations in the buckets of its metric.
type Histogram struct {
	bounds  []float64
	buckets []atomic.Uint64 // one for each bound, then +Inf; not cumulative
	sum     atomic.Uint64   // bits of a float64
	fine    native
}

func newHistogram(bounds []float64) *Histogram {
	return &Histogram{bounds: bounds, buckets: make([]atomic.Uint64, len(bounds)+1), fine: newNative(bounds)}
}

// observe counts x. What is negative or not finite is no measurement and is
// not counted. Of a build that is known it is the exemplar.
func (h *Histogram) observe(x float64, of Exemplar) {
	if !finite(x) || x < 0 {
		return
	}
	i := 0
	for i < len(h.bounds) && x > h.bounds[i] {
		i++
	}
	// The fine buckets come first: see Native.
	h.fine.observe(x)
	addFloat(&h.sum, x)
	h.buckets[i].Add(1)
	of.Value = x
	h.fine.exemplify(of)
}

// Bucket returns how many observations fell in bucket i and in none before it;
// i runs over the metric's bounds, then one more for +Inf.
func (h *Histogram) Bucket(i int) uint64 { return h.buckets[i].Load() }

// Sum returns the sum of all observations.
func (h *Histogram) Sum() float64 { return math.Float64frombits(h.sum.Load()) }
