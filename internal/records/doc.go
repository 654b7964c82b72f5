// Package records is the bounded directory in which an agent keeps its finished
// records and the checkpoints of its running builds.
//
// It owns the files below one directory: one immutable file for each record,
// and a sub-folder of checkpoints. It never changes a record once it is
// written, never retries, never logs, and never trusts a file of which the
// write to disk did not succeed. Start with [Open]. A Dir may be used by many
// goroutines at once; one directory is used by one process at a time.
//
// What Put and Checkpoint have acknowledged is there after a kill or a power
// cut: each file is written under a temporary name, synced, renamed, and the
// directory is synced before they return.
package records
