// Package queue holds what CI servers tell of their builds and workers: what
// waits and why, what runs and where, how it ended.
//
// A [Report] is what one question to one server, or one webhook, told.
package queue
