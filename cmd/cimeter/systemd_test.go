package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/sdnotify"
)

// notified is a socket such as systemd has for a service.
type notified struct {
	*net.UnixConn
	path string
}

func listenAsSystemd(t *testing.T) notified {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return notified{l, path}
}

// next returns the next message, "" when none has come at once.
func (n notified) next(t *testing.T) string {
	t.Helper()
	if err := n.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	return n.read(t)
}

func (n notified) read(t *testing.T) string {
	t.Helper()
	var b [128]byte
	size, err := n.Read(b[:])
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:size])
}

func (n notified) environment(usec string) func(string) string {
	return func(name string) string {
		return map[string]string{"NOTIFY_SOCKET": n.path, "WATCHDOG_USEC": usec}[name]
	}
}

// systemd hears that the process is ready when all its parts are, and every third of
// its time that it is alive; not any more when one of them is stuck.
func TestLifeline(t *testing.T) {
	n := listenAsSystemd(t)
	l, err := openLifeline(&env{getenv: n.environment("30000000")}, slog.New(slog.DiscardHandler))
	if err != nil || l.every != 10*time.Second {
		t.Fatalf("%+v, %v: want every 10 s", l, err)
	}
	meters, serves := l.part(), l.part()
	now := time.Now()
	for i, step := range []struct {
		after time.Duration
		part  func(time.Time)
		want  string
	}{
		{0, meters, ""}, // one of two
		{time.Second, meters, ""},
		{time.Second, serves, "READY=1"},
		{5 * time.Second, meters, ""},
		{0, serves, ""}, // it is too early
		{5 * time.Second, serves, "WATCHDOG=1"},
		{10 * time.Second, serves, ""}, // the other is stuck
		{10 * time.Second, serves, ""},
		{10 * time.Second, meters, "WATCHDOG=1"},
		{time.Hour, meters, ""},
	} {
		now = now.Add(step.after)
		step.part(now)
		if got := n.next(t); got != step.want {
			t.Errorf("step %d: told %q, want %q", i, got, step.want)
		}
	}
}

// Whoever is away when a message is sent hears the next; whoever does not watch hears
// of the start alone.
func TestLifeline_away(t *testing.T) {
	n := listenAsSystemd(t)
	var log bytes.Buffer
	to, err := sdnotify.Open(n.environment(""), 0)
	if err != nil {
		t.Fatal(err)
	}
	l := &lifeline{to: to, log: slog.New(slog.NewTextHandler(&log, nil)), told: make(map[int]bool)}
	part := l.part()
	gone, err := sdnotify.Open(func(name string) string {
		if name == "NOTIFY_SOCKET" {
			return "/nonexistent"
		}
		return ""
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.to = gone
	part(time.Now())
	if got := n.next(t); got != "" || !strings.Contains(log.String(), "systemd does not learn") {
		t.Errorf("told %q, logged %q: want nothing and a warning", got, log.String())
	}
	l.to = to
	part(time.Now())
	if got := n.next(t); got != "READY=1" {
		t.Errorf("told %q, want READY=1", got)
	}
	part(time.Now().Add(time.Hour))
	if got := n.next(t); got != "" {
		t.Errorf("told %q though nobody watches", got)
	}
}

// Nobody is told anything where systemd did not start the process.
func TestLifeline_alone(t *testing.T) {
	l, err := openLifeline(&env{getenv: func(string) string { return "" }}, slog.New(slog.DiscardHandler))
	if err != nil || l.part() != nil || l.every != 0 {
		t.Errorf("%+v, %v", l, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stop := l.stopping(ctx)
	cancel()
	stop()
}

// The agent, the server and both in one tell a real socket of their start, of each
// third of the watchdog's time, and of their end.
func TestSystemd(t *testing.T) {
	for _, role := range []string{"agent", "server", "up"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			n := listenAsSystemd(t)
			cmd := exec.Command("cimeter", role, "--listen", "127.0.0.1:0", "--data", t.TempDir())
			cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+n.path, "WATCHDOG_USEC=900000")
			var log bytes.Buffer
			cmd.Stdout, cmd.Stderr = io.Discard, &log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			if err := n.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
				if got := n.read(t); got != want {
					t.Fatalf("told %q, want %s\n%s", got, want, log.String())
				}
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			for got := ""; got != "STOPPING=1"; { // one more that it was alive may come before
				if got = n.read(t); got == "" {
					t.Fatal("its end is not told")
				}
			}
			if err := <-done; err != nil {
				t.Errorf("%v\n%s", err, log.String())
			}
		})
	}
}
