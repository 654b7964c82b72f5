// Package httpapi is the HTTP side of a role: the list of builds and the record
// of each, health, readiness, version, and whatever metrics handler it is given.
//
// It owns routes, content negotiation, the form of errors (RFC 9457 problem
// details) and the limits of the HTTP server. It reads a store and writes
// nothing; it answers GET and HEAD only. It does not log: what an operator
// should see goes to Options.Report. Start with [New] and [NewServer].
// Everything in it may be used by many goroutines at once.
package httpapi
