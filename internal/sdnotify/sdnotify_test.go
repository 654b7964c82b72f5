package sdnotify_test

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/sdnotify"
)

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// A socket by path and one in the abstract space get each state as one datagram.
func TestConn(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), fmt.Sprintf("@cimeter-sdnotify-%d", time.Now().UnixNano())} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: name})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := sdnotify.Open(environment("NOTIFY_SOCKET", name, "WATCHDOG_USEC", "30000000", "WATCHDOG_PID", "42"), 42)
		if err != nil || c.Watchdog != 30*time.Second {
			t.Fatalf("watchdog %+v, %v: want 30 s", c, err)
		}
		for want, tell := range map[string]func() error{"READY=1": c.Ready, "WATCHDOG=1": c.Alive, "STOPPING=1": c.Stopping} {
			if err := tell(); err != nil {
				t.Error(err)
				continue
			}
			var b [64]byte
			n, err := l.Read(b[:])
			if err != nil || string(b[:n]) != want {
				t.Errorf("%s: got %q, %v: want %s", name, b[:n], err, want)
			}
		}
	}
}

// Whoever was not started by systemd tells nobody; a wrong variable is named; what
// was meant for another process is not taken.
func TestOpen(t *testing.T) {
	c, err := sdnotify.Open(environment("WATCHDOG_USEC", "1"), 42)
	if c != nil || err != nil || c.Ready() != nil || c.Alive() != nil || c.Stopping() != nil {
		t.Errorf("without a socket: %v, %v", c, err)
	}
	c, err = sdnotify.Open(environment("NOTIFY_SOCKET", "/nonexistent/notify", "WATCHDOG_USEC", "30000000", "WATCHDOG_PID", "41"), 42)
	if err != nil || c.Watchdog != 0 {
		t.Errorf("another's watchdog: %+v, %v", c, err)
	}
	if c.Ready() == nil {
		t.Error("nobody is there to be told: no error")
	}
	for _, wrong := range [][]string{
		{"NOTIFY_SOCKET", "vsock:2:1"}, {"NOTIFY_SOCKET", "/n", "WATCHDOG_USEC", "soon"}, {"NOTIFY_SOCKET", "/n", "WATCHDOG_USEC", "-1"},
		{"NOTIFY_SOCKET", "/n", "WATCHDOG_USEC", "9223372036854775807"},
	} {
		if _, err := sdnotify.Open(environment(wrong...), 42); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%v: %v: want an invalid value", wrong, err)
		}
	}
}
