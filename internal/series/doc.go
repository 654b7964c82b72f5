// Package series is the form in which outputs are given metrics: families of
// points, whoever made them. A [Walker] makes them of what package tally holds;
// a bridge makes them of what another program exposes.
//
// A point says who it is by [Point.Key], so an output can keep what it needs of
// it (its last value, its rendered labels) from one time to the next. The package
// holds no values of its own, reads no clock, does no input or output and starts
// no goroutine. Start with [NewWalker].
package series
