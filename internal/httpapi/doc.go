// Package httpapi is the HTTP side of a role: builds, totals, comparisons and
// machines, what agents and CI servers send, health, readiness, version, and
// whatever handlers of metrics and pages it is given.
//
// It owns routes and who may use them, content negotiation, the form of errors
// (RFC 9457 problem details) and the limits of the HTTP server. GET and HEAD
// change nothing; the few routes that take POST (records, heartbeats, webhooks,
// canceling) hand what came to the role. It does not log: what an operator
// should see goes to Options.Report. Start with [New] and [NewServer].
// Everything in it may be used by many goroutines at once.
package httpapi
