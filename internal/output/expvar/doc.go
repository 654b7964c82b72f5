// Package expvar writes the page /debug/vars in the form of the standard
// library's expvar, for the tools that poll that form: the queue as CI servers of
// old drew it, memory statistics under memstats, and the metrics.
//
// The memory statistics come from runtime/metrics and from the collector's own
// log: no request stops the world, as runtime.ReadMemStats does. What is not known
// is not there. Of the command line only the program's name is shown, since flags
// may hold passwords.
//
// It registers nothing in the standard expvar, starts no goroutine and logs
// nothing. Start with [New]; a [Page] is an http.Handler and may be used by many
// goroutines.
package expvar
