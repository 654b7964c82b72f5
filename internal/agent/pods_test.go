package agent

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// podBox is a pod of a test: its cgroup, and one for each of its containers.
type podBox struct {
	cimeter.Pod
	path string
}

func newPodBox(t *testing.T, n int) *podBox {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("making cgroups needs root")
		}
		t.Skip("making cgroups needs root")
	}
	root := fmt.Sprintf("/cimeter-pods-%d", os.Getpid())
	p := &podBox{Pod: cimeter.Pod{UID: fmt.Sprintf("3f8c5c4e-9a0e-4a52-8c1d-%012d", n), Name: fmt.Sprint("pod", n), Namespace: "ci"}}
	p.path = root + "/pod" + p.UID
	for _, dir := range []string{root, p.path} {
		if err := testdocker.MakeCgroup(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		testdocker.DropCgroup(p.path)
		testdocker.DropCgroup(root) // the last one succeeds
	})
	return p
}

// container is one of the pod's, whose cgroup is not made yet.
func (p *podBox) container(name string, labels map[string]string) cimeter.Container {
	return cimeter.Container{
		ID: fmt.Sprintf("%x", sha256.Sum256([]byte(p.path+name))), Name: name, Labels: labels, Pod: &p.Pod, Sandbox: name == "sandbox", Running: true,
	}
}

// run has a process in a cgroup below the pod's; end ends it and takes the cgroup away.
func (p *podBox) run(t *testing.T, name string, command ...string) (end func()) {
	t.Helper()
	dir := filepath.Join(p.path, name)
	if err := testdocker.MakeCgroup(dir); err != nil {
		t.Fatal(err)
	}
	files, err := testdocker.CgroupProcs(dir)
	if err != nil {
		t.Fatal(err)
	}
	join := "for f in " + strings.Join(files, " ") + "; do echo $$ >$f; done; "
	cmd := exec.Command("busybox", "sh", "-c", join+strings.Join(command, " "))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		in.Close()
		cmd.Wait()
		if err := testdocker.DropCgroup(dir); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	return end
}

const (
	untilTold = "read go || true"
	burns     = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
)

// What no container of a pod has shown is on the pod's build, and so is its sandbox.
func TestAgent_pod(t *testing.T) {
	e, s := newEngine(), newShelf()
	a, _ := start(t, options(e, s))
	p := newPodBox(t, 1)
	sandbox, build := p.container("sandbox", nil), p.container("build", map[string]string{"stage": "compile"})
	build.Requested = cimeter.Requests{CPUCores: cimeter.Some(0.25)}
	endSandbox := p.run(t, sandbox.ID, untilTold)
	e.tell(cimeter.ContainerCreated, sandbox, cimeter.Opt[int]{})
	e.tell(cimeter.ContainerStarted, sandbox, cimeter.Opt[int]{})
	endBuild := p.run(t, build.ID, burns+"; "+untilTold)
	e.tell(cimeter.ContainerCreated, build, cimeter.Opt[int]{})
	e.tell(cimeter.ContainerStarted, build, cimeter.Opt[int]{})
	within(t, "the build runs", func() bool { return len(a.Running()) == 1 })
	p.run(t, "unseen", burns)() // no container's name: as if it had been missed
	endBuild()
	e.tell(cimeter.ContainerDied, build, cimeter.Some(0))
	e.tell(cimeter.ContainerDestroyed, build, cimeter.Opt[int]{})
	used, err := testdocker.CgroupCPU(p.path)
	if err != nil {
		t.Fatal(err)
	}
	endSandbox()
	e.tell(cimeter.ContainerDied, sandbox, cimeter.Opt[int]{})
	e.tell(cimeter.ContainerDestroyed, sandbox, cimeter.Opt[int]{})
	r := s.await(t, "test/build")
	cpu := map[string]float64{}
	for _, st := range r.Stages {
		cpu[st.Name] += st.Usage.CPUSeconds.Total.Value
	}
	if len(r.Stages) != 2 || cpu["compile"] <= 0 || cpu[attrib.StagePod] < 0.5*cpu["compile"] {
		t.Errorf("CPU seconds by stage %v, want about as much at the pod as in compile", cpu)
	}
	if got := r.Usage.CPUSeconds.Total.Value; got < 0.999*used.Seconds() || got > used.Seconds()+0.01 {
		t.Errorf("the build used %.4f s of CPU, the kernel says %.4f s", got, used.Seconds())
	}
	if r.Result != "success" || r.Limits == nil || r.Limits.Requested.CPUCores != cimeter.Some(0.25) {
		t.Errorf("result %q, limits %+v", r.Result, r.Limits)
	}
}

// A pod of nobody's build begins none.
func TestAgent_pod_others(t *testing.T) {
	e, s := newEngine(), newShelf()
	a, _ := start(t, options(e, s))
	p := newPodBox(t, 2)
	sandbox, other := p.container("sandbox", map[string]string{"stage": "it does not count"}), p.container("web", nil)
	for _, c := range []cimeter.Container{sandbox, other} {
		end := p.run(t, c.ID, "true")
		e.tell(cimeter.ContainerStarted, c, cimeter.Opt[int]{})
		end()
		e.tell(cimeter.ContainerDied, c, cimeter.Some(0))
	}
	b := newBox(t, "real", time.Millisecond)
	e.tell(cimeter.ContainerStarted, b.Container, cimeter.Opt[int]{})
	within(t, "the build runs", func() bool { return len(a.Running()) == 1 })
	b.finish(t, nil)
	e.tell(cimeter.ContainerDied, b.Container, cimeter.Some(0))
	e.tell(cimeter.ContainerDestroyed, b.Container, cimeter.Opt[int]{})
	if r := s.await(t, "test/build"); len(r.Stages) != 1 || r.Stages[0].Name != "real" {
		t.Errorf("stages %+v, want real alone", r.Stages)
	}
}

// An engine that does not answer is named, and the list of one keeps what another has.
func TestAgent_engines(t *testing.T) {
	one, two, s := newEngine(), newEngine(), newShelf()
	o := options(one, s)
	o.Engines = []NamedEngine{{"docker", one}, {"cri", two}}
	a, _ := start(t, o)
	b := newBox(t, "step", time.Millisecond)
	two.tell(cimeter.ContainerCreated, b.Container, cimeter.Opt[int]{})
	two.tell(cimeter.ContainerStarted, b.Container, cimeter.Opt[int]{})
	within(t, "the build runs", func() bool { return len(a.Running()) == 1 })
	if err := a.engines[0].list(t.Context()); err != nil { // it has nothing
		t.Fatal(err)
	}
	away := fmt.Errorf("cri at unix:///x: %w", cimeter.ErrUnavailable)
	a.engines[1].disconnected(away)
	if err := a.Ready(); !errors.Is(err, cimeter.ErrUnavailable) || !strings.Contains(err.Error(), "cri at unix:///x") {
		t.Errorf("Ready: %v, want the engine that is away", err)
	}
	waits := make(chan bool)
	a.meter.post(func() { waits <- a.meter.known[b.ID].expires.IsZero() })
	if !<-waits {
		t.Error("the other engine's container is given up")
	}
	b.finish(t, a)
	two.tell(cimeter.ContainerDied, b.Container, cimeter.Some(0))
	two.tell(cimeter.ContainerDestroyed, b.Container, cimeter.Opt[int]{})
	if r := s.await(t, "test/build"); !r.Complete {
		t.Errorf("gaps %+v, want none", r.Gaps)
	}
}

// A sandbox is read once a minute, and the container beside it in each round.
func TestMeter_round_sandbox(t *testing.T) {
	o := options(newEngine(), newShelf())
	o.Engines = nil
	a, err := New(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { a.watch.Close(); a.host.Close(); a.nets.Close() }()
	p := newPodBox(t, 1)
	of := make(map[string]cimeter.Container)
	for _, name := range []string{"sandbox", "build"} {
		c := p.container(name, map[string]string{"stage": "compile"})
		of[c.ID] = c
		p.run(t, c.ID, untilTold)
	}
	m := a.meter
	m.begin(time.Now())
	lives := make(map[string]*live)
	for _, l := range m.lives {
		c, ours := of[l.id]
		if !ours {
			m.release(l)
			continue
		}
		lives[c.Name] = l
		m.know(l.id).container = c
	}
	if len(lives) != 2 {
		t.Fatalf("%d containers are metered, want 2", len(lives))
	}
	round := func() {
		for _, l := range lives {
			l.read = time.Time{}
		}
		m.round(time.Now())
	}
	for range 2 * o.FullEvery { // until it is known what is what
		round()
	}
	reads := make(map[string]int)
	rounds := pauseEvery * o.FullEvery
	for range rounds {
		round()
		for name, l := range lives {
			if !l.read.IsZero() {
				reads[name]++
			}
		}
	}
	if reads["build"] != rounds || reads["sandbox"] != 1 {
		t.Errorf("in %d rounds read: %v, want the sandbox once", rounds, reads)
	}
}

// A round over 300 pods allocates nothing, as one over containers does not.
func TestMeter_round_allocations_pods(t *testing.T) {
	const n = 300
	o := options(newEngine(), newShelf())
	o.Engines = nil
	a, err := New(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { a.watch.Close(); a.host.Close(); a.nets.Close() }()
	of := make(map[string]cimeter.Container)
	for i := range n {
		p := newPodBox(t, i)
		c := p.container("build", map[string]string{"stage": "compile"})
		of[c.ID] = c
		p.run(t, c.ID, untilTold)
	}
	m := a.meter
	m.begin(time.Now())
	for _, l := range m.lives {
		c, ours := of[l.id]
		if !ours {
			m.release(l) // others may be in motion
			continue
		}
		l.born = l.born.Add(-time.Minute) // its limits are sure
		k := m.know(l.id)
		k.container = c
		m.identify(k, time.Now())
	}
	now := time.Now()
	step := func() {
		now = now.Add(o.Interval)
		m.settle(now, now)
		m.round(now)
	}
	for range 120 {
		step()
	}
	for _, c := range of { // others' pods may be there, too
		if m.pods[c.Pod.UID] == nil {
			t.Fatalf("no pod of container %s", c.ID)
		}
	}
	delete(m.due, "test/build") // a checkpoint is not part of the steady state
	got := 0.0
	for range 5 { // containers of others may come meanwhile
		for _, l := range m.lives {
			if _, ours := of[l.id]; !ours {
				m.release(l)
			}
		}
		if got = testing.AllocsPerRun(20, step); got == 0 {
			return
		}
	}
	t.Errorf("%v allocations a round, want 0", got)
}
