package testdocker

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// bridgeAddress is the daemon's end of its default bridge. Every daemon has a
// network namespace of its own, so all use the same.
const bridgeAddress = "10.231.0.1"

// Gateway is the address at which containers on the default bridge reach what
// listens inside the daemon's network namespace.
func (d *Daemon) Gateway() string {
	if d.gateway != "" {
		return d.gateway
	}
	return bridgeAddress
}

// Netns is the path of the daemon's network namespace.
func (d *Daemon) Netns() string { return netnsPath(d.netns) }

func netnsPath(name string) string { return "/run/netns/" + name }

// Command is exec.Command inside the daemon's network namespace. A program
// that wants to see the containers' host interfaces must run there.
func (d *Daemon) Command(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + d.Netns(), "--", name}, args...)...)
}

// Dial connects from inside the daemon's network namespace; addr is an IP
// address and a port. It fits http.Transport.DialContext.
func (d *Daemon) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var conn net.Conn
	err := d.within(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// Listen listens inside the daemon's network namespace.
func (d *Daemon) Listen(network, addr string) (net.Listener, error) {
	var l net.Listener
	err := d.within(func() (err error) {
		l, err = net.Listen(network, addr)
		return err
	})
	return l, err
}

// within runs f on a thread that is in the daemon's network namespace. The
// thread is thrown away, so no other goroutine ever runs there. Sockets stay
// in the namespace they were made in.
func (d *Daemon) within(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		result <- func() error {
			ns, err := os.Open(d.Netns())
			if err != nil {
				return fmt.Errorf("opening the daemon's network namespace: %w", err)
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering %s: %w", d.Netns(), err)
			}
			return f()
		}()
	}()
	return <-result
}

// addNetns makes a network namespace with its loopback up and without IPv6:
// router solicitations of the bridge would be traffic that no test asked for.
func addNetns(name string) error {
	if err := command("ip", "netns", "add", name); err != nil {
		return err
	}
	if err := command("ip", "-n", name, "link", "set", "lo", "up"); err != nil {
		return err
	}
	return command("nsenter", "--net="+netnsPath(name), "sh", "-c",
		"for f in all default; do f=/proc/sys/net/ipv6/conf/$f/disable_ipv6; [ ! -e $f ] || echo 1 >$f; done")
}

// command runs a program; its error holds what the program said.
func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %q: %w: %s", name, args, err, out)
	}
	return nil
}
