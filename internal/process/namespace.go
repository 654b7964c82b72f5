package process

import (
	"fmt"
	"os"
)

// OwnPids reports whether a process is in another pid namespace than the caller, as the
// processes of containers are. The error wraps cimeter.ErrGone when there is no such
// process.
func (fs *FS) OwnPids(pid int) (bool, error) {
	own, err := os.Readlink(fs.proc + "/self/ns/pid")
	if err != nil {
		return false, fmt.Errorf("own pid namespace: %w", err)
	}
	its, err := os.Readlink(fmt.Sprintf("%s/%d/ns/pid", fs.proc, pid))
	if err != nil {
		return false, fmt.Errorf("process %d: pid namespace: %w", pid, kind(err))
	}
	return its != own, nil
}
