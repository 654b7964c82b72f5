// Package spool is the disk queue of records that a server has not taken yet.
//
// It owns one directory: a file for each record, named by its place in the
// order of receipt, with a checksum, and a bounded folder of records that the
// server refused. It is a copy of its own beside the agent's records, so that
// neither bound can remove what the other still needs; a record goes in here
// first, then there (see package push), and a process that dies between the two
// sends it once more, which the server knows by its key.
//
// What is over the bound in bytes goes oldest first and is counted. A damaged
// file costs that record alone. The package never talks to a server, does not
// log and starts no goroutine. Start with [Open]. A Spool may be used by many
// goroutines at once; one process has it open at a time.
package spool
