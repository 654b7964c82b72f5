// Package statsd sends metrics to StatsD servers over UDP, and in its dialect
// DogStatsD to Datadog agents over UDP and unix sockets.
//
// It owns what each series has been told so far, the names and tags of series,
// and one socket. It makes one try a call, keeps no schedule, starts no goroutine
// and does not log. What a counter rose by and could not be told is told by the
// next call. Start with [New] or [NewDog]; a Sink has one caller at a time.
package statsd
