// Package gokit lets code written against go-kit's metrics count with package
// meter: [Counter], [Gauge] and [Histogram] are go-kit's interfaces over the
// meter's instruments.
//
// It is a module of its own, so that who uses package meter alone does not take on
// go-kit. Everything may be used by many goroutines. Of a nil instrument nothing
// is counted.
package gokit

import (
	"github.com/go-kit/kit/metrics"

	"github.com/cimeter/cimeter/meter"
)

// Counter returns c as go-kit's.
func Counter(c *meter.Counter) metrics.Counter { return counter{c} }

// Gauge returns g as go-kit's.
func Gauge(g *meter.Gauge) metrics.Gauge { return gauge{g} }

// Histogram returns h as go-kit's.
func Histogram(h *meter.Histogram) metrics.Histogram { return histogram{h} }

type counter struct{ *meter.Counter }

// With implements metrics.Counter.
func (c counter) With(labelValues ...string) metrics.Counter {
	return counter{c.Counter.With(whole(labelValues)...)}
}

type gauge struct{ *meter.Gauge }

// With implements metrics.Gauge.
func (g gauge) With(labelValues ...string) metrics.Gauge {
	return gauge{g.Gauge.With(whole(labelValues)...)}
}

type histogram struct{ *meter.Histogram }

// With implements metrics.Histogram.
func (h histogram) With(labelValues ...string) metrics.Histogram {
	return histogram{h.Histogram.With(whole(labelValues)...)}
}

// whole gives a name without a value the one that go-kit's own back ends give it.
func whole(labelValues []string) []string {
	if len(labelValues)%2 == 0 {
		return labelValues
	}
	return append(labelValues[:len(labelValues):len(labelValues)], "unknown")
}
