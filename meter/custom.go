package meter

import (
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cimeter/cimeter/internal/series"
)

// Counter is a counter of an author's own. Make it with Meter.Counter.
type Counter struct{ i instrument }

// Gauge is a gauge of an author's own. Make it with Meter.Gauge.
type Gauge struct{ i instrument }

// Histogram is a histogram of an author's own. Make it with Meter.Histogram.
type Histogram struct{ i instrument }

// Counter returns the counter of that name, which ends in _total (it is added
// where it is missing). The name is made one that Prometheus takes. The same name
// again is the same counter; it panics for a name of the catalogue, or of an
// instrument of another kind: that is the programmer's error. It allocates.
func (m *Meter) Counter(name, help string) *Counter {
	if m == nil {
		return nil
	}
	return &Counter{m.custom.instrument(counterName(name), help, kindCounter, nil)}
}

// Gauge returns the gauge of that name, as Counter does.
func (m *Meter) Gauge(name, help string) *Gauge {
	if m == nil {
		return nil
	}
	return &Gauge{m.custom.instrument(series.LabelName(name), help, kindGauge, nil)}
}

// Histogram returns the histogram of that name, as Counter does. The bounds are
// upper bounds of buckets and rise; without any they suit seconds from 0.1 to
// three hours. NaN, infinities and bounds that do not rise are left out.
func (m *Meter) Histogram(name, help string, bounds ...float64) *Histogram {
	if m == nil {
		return nil
	}
	if len(bounds) == 0 {
		bounds = []float64{0.1, 0.3, 1, 3, 10, 30, 60, 180, 600, 1800, 3600, 3 * 3600}
	}
	var rising []float64
	for _, b := range bounds {
		if finite(b) && (len(rising) == 0 || b > rising[len(rising)-1]) {
			rising = append(rising, b)
		}
	}
	return &Histogram{m.custom.instrument(series.LabelName(name), help, kindHistogram, rising)}
}

// With returns the counter with labels added, given as name, value, name, value.
// It allocates when they are new: keep the result. Label values must be few.
func (c *Counter) With(labelValues ...string) *Counter {
	if c == nil {
		return nil
	}
	return &Counter{c.i.with(labelValues)}
}

// Add adds delta. What is negative or not finite is not added. The first call,
// be it with 0, makes the series appear.
func (c *Counter) Add(delta float64) {
	if c != nil && delta >= 0 {
		c.i.cell.add(delta)
	}
}

// With is Counter.With for a gauge.
func (g *Gauge) With(labelValues ...string) *Gauge {
	if g == nil {
		return nil
	}
	return &Gauge{g.i.with(labelValues)}
}

// Set makes the gauge v, which must be finite.
func (g *Gauge) Set(v float64) {
	if g != nil && finite(v) {
		g.i.cell.bits.Store(math.Float64bits(v))
		g.i.cell.tell()
	}
}

// Add adds delta, which may be negative and must be finite.
func (g *Gauge) Add(delta float64) {
	if g != nil {
		g.i.cell.add(delta)
	}
}

// With is Counter.With for a histogram.
func (h *Histogram) With(labelValues ...string) *Histogram {
	if h == nil {
		return nil
	}
	return &Histogram{h.i.with(labelValues)}
}

// Observe counts x, which must be finite.
func (h *Histogram) Observe(x float64) {
	if h == nil || !finite(x) {
		return
	}
	bounds := h.i.family.bounds
	i := 0
	for i < len(bounds) && x > bounds[i] {
		i++
	}
	h.i.cell.add(x)
	h.i.cell.counts[i].Add(1)
}

// add adds a finite d.
func (c *cell) add(d float64) {
	if !finite(d) {
		return
	}
	for {
		old := c.bits.Load()
		if c.bits.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+d)) {
			break
		}
	}
	c.tell()
}

func (c *cell) tell() {
	if !c.told.Load() {
		c.told.Store(true)
	}
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// counterName is a valid name that ends in _total.
func counterName(name string) string {
	return strings.TrimSuffix(series.LabelName(name), "_total") + "_total"
}

// bounded returns v as valid UTF-8 of at most maxLabel runes, with nothing kept
// alive but itself.
func bounded(v string) string {
	v = strings.ToValidUTF8(v, "\uFFFD")
	if r := []rune(v); len(r) > maxLabel {
		return string(r[:maxLabel])
	}
	return strings.Clone(v)
}

// counts returns zeros for the buckets of the bounds.
func counts(bounds []float64) []atomic.Uint64 {
	if bounds == nil {
		return nil
	}
	return make([]atomic.Uint64, len(bounds)+1)
}

func reserved(name string) bool { return slices.Contains([]string{"le", "quantile", "__name__"}, name) }
