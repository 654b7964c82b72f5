package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// SetNice sets the nice value, -20 to 19, of every thread of the calling
// process: on Linux each has its own, and a new one has that of the thread that
// made it. A lower value than now needs CAP_SYS_NICE or RLIMIT_NICE: else the
// error wraps cimeter.ErrUnauthorized and nothing has changed.
func (fs *FS) SetNice(nice int) error {
	// Twice: a thread may have been made while the first pass went by.
	for range 2 {
		tasks, err := os.ReadDir(filepath.Join(fs.proc, "self", "task"))
		if err != nil {
			return fmt.Errorf("set nice value %d: %w", nice, err)
		}
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			switch err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); {
			case err == nil, errors.Is(err, unix.ESRCH):
			case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
				return fmt.Errorf("set nice value %d: %v: %w", nice, err, cimeter.ErrUnauthorized)
			default:
				return fmt.Errorf("set nice value %d: %w", nice, err)
			}
		}
	}
	return nil
}
