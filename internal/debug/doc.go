// Package debug answers on the debug listener: profiles, the variables, and a
// page that lists them.
//
// It takes the profiles from runtime/pprof itself: importing net/http/pprof would
// put its routes into http.DefaultServeMux, which no listener of cimeter serves
// and none shall. It opens no listener, starts no goroutine of its own and logs
// nothing. Start with [New]; the handler may be used by many goroutines.
package debug
