package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// SetMonitorSlack lets the kernel wake the Go runtime's monitor up to d later than
// it asks for. While anything runs the monitor sleeps for 20 µs at a time
// (runtime/proc.go, sysmon): on an idle machine that costs a program which works
// for some milliseconds a second more than its work does. What it looks for may
// wait that long: a thread that blocks in a system call, a goroutine that runs
// for more than 10 ms.
//
// The monitor's thread is the first that the runtime makes. Setting the slack of
// another thread needs CAP_SYS_NICE (proc_pid_timerslack_ns(5)): else the error
// wraps cimeter.ErrUnauthorized and nothing has changed.
func (fs *FS) SetMonitorSlack(d time.Duration) error {
	tid, err := fs.secondThread()
	if err != nil {
		return fmt.Errorf("set the monitor's slack: %w", err)
	}
	err = os.WriteFile(filepath.Join(fs.proc, strconv.Itoa(tid), "timerslack_ns"), []byte(strconv.FormatInt(d.Nanoseconds(), 10)), 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("set the monitor's slack: %v: %w", err, cimeter.ErrUnauthorized)
	}
	if err != nil {
		return fmt.Errorf("set the monitor's slack: %w", err)
	}
	return nil
}

// secondThread returns the thread of this process that was made after its main
// thread. Numbers rise until they wrap: then it may be another one, which a slack
// does no harm either.
func (fs *FS) secondThread() (int, error) {
	entries, err := os.ReadDir(filepath.Join(fs.proc, "self", "task"))
	if err != nil {
		return 0, err
	}
	tids := make([]int, 0, len(entries))
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	slices.Sort(tids)
	if len(tids) < 2 {
		return 0, fmt.Errorf("%d threads: want the runtime's too: %w", len(tids), cimeter.ErrUnsupported)
	}
	return tids[1], nil
}
