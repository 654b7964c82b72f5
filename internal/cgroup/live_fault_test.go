package cgroup_test

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
)

// A cgroup that is made and removed while others read it: no crash, no counter
// that falls within one cgroup, and only ErrGone.
func TestLive_RemovedWhileRead(t *testing.T) {
	h := live(t)
	path := fmt.Sprintf("/cimeter-test-%d-race", os.Getpid())
	dirs := folders(h, path)
	t.Cleanup(func() { removeGroup(dirs) })
	done := make(chan error, 1)
	var stop atomic.Bool
	var made atomic.Int64
	go func() {
		var err error
		for err == nil && !stop.Load() {
			for _, d := range dirs {
				err = errors.Join(err, os.Mkdir(d, 0o755))
			}
			for _, d := range dirs {
				err = errors.Join(err, syscall.Rmdir(d))
			}
			made.Add(1)
		}
		done <- err
	}()
	opened, gone := 0, 0
	for made.Load() < 500 || gone < 20 {
		g, err := h.Group(path)
		if err != nil {
			if !errors.Is(err, cimeter.ErrGone) {
				t.Fatalf("Group: %v", err)
			}
			continue
		}
		opened++
		var s cimeter.Sample
		for {
			g.Retry()
			if err := g.Read(&s, cgroup.Full); errors.Is(err, cimeter.ErrGone) {
				gone++
				break
			} else if err != nil {
				t.Fatalf("Read: %v", err)
			}
			if _, err := g.Procs(nil); err != nil && !errors.Is(err, cimeter.ErrGone) {
				t.Fatalf("Procs: %v", err)
			}
			if _, err := g.Populated(); err != nil && !errors.Is(err, cimeter.ErrGone) {
				t.Fatalf("Populated: %v", err)
			}
		}
		g.Close()
	}
	stop.Store(true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if h.Errors() != 0 {
		t.Errorf("%d errors, the last %v", h.Errors(), h.LastError())
	}
	if opened != gone {
		t.Errorf("%d opened, %d told of their end", opened, gone)
	}
}

// The process has no descriptor left: reads go on, by the one kept in reserve.
func TestLive_Starved(t *testing.T) {
	live(t)
	cmd, start := child(t, nil, "starve")
	cmd.Stdout = nil
	start()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("child: %v", err)
	}
}

// childStarve is the child of TestLive_Starved.
func childStarve(t *testing.T) {
	h, err := cgroup.Open(cgroup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lim := syscall.Rlimit{Cur: 64, Max: 64}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	var groups []*cgroup.Group
	for i := range 20 {
		path, _ := makeGroup(t, h, fmt.Sprint("starved-", i))
		g, err := h.Group(path)
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, g)
	}
	var taken []int
	for { // whatever the limit of the Host was: nothing is left
		fd, err := syscall.Open("/", syscall.O_RDONLY, 0)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	files := func() (n int) {
		for _, g := range groups {
			n += g.Files()
		}
		return n
	}
	kept := files()
	for range 3 {
		for _, g := range groups {
			var s cimeter.Sample
			if err := g.Read(&s, cgroup.Full); err != nil {
				t.Fatal(err)
			}
			for _, c := range []cimeter.Counter{cimeter.CPUTotal, cimeter.CPUUser, cimeter.OOMKills} {
				if _, ok := s.Counter(c); !ok {
					t.Errorf("counter %d is absent", c)
				}
			}
			for _, c := range []cimeter.Gauge{cimeter.MemoryCurrent, cimeter.MemoryPeak, cimeter.MemoryWorkingSet, cimeter.Processes} {
				if _, ok := s.Gauge(c); !ok {
					t.Errorf("gauge %d is absent", c)
				}
			}
			if _, err := g.Procs(nil); err != nil {
				t.Error(err)
			}
		}
	}
	if h.Degraded() == 0 || h.Errors() != 0 {
		t.Errorf("degraded %d, errors %d: %v", h.Degraded(), h.Errors(), h.LastError())
	}
	// What the rest of the program gives up is left to it.
	for _, fd := range taken {
		_ = syscall.Close(fd)
	}
	for _, g := range groups {
		var s cimeter.Sample
		if err := g.Read(&s, cgroup.Full); err != nil {
			t.Fatal(err)
		}
	}
	if n := files(); n != kept || kept == 0 {
		t.Errorf("%d descriptors kept, %d before", n, kept)
	}
	for _, g := range groups {
		g.Close()
	}
}
