package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/process"
)

// accountFor is the account of the build that a process is a part of.
func accountFor(t *testing.T, a *Agent, pid int) (*cimeter.Record, string, error) {
	t.Helper()
	c, err := a.Hold(pid)
	if err != nil {
		return nil, "", err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, stage, err := c.Account(ctx)
	if err == nil && !c.Same() {
		t.Errorf("process %d is not the one that was held", pid)
	}
	return r, stage, err
}

func TestAgent_Hold(t *testing.T) {
	e := newEngine()
	a, _ := start(t, options(e, newShelf()))
	ours, foreign := newBox(t, "compile", time.Millisecond), newBox(t, "foreign", time.Millisecond)
	foreign.Labels = nil
	e.tell(cimeter.ContainerStarted, ours.Container, cimeter.Opt[int]{})
	e.tell(cimeter.ContainerStarted, foreign.Container, cimeter.Opt[int]{})
	var r *cimeter.Record
	within(t, "a process of the build is told of it", func() bool {
		var err error
		var stage string
		r, stage, err = accountFor(t, a, ours.cmd.Process.Pid)
		return err == nil && stage == "compile" && r.Usage.CPUSeconds.Total.Known
	})
	if r.Key != "test/build" || len(r.Stages) != 1 || r.Result != "" {
		t.Errorf("got %+v", r)
	}
	// Nothing of it to others: a container of no build, and who is in none.
	if r, _, err := accountFor(t, a, foreign.cmd.Process.Pid); r != nil || !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("a container of no build: got %+v, %v: want not found", r, err)
	}
	if r, _, err := accountFor(t, a, os.Getpid()); r != nil || !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("this process: got %+v, %v: want not found", r, err)
	}

	c, err := a.Hold(ours.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Scope() != ours.ID || !c.Same() {
		t.Errorf("scope %s, same %t", c.Scope(), c.Same())
	}
	ours.finish(t, nil)
	if c.Same() {
		t.Error("an ended process is still the same")
	}
	if _, err := a.Hold(ours.cmd.Process.Pid); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("an ended process: got %v, want gone", err)
	}
	within(t, "the container's end is seen", func() bool {
		_, _, err := c.Account(t.Context())
		return errors.Is(err, cimeter.ErrNotFound)
	})
}

// Who asks before the engine has told of the container is answered when it has.
func TestAgent_Hold_Early(t *testing.T) {
	e := newEngine()
	a, _ := start(t, options(e, newShelf()))
	early := newBox(t, "compile", time.Millisecond)
	c, err := a.Hold(early.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.learn = 0
	if _, _, err := c.Account(t.Context()); !errors.Is(err, cimeter.ErrNotFound) {
		t.Fatalf("nobody has told of it: got %v, want not found", err)
	}
	c.learn = time.Minute // no test is about time
	time.AfterFunc(50*time.Millisecond, func() { e.tell(cimeter.ContainerStarted, early.Container, cimeter.Opt[int]{}) })
	if r, _, err := c.Account(t.Context()); err != nil || r.Key != "test/build" {
		t.Errorf("got %+v, %v: want the account of test/build", r, err)
	}
}

// A container that claims another one's build is told nothing of it.
func TestAgent_Hold_Disputed(t *testing.T) {
	e := newEngine()
	o := options(e, newShelf())
	o.Identify = func(c *cimeter.Container) (cimeter.Identity, bool) {
		id, ok := identify(c)
		id.Group = c.Name
		return id, ok
	}
	a, _ := start(t, o)
	genuine, forged := newBox(t, "genuine", time.Millisecond), newBox(t, "forged", time.Millisecond)
	e.tell(cimeter.ContainerStarted, genuine.Container, cimeter.Opt[int]{})
	within(t, "the genuine one is told", func() bool {
		_, _, err := accountFor(t, a, genuine.cmd.Process.Pid)
		return err == nil
	})
	e.tell(cimeter.ContainerStarted, forged.Container, cimeter.Opt[int]{})
	within(t, "the forged one is disputed", func() bool {
		v, _ := a.meter.gauges.disputed.Get()
		return v == 1
	})
	if r, _, err := accountFor(t, a, forged.cmd.Process.Pid); r != nil || !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("got %+v, %v: want not found", r, err)
	}
}

// Where there are no pidfds, a number that went to another process is known by
// when that began.
func TestCaller_Same_WithoutPidfd(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), workEnv+"=1ms")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	procs := process.Open("/proc")
	began, err := procs.StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{procs: procs}
	c := &Caller{agent: a, pid: cmd.Process.Pid, pidfd: -1, start: began}
	other := &Caller{agent: a, pid: cmd.Process.Pid, pidfd: -1, start: began - 1}
	if !c.Same() || other.Same() {
		t.Errorf("same %t, an earlier one %t", c.Same(), other.Same())
	}
	in.Write([]byte("\n"))
	cmd.Wait()
	if c.Same() {
		t.Error("an ended process is still the same")
	}
}

// An agent that the meter does not serve gives up with the caller's time.
func TestCaller_Account_Busy(t *testing.T) {
	a, err := New(options(newEngine(), newShelf()), slog.New(slog.NewTextHandler(t.Output(), nil))) // never run
	if err != nil {
		t.Fatal(err)
	}
	defer a.watch.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &Caller{agent: a, pidfd: -1, container: strings.Repeat("0", 64)}
	if _, _, err := c.Account(ctx); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("got %v, want unavailable", err)
	}
}

func TestContainerOf(t *testing.T) {
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for name, c := range map[string]struct{ text, want string }{
		"v2":                      {"0::/system.slice/docker-" + a + ".scope\n", a},
		"v1":                      {"9:memory:/docker/" + a + "\n3:cpu,cpuacct:/docker/" + a + "\n1:name=systemd:/docker/" + a + "\n", a},
		"another cgroup space":    {"0::/../" + a + "\n", a},
		"hybrid, not in all":      {"9:memory:/docker/" + a + "\n2:net_cls:/\n0::/\n", a},
		"a container within":      {"0::/docker/" + a + "/docker/" + b + "\n", a},
		"its own cgroups":         {"0::/docker/" + a + "/" + b + "x/y\n", a},
		"moved in one of them":    {"9:memory:/docker/" + a + "\n3:cpu,cpuacct:/docker/" + b + "\n", ""},
		"none":                    {"0::/user.slice\n", ""},
		"the runtime's monitor":   {"0::/machine.slice/libpod-conmon-" + a + ".scope\n", ""},
		"a zombie's":              {"0::/docker/" + a + " (deleted)\n", ""},
		"a name with a container": {"0::/x" + a + "\n", ""},
		"nothing":                 {"", ""},
		"malformed":               {"x\n", ""},
	} {
		got, err := containerOf([]byte(c.text))
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: got %.12s, %v: want %.12s", name, got, err, c.want)
		}
	}
}
