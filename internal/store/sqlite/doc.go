// Package sqlite keeps builds in one SQLite file, in pure Go: the store of a
// server that needs no other.
//
// It owns that file and the two that SQLite keeps beside it. What Put has
// acknowledged is on the disk: write-ahead log, synchronous=FULL on every
// connection. One connection writes, others read; a write error is returned and
// never retried here. It never logs and starts no goroutine. Start with [Open].
// A Store may be used by many goroutines; one file is used by one process.
package sqlite
