package procevents_test

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// lock ties the calling goroutine to its thread for good and returns the thread.
func lock() int {
	runtime.LockOSThread()
	return unix.Gettid()
}
