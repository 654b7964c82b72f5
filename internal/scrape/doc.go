// Package scrape reads the metrics that another program exposes, as Prometheus'
// text or OpenMetrics or as Go's expvar, and makes families of points of them.
//
// What it reads is foreign: a page is bounded in bytes and series, and a family
// that cannot be read is skipped and counted while the others are kept. It makes
// one try a call and keeps nothing from one to the next; it starts no goroutine
// and logs nothing. Start with [New]; a [Page] is the caller's.
package scrape
