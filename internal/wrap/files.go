package wrap

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// inheritedFiles returns the descriptors above 2 that this process was started
// with and that the command inherits (a make's job server, a shell's process
// substitution).
func inheritedFiles(proc string) []int {
	entries, err := os.ReadDir(filepath.Join(proc, "self/fd"))
	if err != nil {
		return nil
	}
	var fds []int
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		// All of our own are close-on-exec.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// letGo drops this process's hold on what only the command uses: with a pipe
// held open here, whoever is at its other end would not see the command close
// it. Standard error stays, for the summary.
func letGo(fds []int) {
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Dup3(null, 0, 0)
		_ = unix.Dup3(null, 1, 0)
		_ = unix.Close(null)
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
