// Package prometheus writes what package tally holds in the formats that
// Prometheus scrapes: text 0.0.4, OpenMetrics 1.0 with exemplars, and protobuf with
// exemplars and native histograms.
//
// The bytes of a series' labels are rendered once, when the series is first
// seen, and kept; a scrape copies them and formats numbers, so it allocates
// nothing for a series of the text formats. The table is read while others write to it: a scrape
// sees each value at some moment of it, and never one that fell.
//
// It makes no values, keeps no state but those bytes and a few buffers, starts
// no goroutine and logs nothing. Start with [New]; an [Encoder] is an
// http.Handler and may be used by many goroutines.
package prometheus
