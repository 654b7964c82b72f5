package procevents_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter/internal/procevents"
)

func open(t *testing.T) *procevents.Conn {
	t.Helper()
	c, err := procevents.Open()
	if err != nil {
		t.Fatalf("%v: this test needs root in the initial namespaces and a kernel with CONFIG_PROC_EVENTS", err)
	}
	t.Cleanup(c.Close)
	return c
}

// until reads events until want says that it has what it wants.
func until(t *testing.T, c *procevents.Conn, want func(procevents.Event) bool) {
	t.Helper()
	var events [64]procevents.Event
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		n, err := c.Read(events[:])
		if err != nil && !errors.Is(err, procevents.ErrOverrun) {
			t.Fatal(err)
		}
		if slices.ContainsFunc(events[:n], want) {
			return
		}
		if n == 0 {
			fds := []unix.PollFd{{Fd: int32(c.FD()), Events: unix.POLLIN}}
			if _, err := unix.Poll(fds, 1000); err != nil && err != unix.EINTR {
				t.Fatal(err)
			}
		}
	}
	t.Fatal("the event did not come within a minute")
}

func TestConn_Read(t *testing.T) {
	c := open(t)
	var before unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &before); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "exit 3")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its exit code is what is looked for below
	var kinds []procevents.Kind
	until(t, c, func(e procevents.Event) bool {
		if e.Pid != cmd.Process.Pid {
			return false
		}
		kinds = append(kinds, e.Kind)
		if e.At < time.Duration(before.Nano()) {
			t.Errorf("%+v is told of before the process was started at %v", e, time.Duration(before.Nano()))
		}
		if e.Kind != procevents.Exec && e.Parent != os.Getpid() {
			t.Errorf("%+v: the parent is %d", e, os.Getpid())
		}
		if e.Kind == procevents.Exit && unix.WaitStatus(e.Code).ExitStatus() != 3 {
			t.Errorf("%+v: want exit status 3", e)
		}
		return e.Kind == procevents.Exit
	})
	if want := []procevents.Kind{procevents.Fork, procevents.Exec, procevents.Exit}; !slices.Equal(kinds, want) {
		t.Errorf("events of kinds %v, want %v", kinds, want)
	}
}

func TestConn_Read_noThreads(t *testing.T) {
	c := open(t)
	threads := make(map[int]bool)
	release := make(chan struct{})
	ids := make(chan int)
	for range 8 {
		go func() {
			ids <- lock()
			<-release
		}()
	}
	for range 8 {
		threads[<-ids] = true
	}
	close(release) // each goroutine ends locked, and its thread with it
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	until(t, c, func(e procevents.Event) bool {
		if threads[e.Pid] && e.Pid != os.Getpid() {
			t.Errorf("%+v is of a thread", e)
		}
		return e.Pid == cmd.Process.Pid && e.Kind == procevents.Exit
	})
}

func TestConn_Read_allocates(t *testing.T) {
	c := open(t)
	var events [16]procevents.Event
	seen := 0
	n := testing.AllocsPerRun(20, func() {
		for range 50 {
			n, err := c.Read(events[:])
			if err != nil && !errors.Is(err, procevents.ErrOverrun) {
				t.Fatal(err)
			}
			seen += n
		}
	})
	if n > 0 {
		t.Errorf("readings of %d events make %v allocations each", seen, n)
	}
}

func TestConn_Close(t *testing.T) {
	c := open(t)
	c.Close()
	c.Close()
	var events [1]procevents.Event
	if _, err := c.Read(events[:]); err == nil {
		t.Error("a closed subscription can be read")
	}
}
