package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// inner is a cgroup within or beside the containers of a bare machine, as an engine
// in a container or a build service makes it.
type inner struct {
	path   string
	cpu    time.Duration // the kernel's own account of it
	peak   uint64        // likewise
	code   int
	memory string        // limit
	slow   time.Duration // by how much its runtime takes longer to remove it
}

// run makes the cgroup, runs burn in it, notes what the kernel counted, and takes
// it away.
func (i *inner) run(b *bare, steps ...string) error {
	for _, path := range []string{filepath.Dir(i.path), i.path} {
		if err := testdocker.MakeCgroup(path); err != nil {
			return err
		}
	}
	if i.memory != "" {
		if err := testdocker.SetCgroup(i.path, i.memory, "memory.limit_in_bytes", "memory.max"); err != nil {
			return err
		}
		_ = testdocker.SetCgroup(i.path, "0", "memory.swap.max") // v1, or no swap: nothing to forbid
	}
	files, err := testdocker.CgroupProcs(i.path)
	if err != nil {
		return err
	}
	var args []string
	for _, f := range files {
		args = append(args, "join="+f)
	}
	cmd := exec.Command(b.burn, append(args, steps...)...)
	cmd.Env = []string{"GOMAXPROCS=1"}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() == 125) {
		return fmt.Errorf("%s: %w: %s", i.path, err, out)
	}
	i.code = cmd.ProcessState.ExitCode()
	<-time.After(runtimeDelay + i.slow)
	if i.cpu, err = testdocker.CgroupCPU(i.path); err != nil {
		return err
	}
	if i.peak, err = testdocker.CgroupNumber(i.path, "memory.max_usage_in_bytes", "memory.peak"); err != nil {
		return err
	}
	return testdocker.DropCgroup(i.path)
}

// engineInside has a container do what an engine in it does on cgroup v2: its own
// processes go to a cgroup below, so that its own may have others.
func engineInside(t *testing.T, c *box) {
	t.Helper()
	v2, err := testdocker.V2()
	if err != nil {
		t.Fatal(err)
	}
	if v2 {
		moveInside(t, c, "/init")
	}
}

// awaitInside waits until a container's process is in all of its cgroups.
func awaitInside(c *box) error {
	files, err := testdocker.CgroupProcs(c.cgroup)
	if err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		left := slices.DeleteFunc(slices.Clone(files), func(f string) bool {
			b, err := os.ReadFile(f)
			return err == nil && slices.Contains(strings.Fields(string(b)), strconv.Itoa(c.cmd.Process.Pid))
		})
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d is not in %s", c.cmd.Process.Pid, left)
		}
	}
}

// moveInside moves a container's process to a cgroup below its own.
func moveInside(t *testing.T, c *box, dir string) {
	t.Helper()
	// Once it has others below it no process may come to it any more (v2).
	if err := awaitInside(c); err != nil {
		t.Fatal(err)
	}
	if err := testdocker.MakeCgroup(c.cgroup + dir); err != nil {
		t.Fatal(err)
	}
	files, err := testdocker.CgroupProcs(c.cgroup + dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(f, []byte(strconv.Itoa(c.cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	c.inside = append(c.inside, c.cgroup+dir)
}

// partOf is the part of that id in a record.
func partOf(t *testing.T, r *cimeter.Record, id string) cimeter.Part {
	t.Helper()
	i := slices.IndexFunc(r.Parts, func(p cimeter.Part) bool { return p.ID == id })
	if i < 0 {
		t.Errorf("%s: no part %s in %+v", r.Key, id, r.Parts)
		return cimeter.Part{}
	}
	return r.Parts[i]
}

// checkPart compares a part's figures with the kernel's.
func checkPart(t *testing.T, p cimeter.Part, i *inner) {
	t.Helper()
	// The end of a process is still being charged for a moment after it is told.
	if want := i.cpu.Seconds(); math.Abs(p.CPUSeconds.Value-want) > 0.02*want+0.002 || !p.CPUSeconds.Known {
		t.Errorf("part %s: CPU %v s, want %v", p.ID, p.CPUSeconds, want)
	}
	if p.MemoryPeakBytes != cimeter.Some(i.peak) {
		t.Errorf("part %s: peak %v, want %d", p.ID, p.MemoryPeakBytes, i.peak)
	}
}

const stepID = "rk2m1n5zq8v0w3x7y9b4c6d1f"

// TestAgentParts has a container of a build run containers and build steps of its
// own, as Docker in Docker does: all of their use is the build's, once, and each
// is shown apart. One of them has the id of another build's container.
func TestAgentParts(t *testing.T) {
	b := newPatientBare(t)
	a := startAgent(t, b, bareConfig())
	goFirst, goOther := filepath.Join(t.TempDir(), "go"), filepath.Join(t.TempDir(), "go")
	other := b.build(2)
	victim, err := other.begin("step", "cpu=0.02", "await="+goOther)
	if err != nil {
		t.Fatal(err)
	}
	s := b.build(1)
	c, err := s.begin("dind", "cpu=0.02", "await="+goFirst)
	if err != nil {
		t.Fatal(err)
	}
	engineInside(t, c)
	c.inside = append(c.inside, c.cgroup+"/docker/buildkit", c.cgroup+"/docker")
	big := &inner{path: fmt.Sprintf("%s/docker/%064x", c.cgroup, 1), slow: lateRemoval}
	same := &inner{path: fmt.Sprintf("%s/docker/%s", c.cgroup, victim.ID), slow: lateRemoval}
	step := &inner{path: c.cgroup + "/docker/buildkit/" + stepID, slow: lateRemoval}
	killed := &inner{path: fmt.Sprintf("%s/docker/docker-%064x.scope", c.cgroup, 2), memory: "33554432", slow: lateRemoval}
	if err := big.run(b, "cpu=0.3", "mem=50331648"); err != nil {
		t.Fatal(err)
	}
	if err := same.run(b, "cpu=0.1", "sleep=0.3"); err != nil {
		t.Fatal(err)
	}
	if err := step.run(b, "cpu=0.1"); err != nil {
		t.Fatal(err)
	}
	if err := killed.run(b, "cpu=0.05", "oom"); err != nil {
		t.Fatal(err)
	}
	if killed.code == 0 {
		t.Fatal("nothing was killed")
	}
	// Many that live for a moment: more than a record names.
	many := 40
	if slow {
		many = 4
	}
	var short []*inner
	for i := range many {
		short = append(short, &inner{path: fmt.Sprintf("%s/docker/%064x", c.cgroup, 100+i)})
		if err := short[i].run(b, "cpu=0.01"); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{goFirst, goOther} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []*box{c, victim} {
		if err := x.end(); err != nil {
			t.Fatal(err)
		}
		x.build.remove()
	}
	r := s.check(t, a, 1)
	checkComplete(t, &r)
	for _, w := range []struct {
		id   string
		kind cimeter.PartKind
		*inner
	}{
		{fmt.Sprintf("%064x", 1), cimeter.PartContainer, big}, {victim.ID, cimeter.PartContainer, same},
		{stepID, cimeter.PartBuildStep, step}, {fmt.Sprintf("%064x", 2), cimeter.PartContainer, killed},
	} {
		p := partOf(t, &r, w.id)
		checkPart(t, p, w.inner)
		if p.Kind != w.kind || p.Within != c.ID || p.Stage != "dind" || !p.Counted || p.Attribution != cimeter.AttributedNested || p.Confidence != cimeter.Certain {
			t.Errorf("part %+v, want %s nested in %s in stage dind", p, w.kind, c.ID)
		}
	}
	if p := partOf(t, &r, fmt.Sprintf("%064x", 2)); p.OOMKills != cimeter.Some(uint64(1)) {
		t.Errorf("part %+v, want one killed", p)
	}
	if k, below := r.Usage.OOMKills, r.Usage.OOMKillsNested; k.Value != 0 || below != cimeter.Some(uint64(1)) {
		t.Errorf("%v killed and %v below, want none and one", k, below)
	}
	if !slices.ContainsFunc(r.Verdicts, func(v cimeter.Verdict) bool { return v.Kind == "oom" && v.Stage == "dind" }) {
		t.Errorf("verdicts %+v, want oom", r.Verdicts)
	}
	if m := r.Usage.MemoryBytes; m == nil || m.Peak.Value < big.peak {
		t.Errorf("memory %+v, want a peak of %d at least", m, big.peak)
	}
	// Where the machine is busy, short ones and their last moments are seen in the
	// totals only.
	count, cpu := 0, 0.0
	for _, p := range r.Parts {
		count += max(1, p.Count)
		cpu += p.CPUSeconds.Value
	}
	var truth time.Duration
	for _, i := range append(short, big, same, step, killed) {
		truth += i.cpu
	}
	t.Logf("%d parts of %d containers: %.3f s of %.3f s of CPU", len(r.Parts), count, cpu, truth.Seconds())
	if count > many+4 || count < many+4-many/10 || cpu < 0.5*truth.Seconds() || cpu > 1.01*truth.Seconds() {
		t.Errorf("%d containers with %.3f s, want %d with %.3f s", count, cpu, many+4, truth.Seconds())
	}
	if len(r.Parts) > 34 {
		t.Errorf("%d parts, want a bounded number", len(r.Parts))
	}
	v := other.check(t, a, 1)
	if len(v.Parts) > 0 {
		t.Errorf("the other build has parts: %+v", v.Parts)
	}
	if n := a.metric("cimeter_builds_total", `project="acme/bare"`); n != 2 {
		t.Errorf("%v builds, want 2: nothing nested is one", n)
	}
	if text := a.tool("summary", s.Key()); !strings.Contains(text, "nested") {
		t.Errorf("the summary does not tell of parts:\n%s", text)
	}
}

// besides are the CPU seconds that were counted as beside builds.
func (a *agent) besides(by cimeter.Attribution) float64 {
	return a.metric("cimeter_agent_beside_cpu_seconds_total", fmt.Sprintf("attribution=%q", by))
}

// sibling is a container that no runner made.
func (b *bare) sibling(n int, made testdocker.Box, steps ...string) (*box, error) {
	made.ID = fmt.Sprintf("%016x%048x", os.Getpid(), 0xabc000+n)
	made.Name = fmt.Sprint("sibling-", n)
	c := &box{build: b.build(900 + n), Box: &made, cgroup: b.parent + "/" + made.ID}
	b.Create(c.Box)
	return c, c.start(steps)
}

// TestAgentBeside has builds with the engine's socket make containers beside their
// own: who can only have been made by one of them is shown with it, at the
// confidence that there is, and is in no total; the rest is counted as nobody's.
func TestAgentBeside(t *testing.T) {
	b := newPatientBare(t)
	a := startAgent(t, b, bareConfig())
	socket := testdocker.Box{Binds: []string{"/var/run/docker.sock"}, Networks: []string{"job-net"}}
	alone, err := b.sibling(0, testdocker.Box{}, "cpu=0.05") // the machine's own
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.end(); err != nil {
		t.Fatal(err)
	}
	goFirst, goOther := filepath.Join(t.TempDir(), "go"), filepath.Join(t.TempDir(), "go")
	s := b.build(1)
	s.box = socket
	c, err := s.begin("tests", "cpu=0.02", "await="+goFirst)
	if err != nil {
		t.Fatal(err)
	}
	a.eventually("the build is known", func() error {
		if n := a.metric("cimeter_builds_running", `project="acme/bare"`); n != 1 {
			return fmt.Errorf("%v builds run", n)
		}
		return nil
	})
	run := func(n int, made testdocker.Box, cpu string) *box {
		t.Helper()
		x, err := b.sibling(n, made, "cpu="+cpu, "sleep=0.3")
		if err != nil {
			t.Fatal(err)
		}
		if err := x.end(); err != nil {
			t.Fatal(err)
		}
		return x
	}
	sole := run(1, testdocker.Box{}, "0.2")
	step := &inner{path: b.parent + "/buildkit/" + stepID, slow: lateRemoval}
	if err := step.run(b, "cpu=0.1"); err != nil {
		t.Fatal(err)
	}
	if err := testdocker.DropCgroup(b.parent + "/buildkit"); err != nil {
		t.Fatal(err)
	}
	// From here on there are two that may have made one.
	s2 := b.build(2)
	s2.box = testdocker.Box{Binds: []string{"/run"}, Volumes: []string{"cache-2"}}
	c2, err := s2.begin("tests", "cpu=0.02", "await="+goOther)
	if err != nil {
		t.Fatal(err)
	}
	a.eventually("both builds are known", func() error {
		if n := a.metric("cimeter_builds_running", `project="acme/bare"`); n != 2 {
			return fmt.Errorf("%v builds run", n)
		}
		return nil
	})
	network := run(2, testdocker.Box{Networks: []string{"job-net"}}, "0.1")
	volume := run(3, testdocker.Box{Volumes: []string{"cache-2"}}, "0.1")
	nobody := run(4, testdocker.Box{}, "0.15")
	forged := run(5, testdocker.Box{Labels: func() map[string]string {
		l := s2.labels() // claims to be a stage of the other build, and is not named as one
		l["io.drone.step.name"], l["io.drone.step.number"] = "forged", "1"
		return l
	}()}, "0.1")
	for _, name := range []string{goFirst, goOther} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []*box{c, c2} {
		if err := x.end(); err != nil {
			t.Fatal(err)
		}
		x.build.remove()
	}
	r, r2 := s.check(t, a, 1), s2.check(t, a, 1)
	t.Logf("parts of the first: %+v", r.Parts)
	t.Logf("parts of the second: %+v", r2.Parts)
	for _, w := range []struct {
		r          *cimeter.Record
		id         string
		cpu        time.Duration
		by         cimeter.Attribution
		confidence cimeter.Confidence
	}{
		{&r, sole.ID, sole.build.spent, cimeter.AttributedSole, cimeter.Possible},
		{&r, stepID, step.cpu, cimeter.AttributedSole, cimeter.Possible},
		{&r, network.ID, network.build.spent, cimeter.AttributedNetwork, cimeter.Strong},
		{&r2, volume.ID, volume.build.spent, cimeter.AttributedVolume, cimeter.Strong},
	} {
		p := partOf(t, w.r, w.id)
		if p.Attribution != w.by || p.Confidence != w.confidence || p.Counted || p.Within != "" {
			t.Errorf("part %+v, want it by %s (%s)", p, w.by, w.confidence)
		}
		if math.Abs(p.CPUSeconds.Value-w.cpu.Seconds()) > 0.02*w.cpu.Seconds()+0.002 {
			t.Errorf("part %s: %v s, want %v", p.ID, p.CPUSeconds, w.cpu.Seconds())
		}
	}
	for _, x := range []*box{nobody, forged, alone} {
		for _, r := range []*cimeter.Record{&r, &r2} {
			if slices.ContainsFunc(r.Parts, func(p cimeter.Part) bool { return p.ID == x.ID }) {
				t.Errorf("%s is on the record of %s", x.Name, r.Key)
			}
		}
	}
	for by, want := range map[cimeter.Attribution]time.Duration{
		cimeter.AttributedSole: sole.build.spent + step.cpu, cimeter.AttributedNetwork: network.build.spent,
		cimeter.AttributedVolume: volume.build.spent, cimeter.Unattributed: nobody.build.spent + forged.build.spent, cimeter.AttributedClient: 0,
	} {
		if got := a.besides(by); math.Abs(got-want.Seconds()) > 0.02*want.Seconds()+0.004 {
			t.Errorf("%v s counted as %s, want %v", got, by, want)
		}
	}
	var out bytes.Buffer
	for _, key := range []string{s.Key(), s2.Key()} {
		out.WriteString(a.tool("summary", key))
	}
	if !strings.Contains(out.String(), "beside") {
		t.Errorf("the summary does not tell of what is beside:\n%s", out.String())
	}
}
