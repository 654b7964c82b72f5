package jobsocket

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peer is the process that connected, by the number that it has here; 0: it has
// none here (unix(7), SO_PEERCRED).
func peer(c *net.UnixConn) (pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return 0, cerr
	}
	if err != nil {
		return 0, fmt.Errorf("peer credentials: %w", err)
	}
	return int(cred.Pid), nil
}

// passCredentials has the kernel stamp what comes with its sender (SO_PASSCRED).
func passCredentials(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) }); cerr != nil {
		return cerr
	}
	return err
}

// sender is the process that sent a message. Descriptors that came along are
// closed.
func sender(oob []byte) (pid int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, fmt.Errorf("control message: %w", err)
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			for _, fd := range fds {
				unix.Close(fd)
			}
		}
		if cred, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			pid = int(cred.Pid)
		}
	}
	if pid <= 0 {
		return 0, errors.New("a question without a sender")
	}
	return pid, nil
}
