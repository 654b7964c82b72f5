package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/process"
)

// buildEnv names the build of a plain process in these tests.
const buildEnv = "CIMETER_TEST_BUILD"

// processes are found by looking; this test is the runner.
func processes(t *testing.T) *Processes {
	t.Helper()
	self, err := process.Open("").Name(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	no := func(string) bool { return false }
	return &Processes{
		Runner: func(comm []byte) process.RunnerKind {
			if string(comm) == self {
				return process.Runs
			}
			return process.NoRunner
		},
		Variables: []string{buildEnv},
		Identify: func(env map[string]string) (id cimeter.Identity, ok bool) {
			id.Build = cimeter.Build{CI: "test", Key: "test/" + env[buildEnv]}
			id.Stage = "test"
			return id, env[buildEnv] != ""
		},
		Stage:  func(string, bool, []byte) (string, bool, bool, bool) { return "", false, false, false },
		OneJob: no, Pauses: no, Leaves: func(ci string) bool { return ci == "leaves" }, OneAtATime: func(string) bool { return true },
	}
}

// plain is a process that the runner has started, which ends when its input does.
type plain struct {
	*exec.Cmd
	in  io.WriteCloser
	out io.Reader
}

func newPlain(t *testing.T, build, script string) *plain {
	t.Helper()
	p := &plain{Cmd: exec.Command("/bin/sh", "-c", script)}
	p.Env = []string{"PATH=" + os.Getenv("PATH"), buildEnv + "=" + build}
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if p.out, err = p.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.end)
	// It runs before its variables can be read: the kernel shows them last.
	for shown := []byte(nil); !bytes.Contains(shown, []byte(buildEnv+"="+build)); {
		if shown, err = os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.Process.Pid)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// end has it end, with all that it started and did not leave it.
func (p *plain) end() {
	p.in.Close()
	_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
	_ = p.Wait() // killed
}

const lasts = "sleep 1000 & echo $!; wait" // its child's number comes out

func (p *plain) number(t *testing.T) (pid int) {
	t.Helper()
	if _, err := fmt.Fscan(p.out, &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// isTold checks whose account a process is told; "" is nobody's.
func isTold(t *testing.T, a *Agent, what string, pid int, want string) {
	t.Helper()
	r, stage, err := accountFor(t, a, pid)
	switch {
	case want == "" && (r != nil || !errors.Is(err, cimeter.ErrNotFound)):
		t.Errorf("%s: told %+v, %v: want not found", what, r, err)
	case want != "" && (err != nil || r.Key != want || stage != "test" || !r.Usage.CPUSeconds.Total.Known):
		t.Errorf("%s: told %+v in stage %q, %v: want %s", what, r, stage, err, want)
	}
}

// Two builds of one runner and of one service at once: each of their processes is
// told of its own build, whatever its variables say, and no other process is told
// anything.
func TestAgent_Hold_Processes(t *testing.T) {
	o := options(newEngine(), newShelf())
	o.Processes = processes(t)
	one := newPlain(t, "one", lasts)
	a, _ := start(t, o)
	// It asks before any look at processes has seen it, and its family.
	two := newPlain(t, "two", "exec 2>&1; read go; "+buildEnv+"=one sh -c '"+lasts+"'")
	isTold(t, a, "the first process of the first build", one.Process.Pid, "test/one")
	isTold(t, a, "its child", one.number(t), "test/one")
	isTold(t, a, "the first process of the second build", two.Process.Pid, "test/two")
	if _, err := two.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	isTold(t, a, "one that says that it is of the first build", two.number(t), "test/two")
	isTold(t, a, "the runner", os.Getpid(), "")
	isTold(t, a, "the runner's parent", os.Getppid(), "")
	// It has left its parent, and all that it is known by are its variables: it is
	// metered for its build and told nothing.
	left := newPlain(t, "one", "exec 2>&1; setsid sh -c '"+lasts+"' & wait")
	orphan := left.number(t)
	c, err := a.Hold(left.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if same, err := a.Hold(one.Process.Pid); err != nil || same.Scope() == c.Scope() || strings.Contains(c.Scope(), "test/") {
		t.Errorf("scope %q, %v: want one of its own", c.Scope(), err)
	} else {
		same.Close()
	}
	isTold(t, a, "a child of a program that claims a build which runs", orphan, "")
	left.end()
	if c.Same() {
		t.Error("an ended process is still the same")
	}
	if _, err := a.Hold(left.Process.Pid); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("an ended process: %v, want gone", err)
	}
	_ = syscall.Kill(-orphan, syscall.SIGKILL)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err = a.Hold(two.Process.Pid); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := c.Account(ctx); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("the caller's time is over: %v, want unavailable", err)
	}
}

// A job that claims from its beginning to be another one of the same runner is
// told nothing while that runs, and that not either: nothing tells which is which.
func TestAgent_Hold_Contested(t *testing.T) {
	o := options(newEngine(), newShelf())
	o.Processes = processes(t)
	genuine := newPlain(t, "one", lasts)
	a, stop := start(t, o)
	isTold(t, a, "the genuine job", genuine.Process.Pid, "test/one")
	forged := newPlain(t, "one", lasts)
	isTold(t, a, "the forged one", forged.Process.Pid, "")
	isTold(t, a, "the genuine one from then on", genuine.Process.Pid, "")
	// Its next program, after both: that is one after the other.
	genuine.end()
	forged.end()
	next := newPlain(t, "one", lasts)
	within(t, "the end of both is seen", func() bool {
		_, _, err := accountFor(t, a, next.Process.Pid)
		return err == nil
	})
	stop()
	// One that began before the end of the last program, and tells after it.
	s := &shells{Agent: a, opts: o.Processes, ends: make(map[runnersBuild]time.Duration)}
	of := func(runner int, started, ended time.Duration) *shell {
		sh := &shell{family: &process.Family{Runner: runner, Started: started, RootEnded: ended}, known: true}
		sh.identity.Build.Key = "test/one"
		return sh
	}
	s.noteEnd(of(7, time.Second, time.Minute))
	s.noteEnd(of(7, time.Second, 2*time.Second))
	for what, c := range map[string]struct {
		sh   *shell
		want bool
	}{
		"before its end":                    {of(7, 59*time.Second, 0), true},
		"after its end":                     {of(7, time.Minute, 0), false},
		"by the clock of looking before it": {of(7, time.Minute-overlapSlack/2, 0), false},
		"of another runner":                 {of(8, 59*time.Second, 0), false}, // the ledger refuses it
		"of no runner":                      {of(0, 59*time.Second, 0), false}, // it is told nothing anyway
	} {
		if s.contest(c.sh); c.sh.contested != c.want {
			t.Errorf("a program that began %s: contested %t", what, c.sh.contested)
		}
	}
}

// What a runner started for a build and what is left of it counts for a moment
// more, but where all that it starts leaves it: there it is the build.
func TestShells_atWork(t *testing.T) {
	s := &shells{opts: processes(t)}
	for what, c := range map[string]struct {
		ci   string
		ago  time.Duration
		want bool
	}{
		"just ended":               {"test", leftOver / 2, true},
		"a daemon":                 {"test", 2 * leftOver, false},
		"a step that left":         {"leaves", 2 * leftOver, true},
		"one that is left forever": {"leaves", 2 * leavesFor, false},
	} {
		sh := &shell{family: &process.Family{RootEnded: process.Monotonic() - c.ago}, known: true}
		sh.identity.Build = cimeter.Build{CI: c.ci, Key: c.ci + "/one"}
		s.list = []*shell{sh}
		if got := s.atWork(sh); got != c.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}
