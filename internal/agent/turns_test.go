package agent

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// A container that waits for its turn is in its stage while a process of the build's
// is in it, and waits before and after. It is not known whose it is before its
// runner has got a build.
func TestAgent_waitsItsTurn(t *testing.T) {
	waitsItsTurn(t, func(_ *cimeter.Identity, cmdline []byte) CommandTold {
		if bytes.Contains(cmdline, []byte("work")) {
			return CommandTold{Stage: "turn", Inside: true}
		}
		return CommandTold{Own: true}
	}, false, cimeter.StageWaiting)
}

// What a stage has used until it is seen to have begun is its own.
func TestAgent_waitsItsTurn_begun(t *testing.T) {
	waitsItsTurn(t, func(_ *cimeter.Identity, cmdline []byte) CommandTold {
		if bytes.Contains(cmdline, []byte("work")) {
			time.Sleep(50 * time.Millisecond) // a machine with much to do
			return CommandTold{Stage: "turn", Inside: true}
		}
		return CommandTold{Own: true}
	}, true, cimeter.StageWaiting)
}

// Where no command line names a stage it stays in the one that it has entered: a
// shell does much itself.
func TestAgent_waitsItsTurn_unnamed(t *testing.T) {
	waitsItsTurn(t, func(_ *cimeter.Identity, cmdline []byte) CommandTold {
		return CommandTold{Own: !bytes.Contains(cmdline, []byte("work"))}
	}, false, "turn")
}

// waitsItsTurn has a container wait for its turn and take it; atOnce: it works before it
// can be seen to. after is the stage that it is in then.
func waitsItsTurn(t *testing.T, told func(*cimeter.Identity, []byte) CommandTold, atOnce bool, after string) {
	e, s := newEngine(), newShelf()
	o := options(e, s)
	var got atomic.Bool // the runner has a build
	o.Identify = func(c *cimeter.Container) (cimeter.Identity, bool) {
		id, ok := identify(c)
		id.Stage, id.Alongside, id.Inside, id.Next, id.Later = cimeter.StageWaiting, true, true, "turn", !got.Load()
		return id, ok
	}
	o.CommandStage = told
	a, _ := start(t, o)
	b := newBox(t, "pod", 200*time.Millisecond)
	e.tell(cimeter.ContainerCreated, b.Container, cimeter.Opt[int]{})
	e.tell(cimeter.ContainerStarted, b.Container, cimeter.Opt[int]{})
	stage := func() string {
		n := make(chan string)
		a.meter.post(func() {
			now := ""
			for _, l := range a.meter.lives {
				if l.id == b.ID && l.segment.Bound() {
					now = l.turns.stage
				}
			}
			n <- now
		})
		return <-n
	}
	within(t, "it is asked whose the container is", func() bool {
		n := make(chan bool)
		a.meter.post(func() { k := a.meter.know(b.ID); n <- k.identity.Later && k.stand == nothing })
		return <-n
	})
	if r := a.running(); r != 0 {
		t.Errorf("%d builds run: the container's is not known yet", r)
	}
	got.Store(true)
	within(t, "it waits", func() bool { return stage() == cimeter.StageWaiting })

	var used strings.Builder
	turn := exec.Command("/proc/self/exe", "work")
	turn.Env = append(os.Environ(), workEnv+"=300ms")
	turn.Stdout = &used
	in, err := turn.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := turn.Start(); err != nil {
		t.Fatal(err)
	}
	files, err := testdocker.CgroupProcs(b.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(f, fmt.Append(nil, turn.Process.Pid), 0); err != nil {
			t.Fatal(err)
		}
	}
	begin := func() {
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
	if atOnce {
		begin()
	}
	within(t, "its turn has come", func() bool { return stage() == "turn" })
	if !atOnce {
		begin()
	}
	if err := turn.Wait(); err != nil {
		t.Fatal(err)
	}
	within(t, "its turn is over", func() bool { return stage() == after })
	own := b.finish(t, a)
	e.tell(cimeter.ContainerDied, b.Container, cimeter.Some(0))
	e.tell(cimeter.ContainerDestroyed, b.Container, cimeter.Opt[int]{})

	r := s.await(t, "test/build")
	if len(r.Stages) != 2 || r.Stages[0].Name != "turn" || r.Stages[0].Alongside || r.Stages[0].Boundary != cimeter.BoundaryCommand ||
		r.Stages[1].Name != cimeter.StageWaiting || !r.Stages[1].Alongside || r.Stages[1].Attempt != 1 {
		t.Fatalf("stages %+v", r.Stages)
	}
	want, err := time.ParseDuration(strings.TrimSpace(used.String()))
	if err != nil {
		t.Fatal(err)
	}
	if after == "turn" {
		want += own
	}
	checkCPU(t, "turn", r.Stages[0].Usage.CPUSeconds.Total, want)
}

// A container that goes through several stages is split where its processes'
// command lines tell the next one.
func TestAgent_stagesInside(t *testing.T) {
	e, s := newEngine(), newShelf()
	o := options(e, s)
	o.CommandStage = func(_ *cimeter.Identity, cmdline []byte) CommandTold {
		stage, _ := gitlab.StageInside(cmdline)
		return CommandTold{Stage: stage, Inside: true}
	}
	o.Identify = func(c *cimeter.Container) (cimeter.Identity, bool) {
		id, ok := identify(c)
		id.Stage = "" // the container does not tell
		return id, ok
	}
	o.Stager = func(string) attrib.Stager { return silent{} }
	a, _ := start(t, o)
	b := newBox(t, "pod", 400*time.Millisecond, "/scripts-12-345/get_sources", "/scripts-12-345/step_script")
	e.tell(cimeter.ContainerCreated, b.Container, cimeter.Opt[int]{})
	e.tell(cimeter.ContainerStarted, b.Container, cimeter.Opt[int]{})
	runs := func(stage string) bool {
		n := make(chan bool)
		a.meter.post(func() {
			r := a.ledger.Running(time.Now())
			n <- len(r) == 1 && slices.ContainsFunc(r[0].Stages, func(s cimeter.Stage) bool { return s.Name == stage })
		})
		return <-n
	}
	within(t, "the first stage is known", func() bool { return runs("get_sources") })
	go func() { // the second script waits for a line, too: until it is known
		for tick := time.Tick(5 * time.Millisecond); t.Context().Err() == nil && !runs("step_script"); {
			<-tick
		}
		_, _ = b.in.Write([]byte("\n"))
	}()
	used := b.finish(t, a)
	e.tell(cimeter.ContainerDied, b.Container, cimeter.Some(0))
	e.tell(cimeter.ContainerDestroyed, b.Container, cimeter.Opt[int]{})
	r := s.await(t, "test/build")
	if len(r.Stages) != 2 || r.Stages[0].Name != "get_sources" || r.Stages[1].Name != "step_script" {
		t.Fatalf("stages %+v", r.Stages)
	}
	checkCPU(t, "build", r.Usage.CPUSeconds.Total, used)
	for _, st := range r.Stages {
		// What starting takes is not in used.
		if c := st.Usage.CPUSeconds.Total.Value; st.Boundary != cimeter.BoundaryCommand || math.Abs(c-used.Seconds()/2) > 0.05 {
			t.Errorf("%s by %s: CPU %v s, want half of %v", st.Name, st.Boundary, c, used)
		}
	}
}

// running is the number of builds that run.
func (a *Agent) running() int {
	n := make(chan int)
	a.meter.post(func() { n <- a.ledger.Builds() })
	return <-n
}

// What stays as it is is looked at less often, up to a bound, and what changes again
// at once.
func TestTurns(t *testing.T) {
	var tr turns
	if d := tr.pace(); d != commandLook {
		t.Errorf("%v at first, want %v", d, commandLook)
	}
	before := time.Duration(0)
	for range 1000 {
		tr.steady++
		if d := tr.pace(); d < before || d > commandLook<<steadyDoubles {
			t.Fatalf("%v after %v", d, before)
		}
		before = tr.pace()
	}
	if before != commandLook<<steadyDoubles {
		t.Errorf("%v in the end, want %v", before, commandLook<<steadyDoubles)
	}
	tr = turns{steady: 10 * steadyLooks}
	if tr.same([]int{1, 2}) {
		t.Error("processes that were never seen are the same")
	}
	looks := 0
	for range 8 * freshLook {
		tr.steady++
		if !tr.same([]int{1, 2}) {
			looks++
		}
	}
	if looks != 8 {
		t.Errorf("the same processes are looked at %d times in %d, want 8", looks, 8*freshLook)
	}
	if tr.same([]int{1, 3}) || tr.same([]int{3, 1}) || tr.same([]int{3}) {
		t.Error("other processes are the same")
	}
}

// A container that has not changed for long is looked at only in rounds, and there
// only when it has used CPU time; not where rounds are rare.
func TestMeter_parked(t *testing.T) {
	l := &live{booked: [3]uint64{5}, inside: true, turns: turns{steady: steadyLooks * steadyDoubles}}
	now := time.Now()
	rare := &meter{Agent: &Agent{opts: Options{Interval: 5 * time.Second}}}
	if at := rare.nextTurn(l, now); at.Sub(now) != l.turns.pace() || l.turns.parked {
		t.Errorf("with rare rounds: in %v, parked %v", at.Sub(now), l.turns.parked)
	}
	m := &meter{Agent: &Agent{opts: Options{Interval: time.Second}}}
	if at := m.nextTurn(l, now); !at.IsZero() || !l.turns.parked {
		t.Errorf("at %v, parked %v: want none", at, l.turns.parked)
	}
	m.lookParked(l) // it has no cgroup: a look would panic
	looked := func() (done bool) {
		defer func() { done = recover() != nil }()
		m.lookParked(l)
		return
	}
	if l.booked[0]++; !looked() {
		t.Error("it has used CPU time and is not looked at")
	}
	l.turns.steady = 0
	if at := m.nextTurn(l, now); at.Sub(now) != commandLook {
		t.Errorf("after a change: in %v", at.Sub(now))
	}
}
