// Package sdnotify tells systemd how a service does, by the protocol of
// sd_notify(3): it has started, it is alive, it stops.
//
// It owns no state but the address: each message is one datagram, sent without
// waiting and never sent again. It starts no goroutine and reads no variable by
// itself. Start with [Open]. A Conn may be used by many goroutines at once.
package sdnotify

import (
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/cimeter/cimeter"
)

// Conn is the way to the systemd that started this process.
type Conn struct {
	to syscall.SockaddrUnix
	// Watchdog is the time without an Alive after which systemd kills the process
	// (WatchdogSec= of its unit); 0: it does not look.
	Watchdog time.Duration
}

// Open reads what systemd told process pid by its environment. Without a socket
// nobody wants to know, and the Conn is nil: all its methods may be called.
func Open(getenv func(string) string, pid int) (*Conn, error) {
	name := getenv("NOTIFY_SOCKET")
	switch {
	case name == "":
		return nil, nil
	case name[0] != '/' && name[0] != '@': // a path, or a name in the abstract space
		return nil, fmt.Errorf("NOTIFY_SOCKET %.200q: want a path or @name: %w", name, cimeter.ErrInvalid)
	}
	c := &Conn{to: syscall.SockaddrUnix{Name: name}}
	// What a parent passed on by mistake is not for this process.
	if of := getenv("WATCHDOG_PID"); of != "" && of != strconv.Itoa(pid) {
		return c, nil
	}
	if s := getenv("WATCHDOG_USEC"); s != "" {
		usec, err := strconv.ParseInt(s, 10, 64)
		if err != nil || usec <= 0 || usec > int64(maxWatchdog/time.Microsecond) {
			return nil, fmt.Errorf("WATCHDOG_USEC %.40q: want 1 to %d: %w", s, maxWatchdog/time.Microsecond, cimeter.ErrInvalid)
		}
		c.Watchdog = time.Duration(usec) * time.Microsecond
	}
	return c, nil
}

// maxWatchdog is far above any that is of use, and far below what overflows.
const maxWatchdog = 365 * 24 * time.Hour

// Ready tells that the service does what it is for.
func (c *Conn) Ready() error { return c.send("READY=1") }

// Alive tells that it still does. It is to be told well within Watchdog.
func (c *Conn) Alive() error { return c.send("WATCHDOG=1") }

// Stopping tells that it ends by its own will.
func (c *Conn) Stopping() error { return c.send("STOPPING=1") }

func (c *Conn) send(state string) error {
	if c == nil {
		return nil
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("tell systemd %s: socket: %w", state, err)
	}
	defer syscall.Close(fd)
	to := c.to // Sendto writes into it
	if err := syscall.Sendto(fd, []byte(state), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, &to); err != nil {
		return fmt.Errorf("tell systemd %s: %s: %w", state, c.to.Name, err)
	}
	return nil
}
