package series

import (
	"time"

	"github.com/cimeter/cimeter/internal/tally"
)

// Native is a histogram in buckets of exponential width, as Prometheus' native
// histograms have it.
type Native struct {
	Schema        int      // a bucket is 2^(2^-Schema) as wide as the one before
	ZeroThreshold float64  // what is at most that is counted in Zero
	Zero          uint64   // observations
	First         int      // index of Counts[0]: its upper bound is 2^(First·2^-Schema)
	Counts        []uint64 // observations in each bucket; neither end is 0, and it may be empty
}

// Count returns how many observations there are: no fewer than in the Buckets
// beside it.
func (n *Native) Count() uint64 {
	sum := n.Zero
	for _, c := range n.Counts {
		sum += c
	}
	return sum
}

// Exemplar is one observation and the build that it was made of.
type Exemplar struct {
	Label Label
	Value float64
	At    time.Time
}

// Fine makes the walker give histograms their Native and Exemplar, which costs as
// much again as all else of them.
func (w *Walker) Fine() { w.fine, w.exemplars = true, true }

// Exemplars makes the walker give histograms their Exemplar.
func (w *Walker) Exemplars() { w.exemplars = true }

func (w *Walker) refine(b *Buckets, h *tally.Histogram) {
	if e, ok := h.Exemplar(); ok {
		b.Exemplar = &Exemplar{Label{tally.BuildLabel, e.Build}, e.Value, e.At}
	}
	if !w.fine {
		return
	}
	n := &Native{Schema: tally.NativeSchema}
	n.ZeroThreshold, n.Zero, n.First, w.counts = h.Native(w.counts[:0])
	from, to := 0, len(w.counts)
	for from < to && w.counts[from] == 0 {
		from++
	}
	for to > from && w.counts[to-1] == 0 {
		to--
	}
	n.First += from
	n.Counts = append([]uint64(nil), w.counts[from:to]...)
	b.Native = n
}
