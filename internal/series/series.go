package series

import (
	"strings"
	"time"
)

// Kind is what a family's values mean.
type Kind uint8

// The kinds. Those of other programs that we do not have ourselves are Unknown
// (a value of no known meaning) and Summary.
const (
	Unknown   Kind = iota
	Counter        // only rises, or starts again from 0
	Gauge          // a level that goes up and down
	Histogram      // observations counted in buckets
	Summary        // observations counted, with quantiles that somebody else computed
	Info           // always 1: its labels are what it says
)

var kindNames = [...]string{"unknown", "counter", "gauge", "histogram", "summary", "info"}

// String returns the kind in lower case, as the OpenMetrics text format has it.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Label is one name and value. An empty value is never kept: the label is not known.
type Label struct{ Name, Value string }

// Family is one metric with its points. It is read only: many outputs are given
// the same one at once.
type Family struct {
	Name   string // as Prometheus has it: base unit and, for a counter, _total at the end
	Kind   Kind
	Unit   string // base unit in the plural, as it stands in the name; "" has none
	Help   string // one sentence; may be empty
	Points []Point
}

// Point is one series of a family at one instant.
type Point struct {
	Key       string    // who it is among all points of all families: see [Key]
	Labels    []Label   // in the metric's order; names are unique
	Value     float64   // of every kind but Histogram and Summary, in the family's unit
	Buckets   *Buckets  // of a Histogram
	Quantiles *Quantile // of a Summary
	Start     time.Time // when a counter or histogram was 0; zero is not known
}

// Buckets is a histogram.
type Buckets struct {
	Bounds []float64 // upper bounds in the family's unit, rising, without +Inf
	Counts []uint64  // observations in each bucket and in none before it, +Inf last: len(Bounds)+1
	Sum    float64   // of all observations, in the family's unit

	Native   *Native   // the same in finer buckets; nil: not known, or not asked for
	Exemplar *Exemplar // the latest that is known; nil: none, or not asked for
}

// Count returns how many observations there are.
func (b *Buckets) Count() uint64 {
	var n uint64
	for _, c := range b.Counts {
		n += c
	}
	return n
}

// Quantile is a summary as another program computed it.
type Quantile struct {
	Ranks  []float64 // 0..1, rising
	Values []float64 // in the family's unit; NaN where there was no observation
	Sum    float64
	Count  uint64
}

// Key returns what names a series: the family's name and its labels in order.
// Bytes that stand between the parts occur in no name and in no valid UTF-8.
func Key(family string, labels []Label) string {
	n := len(family)
	for _, l := range labels {
		n += len(l.Name) + len(l.Value) + 2
	}
	var b strings.Builder
	b.Grow(n)
	b.WriteString(family)
	for _, l := range labels {
		b.WriteByte(0xff)
		b.WriteString(l.Name)
		b.WriteByte(0xfe)
		b.WriteString(l.Value)
	}
	return b.String()
}

// Sent says what became of the points that an output was given.
type Sent struct {
	Points  int    // that the receiver has, or, where nothing answers, that were handed to the network
	Dropped []Drop // that it will never have, by reason
}

// Drop is a number of points that were left out.
type Drop struct {
	Reason string // one word of a fixed list, for a label
	Points int
}
