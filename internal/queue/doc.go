// Package queue holds what CI servers tell of their builds and workers: what
// waits and why, what runs and where, how it ended.
//
// A [Report] is what one question to one server, or one webhook, told. A [Board]
// merges reports, in any order and any number of times, into the [State] that is
// shown. A [SourceError] is why a server told nothing.
//
// It asks nobody, reads no clock and starts nothing: package poll does. Start with
// [NewBoard]; a Board may be used by many goroutines at once.
package queue
