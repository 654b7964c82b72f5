// Package tally keeps the values of the metrics in package catalog: what each
// label set has spent so far, how builds went, and what cimeter says of itself.
//
// A counter belongs to a label set, not to a build: it goes on rising when the
// next build of the same labels runs, and it never falls. The number of series
// is bounded by a budget; a label set that finds no room is counted under
// [Other], and that it was is counted too.
//
// A [Table] does no input or output, reads no clock and starts no goroutine.
// Everything here may be called from any goroutine: cells are atomic, so
// adding neither waits for a reader nor allocates. Start with [New]; writers
// hold on to the cells that [Table.Stage], [Table.Build] and [Table.Value]
// return, readers walk [Table.Stages], [Table.Builds], [Table.Values] and
// [Table.Infos].
package tally
