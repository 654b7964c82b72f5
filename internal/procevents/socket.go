package procevents

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// receive takes a message off a socket without waiting and tells which port
// sent it. It allocates nothing, unlike unix.Recvfrom.
func receive(fd int, b []byte) (n int, port uint32, errno syscall.Errno) {
	var from unix.RawSockaddrNetlink
	size := uint32(unsafe.Sizeof(from))
	r, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&size)))
	return int(r), from.Pid, errno
}
