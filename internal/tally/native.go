package tally

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	// NativeSchema is that of Prometheus' native histograms: 8 buckets for each
	// doubling, so a bucket is 9 % wide.
	NativeSchema = 3
	perDoubling  = 1 << NativeSchema
	// doublings is how far the fine buckets reach beyond the metric's own bounds,
	// on both sides: a 64th of the first, 64 times the last.
	doublings = 6
	// maxExemplar bounds the runes of an exemplar's label set, name and value, as
	// OpenMetrics does.
	maxExemplar = 128
	// BuildLabel is the label of an exemplar.
	BuildLabel = "build"
)

// Exemplar is the build that an observation was made of.
type Exemplar struct {
	Build string    // its key; "" is none
	At    time.Time // when it ended
	Value float64   // what was observed, in the metric's unit
}

// native counts observations in fine buckets: the one of index i holds what is over
// 2^((i-1)/8) and at most 2^(i/8).
type native struct {
	first   int             // index, in Prometheus' schema, of buckets[0]
	zero    atomic.Uint64   // observations at most at the threshold
	buckets []atomic.Uint32 // one fills in no life of a process: a build ends there four billion times

	mu   sync.Mutex // guards last; a writer that finds it taken does not wait
	last Exemplar
}

func newNative(bounds []float64) native {
	low := int(math.Floor(math.Log2(bounds[0]))) - doublings
	high := int(math.Ceil(math.Log2(bounds[len(bounds)-1]))) + doublings
	return native{first: low*perDoubling + 1, buckets: make([]atomic.Uint32, (high-low)*perDoubling)}
}

// observe counts x, which is finite and not negative. What is over the last bucket
// is counted in it.
func (n *native) observe(x float64) {
	if x <= n.threshold() {
		n.zero.Add(1)
		return
	}
	// The index of the bucket is 8·log2(x), rounded up. The logarithm may be off
	// by its last digit, so the bounds decide.
	i := int(math.Ceil(math.Log2(x) * perDoubling))
	if x > bound(i) {
		i++
	} else if x <= bound(i-1) {
		i--
	}
	n.buckets[min(max(0, i-n.first), len(n.buckets)-1)].Add(1)
}

// bound is the upper bound of the bucket of index i: exact for whole powers of 2.
func bound(i int) float64 { return math.Exp2(float64(i) / perDoubling) }

func (n *native) threshold() float64 { return bound(n.first - 1) }

// exemplify keeps e as the latest, unless a reader has the last one in hand or its
// build's key is too long: one that is cut leads nowhere.
func (n *native) exemplify(e Exemplar) {
	if e.Build == "" || !utf8.ValidString(e.Build) || len(BuildLabel)+utf8.RuneCountInString(e.Build) > maxExemplar || !n.mu.TryLock() {
		return
	}
	n.last = e
	n.mu.Unlock()
}

// Exemplar returns the latest observation whose build is known, and whether there
// is one.
func (h *Histogram) Exemplar() (Exemplar, bool) {
	h.fine.mu.Lock()
	defer h.fine.mu.Unlock()
	return h.fine.last, h.fine.last.Build != ""
}

// Native returns the observations in fine buckets: how many are at most at the
// threshold, and the counts of the buckets from the index first on, appended to
// dst. A reader that has read Bucket before finds at least as many here.
func (h *Histogram) Native(dst []uint64) (threshold float64, zero uint64, first int, counts []uint64) {
	n := &h.fine
	for i := range n.buckets {
		dst = append(dst, uint64(n.buckets[i].Load()))
	}
	return n.threshold(), n.zero.Load(), n.first, dst
}
