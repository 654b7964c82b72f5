// Package catalog is the one table of cimeter's metrics: name, kind, unit,
// help, labels and, for what a stage spends, the counters and gauges of a
// sample that a series shows. Every output and docs/metrics.md are rendered
// from it, so a metric is named in one place.
//
// It holds no values (package tally does) and does no input or output. Start
// with [Metrics] or [Lookup]; both return values of their own, so they may be
// called from anywhere at any time.
package catalog
