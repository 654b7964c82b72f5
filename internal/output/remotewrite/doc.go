// Package remotewrite sends samples to a receiver of Prometheus' remote write
// protocol, 2.0 where the receiver takes it and 1.0 otherwise
// (prometheus.io/docs/specs/prw).
//
// It owns what the receiver has not taken yet: samples wait with their own
// times, bounded in bytes and age, in order within each series. It ends series
// with stale markers, says where a new counter began with a sample of 0 (so that
// the first value that is seen counts for increase()), and falls back from 2.0
// to 1.0 by the rules of the specification.
//
// It makes one try a request, retries nothing, logs nothing and starts no
// goroutine. Start with [New]. [Output.Keep] may be called while [Output.Send]
// runs; no other two calls at once.
package remotewrite
