// Package postgres keeps builds in a PostgreSQL database, which several servers
// may share: none of them holds state of its own.
//
// It owns the tables of one schema. What Put has acknowledged is on the disk of
// the database as its synchronous_commit says; a database that does not wait
// for its disk is refused. Every key holds a distribution column. Builds and
// stages are in partitions of one week, which retention drops. It makes one try
// and returns the error; it never logs. [Store.Lead] starts a goroutine that
// its release ends. Start with [Open]. A Store may be used by many goroutines.
package postgres
