package e2e_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
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

// TestAgentKillLoop kills the agent at random moments, again and again, while
// containers come and go: no build is lost, none is there twice, none has more
// than it used, and what lacks something says so.
func TestAgentKillLoop(t *testing.T) {
	b := newBare(t)
	rnd := rand.New(rand.NewPCG(seed(t), 1))
	a := startAgent(t, b, bareConfig())
	c := b.churn(8, 1000, steady(rand.New(rand.NewPCG(rnd.Uint64(), 2))))
	n := loops(t, 20)
	for range n {
		<-time.After(time.Duration(rnd.Int64N(int64(600 * time.Millisecond)))) // the random moment is the fault
		a.kill()
		a.start()
	}
	account := c.end(t)
	account.settle(t, a)
	t.Logf("%d kills", n)
}

// TestAgentTerminateLoop ends the agent in order at random moments. It leaves
// with 0 within its ten seconds (terminate sees to that) and nothing is lost.
func TestAgentTerminateLoop(t *testing.T) {
	b := newBare(t)
	rnd := rand.New(rand.NewPCG(seed(t), 3))
	a := startAgent(t, b, bareConfig())
	c := b.churn(8, 1000, steady(rand.New(rand.NewPCG(rnd.Uint64(), 4))))
	for range loops(t, 10) {
		<-time.After(time.Duration(rnd.Int64N(int64(600 * time.Millisecond)))) // the random moment is the fault
		begun := time.Now()
		a.terminate()
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("the agent needed %v to end, want 10 s at most", took)
		}
		a.start()
	}
	c.end(t).settle(t, a)
}

// TestAgentTerminatedTwice ends an agent that cannot save what it has, for the
// disk does not sync: it gives up by itself after ten seconds, and at once at
// the second signal.
func TestAgentTerminatedTwice(t *testing.T) {
	for _, second := range []bool{true, false} {
		t.Run(fmt.Sprintf("second=%v", second), func(t *testing.T) {
			b := newBare(t)
			a := newAgent(t, b, bareConfig())
			// The first syncs are the start's own.
			a.wrapper = straced(t, "fsync", "delay_enter=60s:when=4+")
			a.start()
			s := b.build(1)
			c, err := s.begin("step", "cpu=0.01", "sleep=3600")
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = c.cmd.Process.Kill()
				_ = c.cmd.Wait() // it was killed
			}()
			a.eventually("the build runs", func() error {
				if n := a.metric("cimeter_builds_running"); n != 1 {
					return fmt.Errorf("%v builds run", n)
				}
				return nil
			})
			if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			state := a.leave(second)
			if second && (!state.Signaled() || state.Signal() != syscall.SIGTERM) {
				t.Errorf("the agent left with %v, want it ended by the second signal", state)
			}
			if !second && state.ExitStatus() != 1 {
				t.Errorf("the agent left with %d, want 1: it did not save what it had", state.ExitStatus())
			}
		})
	}
}

// leave waits until the agent has left, sending SIGTERM meanwhile if asked to.
func (a *agent) leave(insist bool) syscall.WaitStatus {
	a.t.Helper()
	a.stopWatch()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		select {
		case <-a.done:
			state := a.cmd.ProcessState.Sys().(syscall.WaitStatus)
			a.cmd = nil
			return state
		case <-tick.C:
			if insist {
				if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
					a.t.Error(err)
				}
			}
		case <-deadline:
			a.t.Fatal("the agent does not leave")
		}
	}
}
