package cgroup

import (
	"syscall"
	"unsafe"
)

// openat opens name, which ends with a 0, below dir.
func openat(dir int, name []byte, flags int) (int, syscall.Errno) {
	fd, _, errno := syscall.Syscall6(syscall.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&name[0])), uintptr(flags), 0, 0, 0)
	return int(fd), errno
}

// pread reads a file from its start. Unless the call yields, the scheduler is
// not told of it, which saves a seventh of the time of a round: these files
// take the kernel a microsecond or two to render and never wait.
func pread(fd int, b []byte, yields bool) (int, syscall.Errno) {
	if yields {
		n, _, errno := syscall.Syscall6(syscall.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
		return int(n), errno
	}
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	return int(n), errno
}
