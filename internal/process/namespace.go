package process

import (
	"bytes"
	"fmt"
)

// maxStatus bounds what is read of /proc/PID/status.
const maxStatus = 8 << 10

// OwnPids reports whether a process is in a pid namespace below the one that this proc
// file system shows, as the processes of containers are: it has a number in each. The
// file is everybody's to read. The error wraps cimeter.ErrGone when there is no such
// process.
func (fs *FS) OwnPids(pid int) (bool, error) {
	b, err := fs.append(nil, pid, "status", maxStatus)
	if err != nil {
		return false, err
	}
	return parseNSpid(b, pid)
}

// parseNSpid looks at the line NSpid of /proc/PID/status, which Linux has since 4.1:
//
//	NSpid:	7352	1
func parseNSpid(b []byte, pid int) (bool, error) {
	_, rest, ok := bytes.Cut(b, []byte("\nNSpid:"))
	if !ok {
		return false, fmt.Errorf("status of process %d: no line NSpid", pid)
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return len(bytes.Fields(line)) > 1, nil
}
