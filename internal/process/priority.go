package process

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// SetThreadNice sets the nice value of the calling thread (not of the process:
// on Linux each thread has its own), -20 to 19. A lower one than now needs
// CAP_SYS_NICE or RLIMIT_NICE: else the error wraps cimeter.ErrUnauthorized.
func SetThreadNice(nice int) error {
	err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice)
	switch err {
	case nil:
		return nil
	case unix.EPERM, unix.EACCES:
		return fmt.Errorf("set nice value %d: %v: %w", nice, err, cimeter.ErrUnauthorized)
	}
	return fmt.Errorf("set nice value %d: %w", nice, err)
}
