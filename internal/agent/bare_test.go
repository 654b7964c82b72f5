package agent

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

// A container that runs in no cgroup of its own is told apart from one that was gone too
// soon: by its process, while it has one.
func TestAgent_noCgroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a pid namespace needs root")
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	e, s := newEngine(), newShelf()
	a, _ := start(t, options(e, s))
	bare := func() (is bool) {
		done := make(chan struct{})
		a.meter.post(func() { is = a.engines[0].bare; close(done) })
		<-done
		return is
	}
	c := cimeter.Container{ID: strings.Repeat("cd", 32), Name: "step", Labels: map[string]string{"stage": "step"}}
	e.tell(cimeter.ContainerCreated, c, cimeter.Opt[int]{})
	c.Pid, c.Running, c.StartedAt = cmd.Process.Pid, true, time.Now()
	e.tell(cimeter.ContainerStarted, c, cimeter.Opt[int]{})
	within(t, "it is noticed that it is in no cgroup", bare)
	e.tell(cimeter.ContainerDied, c, cimeter.Some(0))
	e.tell(cimeter.ContainerDestroyed, c, cimeter.Opt[int]{})
	r := s.await(t, "test/build")
	if r.Complete || len(r.Gaps) != 1 || r.Gaps[0].Reason != cimeter.GapNoCgroup {
		t.Errorf("complete %v, gaps %+v; want one for want of a cgroup", r.Complete, r.Gaps)
	}
}

// A process that shares this process's pids is no container's: an engine on another
// machine tells numbers that are others' here.
func TestMeter_lookForCgroup_ofAnotherMachine(t *testing.T) {
	e := newEngine()
	a, err := New(options(e, newShelf()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.watch.Close()
	defer a.host.Close()
	defer a.nets.Close()
	defer a.meter.gauges.self.Close()
	k := &known{id: "a1", engine: a.engines[0]}
	for _, pid := range []int{0, os.Getpid(), 1 << 30} {
		if a.meter.lookForCgroup(k, pid); k.bare || k.engine.bare {
			t.Errorf("process %d: taken for a container's without a cgroup", pid)
		}
	}
}
