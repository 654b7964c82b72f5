package procevents

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// What the socket has no room for is told as lost, once, and what comes later is
// read again.
func TestConn_Read_overrun(t *testing.T) {
	c, err := Open()
	if err != nil {
		t.Fatalf("%v: this test needs root in the initial namespaces and a kernel with CONFIG_PROC_EVENTS", err)
	}
	defer c.Close()
	if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", "-c", "i=0; while [ $i -lt 50 ]; do (exit 0); i=$((i+1)); done").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var events [512]Event
	lost := 0
	for range 1000 {
		n, err := c.Read(events[:])
		if errors.Is(err, ErrOverrun) {
			lost++
		} else if err != nil {
			t.Fatal(err)
		} else if n == 0 {
			break
		}
	}
	if lost == 0 {
		t.Error("150 events fit where there is room for a few")
	}
}

// Any local program may send to the socket: what is not the kernel's is no event.
func TestConn_Read_forged(t *testing.T) {
	c, err := Open()
	if err != nil {
		t.Fatalf("%v: this test needs root in the initial namespaces and a kernel with CONFIG_PROC_EVENTS", err)
	}
	defer c.Close()
	own, err := unix.Getsockname(c.fd)
	if err != nil {
		t.Fatal(err)
	}
	forger, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_CONNECTOR)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(forger)
	const nobody = 1<<22 + 7 // over the largest pid
	if err := unix.Sendto(forger, message(eventExec, nobody, nobody), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: own.(*unix.SockaddrNetlink).Pid}); err != nil {
		t.Fatal(err)
	}
	var events [512]Event
	for {
		n, err := c.Read(events[:])
		if err != nil && !errors.Is(err, ErrOverrun) {
			t.Fatal(err)
		}
		for _, e := range events[:n] {
			if e.Pid == nobody {
				t.Fatalf("%+v, which another program sent", e)
			}
		}
		if n < len(events) && err == nil {
			return
		}
	}
}
