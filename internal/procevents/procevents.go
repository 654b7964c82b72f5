// Package procevents tells of the fork, exec and exit of every process of the
// machine, from the kernel's process connector (CONFIG_PROC_EVENTS).
//
// It owns one netlink socket with a filter in the kernel that lets events of
// processes through, and none of threads, names, users or sessions. It keeps no
// state of processes, starts no goroutine, logs nothing and makes one try. The
// connector speaks of pids as the initial namespaces number them, so it is of
// use to a program only that runs in those.
//
// The entry point is [Open], the heart [Conn.Read]. A Conn belongs to one
// goroutine.
package procevents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// Kind is the kind of an Event.
type Kind uint8

// The kinds of events.
const (
	Fork Kind = iota + 1 // Parent made Pid
	Exec                 // Pid runs another program now
	Exit                 // Pid has ended; Parent, if it lives, will wait for it
)

// Event is one thing that happened to a process.
type Event struct {
	Kind   Kind
	Pid    int
	Parent int           // of a fork and an exit; 0 where an older kernel does not tell
	Code   int           // of an exit: as wait(2) gives it
	At     time.Duration // of the kernel's monotonic clock (CLOCK_MONOTONIC)
}

// ErrOverrun says that the kernel had more events than the socket holds: some
// are lost, and what was derived from them must be found by looking.
var ErrOverrun = errors.New("process events lost: the kernel's queue was full")

// queueBytes is the room for events that wait to be read. An event takes about
// 800 bytes of it: 20,000 events, what a machine's busiest half second makes.
const queueBytes = 16 << 20

// The layout of linux/connector.h and linux/cn_proc.h, from the message's start.
const (
	connectorID    = 1 // CN_IDX_PROC
	multicastOn    = 1 // PROC_CN_MCAST_LISTEN
	multicastOff   = 2 // PROC_CN_MCAST_IGNORE
	headBytes      = unix.SizeofNlMsghdr + 20
	offsetWhat     = headBytes
	offsetAt       = headBytes + 8
	offsetData     = headBytes + 16
	eventFork      = 0x00000001
	eventExec      = 0x00000002
	eventExit      = 0x80000000
	shortestEvent  = offsetData + 8
	forkBytes      = offsetData + 16
	exitCodeBytes  = offsetData + 12
	exitOfAnyBytes = offsetData + 24 // since Linux 4.18: with the parent
)

// Conn is a subscription. Make it with Open.
type Conn struct {
	fd  int
	buf [1024]byte
}

// Open subscribes. It fails with [cimeter.ErrUnauthorized] without NET_ADMIN,
// with [cimeter.ErrUnsupported] where the kernel has no connector.
func Open() (*Conn, error) {
	c, err := open()
	if err != nil {
		return nil, fmt.Errorf("subscribe to process events: %w", err)
	}
	return c, nil
}

func open() (_ *Conn, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_CONNECTOR)
	if err != nil {
		return nil, kind("socket", err)
	}
	c := &Conn{fd: fd}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if err := attachFilter(fd); err != nil {
		return nil, kind("filter", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, queueBytes) != nil {
		// Less room is refused to nobody.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, queueBytes)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: connectorID}); err != nil {
		return nil, kind("bind", err)
	}
	if err := c.tell(multicastOn); err != nil {
		return nil, kind("listen", err)
	}
	return c, nil
}

// kind gives err the root package's error that says what it means.
func kind(what string, err error) error {
	switch err {
	case unix.EPERM, unix.EACCES:
		return fmt.Errorf("%s: %w (%v)", what, cimeter.ErrUnauthorized, err)
	case unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.ECONNREFUSED, unix.ENOENT:
		return fmt.Errorf("%s: %w (%v)", what, cimeter.ErrUnsupported, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// tell sends the connector a subscription's begin or end.
func (c *Conn) tell(op uint32) error {
	var b [headBytes + 4]byte
	n := binary.NativeEndian
	n.PutUint32(b[0:], uint32(len(b)))
	n.PutUint16(b[4:], unix.NLMSG_DONE)
	n.PutUint32(b[16:], connectorID) // idx
	n.PutUint32(b[20:], 1)           // val: CN_VAL_PROC
	n.PutUint16(b[32:], 4)           // length of what follows
	n.PutUint32(b[headBytes:], op)
	return unix.Sendto(c.fd, b[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// FD is the descriptor that becomes readable when there are events. It stays
// the Conn's.
func (c *Conn) FD() int { return c.fd }

// Read fills events with what waits, without waiting itself; none is 0. On
// ErrOverrun some are lost, and it may be called again.
func (c *Conn) Read(events []Event) (n int, err error) {
	for n < len(events) {
		size, port, errno := receive(c.fd, c.buf[:])
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return n, nil
		case unix.ENOBUFS:
			return n, ErrOverrun
		default:
			return n, fmt.Errorf("read process events: %w", errno)
		}
		// Any local program may send to the socket; the kernel alone is port 0.
		if port == 0 && parse(c.buf[:size], &events[n]) {
			n++
		}
	}
	return n, nil
}

// parse reads one message: struct nlmsghdr, cn_msg and proc_event; false: it is
// none of the events that are told.
func parse(b []byte, e *Event) bool {
	if len(b) < shortestEvent {
		return false
	}
	u := func(offset int) uint32 { return binary.NativeEndian.Uint32(b[offset:]) }
	if u(unix.SizeofNlMsghdr) != connectorID {
		return false
	}
	*e = Event{At: time.Duration(binary.NativeEndian.Uint64(b[offsetAt:]))}
	// Pairs of thread and process: an event is of a process when its first thread's.
	first, process := u(offsetData), u(offsetData+4)
	switch u(offsetWhat) {
	case eventFork:
		if len(b) < forkBytes {
			return false
		}
		e.Kind, e.Parent = Fork, int(process)
		first, process = u(offsetData+8), u(offsetData+12)
	case eventExec:
		e.Kind = Exec
		first = process // a thread that calls execve becomes the process
	case eventExit:
		e.Kind = Exit
		if len(b) >= exitCodeBytes {
			e.Code = int(u(offsetData + 8))
		}
		if len(b) >= exitOfAnyBytes {
			e.Parent = int(u(offsetData + 20))
		}
	default:
		return false
	}
	e.Pid = int(process)
	return first == process && process != 0
}

// Close ends the subscription.
func (c *Conn) Close() {
	if c.fd >= 0 {
		_ = c.tell(multicastOff) // the kernel notes the socket's end as well
		unix.Close(c.fd)
		c.fd = -1
	}
}
