// Package terminal lays out what "cimeter top" shows: the table of running
// builds, the header that tells how fresh it is, one build's detail, the keys.
//
// It owns what each key does and where each character stands. It writes
// nothing, reads no clock, starts no goroutine: the bytes of a keyboard and the
// readings are parameters, a whole frame is a string. Every name passes package
// display, so that no build can move the cursor. Start with [NewTop]; where
// there is no terminal, [Table] is the same table as plain text. A Top is for
// one goroutine at a time.
package terminal
