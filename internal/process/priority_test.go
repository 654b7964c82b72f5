package process_test

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/process"
)

func TestSetThreadNice(t *testing.T) {
	done := make(chan struct{})
	go func() { // on a thread that ends with it
		defer close(done)
		runtime.LockOSThread()
		if err := process.SetThreadNice(7); err != nil {
			t.Error(err)
		}
		// The system call returns 20 - nice (getpriority(2), C library/kernel differences).
		if raw, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid()); err != nil || raw != 13 {
			t.Errorf("nice value %d, %v; want 7", 20-raw, err)
		}
		if err := process.SetThreadNice(-5); err != nil && !errors.Is(err, cimeter.ErrUnauthorized) {
			t.Errorf("error %v, want none or unauthorized", err)
		}
	}()
	<-done
}
