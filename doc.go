// Package cimeter is the domain of the CI meter: what a build, a stage, a
// segment, a sample, a usage and a record are, and the errors that every layer
// speaks.
//
// It owns plain data and the small arithmetic that belongs to it. It does no
// input or output, reads no clock, starts no goroutine, logs nothing, and
// imports only value packages of the standard library.
//
// Two rules hold for every type here. A cumulative reading ([Sample]) and what
// was spent between two of them ([Usage]) are different types, so a counter
// cannot be charted as a rate by accident. And absent is not zero: what the
// kernel or the runtime does not tell is an [Opt] that is not Known, a counter
// that a Sample does not have, a nil pointer; it is left out of every output.
package cimeter
