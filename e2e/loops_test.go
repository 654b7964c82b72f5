package e2e_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// loops is how often a fault is repeated: CIMETER_TEST_LOOPS, or few where it
// is not set (200 is what a release is held to).
func loops(t *testing.T, few int) int {
	t.Helper()
	s := os.Getenv("CIMETER_TEST_LOOPS")
	if s == "" {
		return few
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("CIMETER_TEST_LOOPS: %q: want a number of rounds", s)
	}
	return n
}

// steady is a build of a second or so, in three containers.
func steady(rnd *rand.Rand) func(*bareBuild) error {
	random := make(chan float64)
	go func() {
		for {
			random <- rnd.Float64()
		}
	}()
	return func(s *bareBuild) error {
		for i := range 3 {
			err := s.step(fmt.Sprintf("step-%d", i), fmt.Sprintf("cpu=%.3f", 0.002+0.02*<-random), fmt.Sprintf("sleep=%.3f", 0.1+0.4*<-random))
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// absence is a time without an agent.
type absence struct {
	span
	kept map[string]bool // the builds in the checkpoints that were on disk then
}

// young is how old a build may be that is in no checkpoint yet: to see a container, to
// ask whose it is and to sync a file takes a busy machine some hundred milliseconds.
const young = time.Second

// absent ends the agent and starts it again. A busy machine may take longer for that
// than a build lives.
func (a *agent) absent(end func()) absence {
	a.t.Helper()
	begun := time.Now()
	end()
	kept := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(a.data, "checkpoints", "*.checkpoint"))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			a.t.Fatal(err)
		}
		if lines := strings.SplitN(string(b), "\n", 3); len(lines) == 3 { // what it is, the key, the state
			kept[lines[1]] = true
		}
	}
	a.start()
	return absence{span{begun, time.Now()}, kept}
}

// TestAgentKillLoop kills the agent at random moments, again and again, while
// containers come and go: no build is lost, none is there twice, none has more
// than it used, and what lacks something says so.
func TestAgentKillLoop(t *testing.T) {
	b := newBare(t)
	rnd := rand.New(rand.NewPCG(seed(t), 1))
	a := startAgent(t, b, bareConfig())
	c := b.churn(8, 1000, steady(rand.New(rand.NewPCG(rnd.Uint64(), 2))))
	n := loops(t, 20)
	var away []absence
	for range n {
		<-time.After(time.Duration(rnd.Int64N(int64(600 * time.Millisecond)))) // the random moment is the fault
		away = append(away, a.absent(a.kill))
	}
	account := c.end(t)
	c.forget(t, away)
	account.settle(t, a)
	t.Logf("%d kills", n)
}

// TestAgentTerminateLoop ends the agent in order at random moments. It leaves
// with 0 within its ten seconds and nothing is lost. Every other time a second
// signal follows, which may end it before it is done.
func TestAgentTerminateLoop(t *testing.T) {
	b := newBare(t)
	rnd := rand.New(rand.NewPCG(seed(t), 3))
	a := startAgent(t, b, bareConfig())
	c := b.churn(8, 1000, steady(rand.New(rand.NewPCG(rnd.Uint64(), 4))))
	var away []absence
	for i := range loops(t, 10) {
		<-time.After(time.Duration(rnd.Int64N(int64(600 * time.Millisecond)))) // the random moment is the fault
		away = append(away, a.absent(func() {
			begun := time.Now()
			if i%2 == 0 {
				a.terminate()
			} else if state := a.terminateTwice(); state.ExitStatus() != 0 && (!state.Signaled() || state.Signal() != syscall.SIGTERM) {
				t.Errorf("the agent left with %#x after two signals, want 0 or ended by the second", uint32(state))
			}
			if took := time.Since(begun); took > 10*time.Second {
				t.Errorf("the agent needed %v to end, want 10 s at most", took)
			}
		}))
	}
	account := c.end(t)
	c.forget(t, away)
	account.settle(t, a)
}

func itoa(n int) string { return strconv.Itoa(n) }

// terminateTwice sends SIGTERM until the agent has left.
func (a *agent) terminateTwice() syscall.WaitStatus {
	a.t.Helper()
	a.stopWatch()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			a.t.Error(err)
		}
		select {
		case <-a.done:
			state := a.cmd.ProcessState.Sys().(syscall.WaitStatus)
			a.cmd = nil
			return state
		case <-tick.C:
		case <-deadline:
			a.t.Fatal("the agent does not leave")
		}
	}
}
