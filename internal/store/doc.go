// Package store owns what every back end of the server's store shares: the
// questions it answers and the answers' types, the columns taken out of a
// record, the stored form of a record, keyset cursors, and the SQL of reads,
// which differs between the back ends in a few words only.
//
// It is pure: it opens nothing, reads no clock and starts no goroutine; reads
// run through a [Queryer] that the back end gives. Start with [NewRows] for what
// is written and [Reader] for what is read. The back ends are the packages below
// it; one contract suite, internal/storetest, holds them to the same behaviour.
package store
