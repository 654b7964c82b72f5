package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// pause stops the agent for as long as f takes.
func (a *agent) pause(f func()) {
	a.t.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		a.t.Fatal(err)
	}
	defer func() {
		if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			a.t.Fatal(err)
		}
	}()
	f()
}

// crowd starts n containers of one build that sleep until they are ended.
func (s *bareBuild) crowd(t *testing.T, n int) (end func()) {
	t.Helper()
	var all []*box
	for i := range n {
		c, err := s.begin(fmt.Sprintf("step-%03d", i), "sleep=3600")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return func() {
		t.Helper()
		for _, c := range all {
			if err := c.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := c.end(); err != nil {
				t.Fatal(err)
			}
		}
		s.remove()
	}
}

// check compares the record of a build with what its cgroups used.
func (s *bareBuild) check(t *testing.T, a *agent, stages int) cimeter.Record {
	t.Helper()
	r := a.await(s.Key())
	if len(r.Stages) != stages {
		t.Errorf("%s: %d stages, want %d", r.Key, len(r.Stages), stages)
	}
	checkCPU(t, r.Key, r.Usage.CPUSeconds.Total, s.spent)
	checkSum(t, &r)
	return r
}

// busy is what the agent has to wait for a processor, on average, where others want all
// of them: 0.3 ms with 10 processes for each, 0.4 ms with 40.
const busy = 250 * time.Microsecond

// held is how long the agent had to wait for a processor each time that it wanted one,
// on average so far, as the kernel counts it (Documentation/scheduler/sched-stats.rst):
// what tells a busy machine from one that keeps up with what a test does.
func (a *agent) held() time.Duration {
	a.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", a.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	var waited, times int64
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that ended
		}
		var ran, wait, n int64 // nanoseconds, nanoseconds, how often
		if _, err := fmt.Sscan(string(b), &ran, &wait, &n); err == nil {
			waited, times = waited+wait, times+n
		}
	}
	return time.Duration(waited / max(times, 1))
}

// TestAgentStorm runs 1,000 containers of some 30 ms: each is seen, or counted
// as missed and marked in its build.
func TestAgentStorm(t *testing.T) {
	const workers, builds, steps = 4, 10, 100
	b := newBare(t)
	a := startAgent(t, b, bareConfig())
	a.watchCounters()
	all := make(chan *bareBuild, builds)
	var wg sync.WaitGroup
	var list []*bareBuild
	for n := range builds {
		s := b.build(1 + n)
		list = append(list, s)
		all <- s
	}
	close(all)
	begun := time.Now()
	for range workers {
		wg.Go(func() {
			for s := range all {
				for i := range steps {
					if err := s.step(fmt.Sprintf("step-%03d", i), "sleep=0.025"); err != nil {
						t.Error(err)
						return
					}
				}
				s.remove()
			}
		})
	}
	wg.Wait()
	took, held := time.Since(begun), a.held()
	var seen, unmarked int
	var got, want float64
	for _, s := range list {
		r := a.await(s.Key())
		seen += len(r.Stages)
		got += r.Usage.CPUSeconds.Total.Value
		want += s.spent.Seconds()
		if len(r.Stages) < steps && !hasGap(&r, cimeter.GapMissedSegment) {
			unmarked++
			t.Errorf("%s: %d of %d containers and no gap: %+v", r.Key, len(r.Stages), steps, r.Gaps)
		}
		if r.Complete && r.Usage.CPUSeconds.Total.Value < 0.99*s.spent.Seconds()-0.01 {
			unmarked++
			t.Errorf("%s: %v s of %v and no gap", r.Key, r.Usage.CPUSeconds.Total.Value, s.spent)
		}
	}
	t.Logf("%d containers in %v: %d seen, %.3f s of %.3f s of CPU (%.2f %%), unmarked %d; the agent waited %v for a processor", builds*steps, took, seen, got, want, 100*got/want, unmarked, held)
	least := builds * steps * 999 / 1000
	if held > busy {
		least = builds * steps * 98 / 100 // some are gone before it can look: they are marked
	}
	if seen < least {
		t.Errorf("%d containers seen of %d, want %d", seen, builds*steps, least)
	}
	if got > want*1.01+0.01 {
		t.Errorf("%v s of CPU, more than the %v s that were used", got, want)
	}
}

// TestAgentEventsOverflow has the kernel drop births and removals, for the
// agent does not take them: all is found by a scan, and the loss is counted.
func TestAgentEventsOverflow(t *testing.T) {
	const file = "/proc/sys/fs/inotify/max_queued_events"
	b := newBare(t)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, b, bareConfig())
	// An instance has the bound that holds when it is made. Others have the
	// usual one again as soon as the agent has its own.
	if err := os.WriteFile(file, []byte("16"), 0); err != nil {
		unable(t, "%v", err)
	}
	restore := sync.OnceFunc(func() {
		if err := os.WriteFile(file, before, 0); err != nil {
			t.Error(err)
		}
	})
	defer restore()
	a.start()
	restore()
	a.watchCounters()
	s := b.build(1)
	var end func()
	a.pause(func() { end = s.crowd(t, 100) })
	a.eventually("all containers are found", func() error {
		if n := a.metric("cimeter_agent_containers"); n < 100 {
			return fmt.Errorf("%v containers", n)
		}
		return nil
	})
	if n := a.metric("cimeter_agent_watch_overflows_total"); n < 1 {
		t.Errorf("%v overflows counted, want one at least", n)
	}
	end()
	s.check(t, a, 100)
}

// TestAgentWatchLimit gives the agent fewer watches than there are folders, by
// the limit of a user namespace of its own: containers are found by walking.
func TestAgentWatchLimit(t *testing.T) {
	require(t, "unshare")
	b := newBare(t)
	a := newAgent(t, b, bareConfig())
	a.wrapper = []string{"unshare", "--user", "--map-root-user", "sh", "-c", `echo 8 >/proc/sys/user/max_inotify_watches && exec "$@"`, "agent"}
	for n := range 20 { // more parents than watches
		if err := testdocker.MakeCgroup(fmt.Sprintf("%s/parent-%d", b.parent, n)); err != nil {
			t.Fatal(err)
		}
	}
	a.start()
	a.watchCounters()
	b.parent += "/parent-19"
	s := b.build(1)
	end := s.crowd(t, 20)
	a.eventually("all containers are found", func() error {
		if n := a.metric("cimeter_builds_running", `project="acme/bare"`); n < 1 {
			return fmt.Errorf("%v builds", n)
		}
		r, err := a.get("/metrics")
		if err != nil || !strings.Contains(string(r), `stage="step-019"`) {
			return fmt.Errorf("the last container is not there (%v)", err)
		}
		return nil
	})
	end()
	s.check(t, a, 20)
}

// TestAgentFewDescriptors gives the agent 64 descriptors and 60 containers: it
// opens files for each reading instead, counts that, and loses nothing.
func TestAgentFewDescriptors(t *testing.T) {
	require(t, "prlimit")
	b := newBare(t)
	a := newAgent(t, b, bareConfig())
	a.wrapper = []string{"prlimit", "--nofile=64"}
	a.start()
	s := b.build(1)
	end := s.crowd(t, 60)
	a.eventually("all containers are read", func() error {
		if n := a.metric("cimeter_agent_containers"); n < 60 {
			return fmt.Errorf("%v containers", n)
		}
		if n := a.metric("cimeter_agent_reads_total", `result="degraded"`); n < 1 {
			return fmt.Errorf("%v reads by opening the file", n)
		}
		return nil
	})
	end()
	r := a.await(s.Key())
	if len(r.Stages) != 60 {
		t.Errorf("%d stages, want 60", len(r.Stages))
	}
	got := time.Duration(r.Usage.CPUSeconds.Total.Value * float64(time.Second))
	if got > s.spent+max(s.spent/100, 10*time.Millisecond) || r.Complete && got < s.spent*99/100-10*time.Millisecond {
		t.Errorf("CPU %v of %v, complete=%v", got, s.spent, r.Complete)
	}
}

// memoryMax and the like are the two names of one thing, v1 and v2.
var (
	memoryMax  = []string{"memory.max", "memory.limit_in_bytes"}
	memoryPeak = []string{"memory.peak", "memory.max_usage_in_bytes"}
)

// confine makes a cgroup for the agent alone.
func (b *bare) confine(t *testing.T) string {
	t.Helper()
	path := fmt.Sprintf("/cimeter-confined-%d-%d", os.Getpid(), bares.Add(1))
	if err := testdocker.MakeCgroup(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := testdocker.RemoveCgroup(path); err != nil {
			t.Error(err)
		}
	})
	return path
}

// join is a command that runs the agent in a cgroup.
func join(t *testing.T, path string) []string {
	t.Helper()
	files, err := testdocker.CgroupProcs(path)
	if err != nil {
		t.Fatal(err)
	}
	script := ""
	for _, f := range files {
		script += "echo 0 >" + f + " && "
	}
	return []string{"sh", "-c", script + `exec "$@"`, "agent"}
}

// TestAgentLittleMemory runs the agent beside 300 containers within 32 MiB of
// its own: it stays below and is not killed.
func TestAgentLittleMemory(t *testing.T) {
	const limit, containers = 32 << 20, 300
	b := newBare(t)
	path := b.confine(t)
	if err := testdocker.SetCgroup(path, strconv.Itoa(limit), memoryMax...); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, b, bareConfig())
	a.wrapper = join(t, path)
	a.start()
	a.watchCounters()
	var ends []func()
	var list []*bareBuild
	for n := range 3 {
		s := b.build(1 + n)
		list = append(list, s)
		ends = append(ends, s.crowd(t, containers/3))
	}
	rounds := a.metric("cimeter_agent_rounds_total")
	a.eventually("some rounds are over", func() error {
		if n := a.metric("cimeter_agent_rounds_total") - rounds; n < 10 || a.metric("cimeter_agent_containers") < containers {
			return fmt.Errorf("%v rounds", n)
		}
		return nil
	})
	resident := a.metric("cimeter_agent_resident_memory_bytes")
	for _, end := range ends {
		end()
	}
	for _, s := range list {
		r := a.await(s.Key())
		if len(r.Stages) != containers/3 {
			t.Errorf("%s: %d stages, want %d", r.Key, len(r.Stages), containers/3)
		}
		if got := time.Duration(r.Usage.CPUSeconds.Total.Value * float64(time.Second)); got > s.spent*101/100+10*time.Millisecond || r.Complete && got < s.spent*99/100-10*time.Millisecond {
			t.Errorf("%s: CPU %v of %v, complete=%v", r.Key, got, s.spent, r.Complete)
		}
	}
	peak, err := testdocker.CgroupNumber(path, memoryPeak...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d containers: resident %.1f MiB, the most that its cgroup had %.1f MiB of 32", containers, resident/(1<<20), float64(peak)/(1<<20))
	if peak > limit {
		t.Errorf("the agent's cgroup had %d bytes, want %d at most", peak, limit)
	}
}

// TestAgentStarved gives the agent a hundredth of a CPU while builds run: what
// it cannot see in time is marked, and no total is wrong.
func TestAgentStarved(t *testing.T) {
	b := newBare(t)
	path := b.confine(t)
	a := startAgent(t, b, bareConfig("  full_every: 10"))
	for _, c := range []struct {
		value string
		files []string
	}{{"1000 100000", []string{"cpu.max"}}, {"1000", []string{"cpu.cfs_quota_us"}}} {
		if err := testdocker.SetCgroup(path, c.value, c.files...); err == nil {
			break
		} else if c.files[0] != "cpu.max" {
			t.Fatal(err)
		}
	}
	files, err := testdocker.CgroupProcs(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(f, []byte(itoa(a.cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	c := b.churn(3, 1000, steady(rand.New(rand.NewPCG(seed(t), 6))))
	<-time.After(6 * time.Second) // the starvation is the fault
	account := c.end(t)
	if err := testdocker.SetCgroup(path, "-1", "cpu.cfs_quota_us"); err != nil {
		if err := testdocker.SetCgroup(path, "max 100000", "cpu.max"); err != nil {
			t.Fatal(err)
		}
	}
	account.settle(t, a)
}

// TestAgentStopped stops the agent for 12 seconds, as a machine that is
// suspended does: the build has a gap, and no rate is taken over it.
func TestAgentStopped(t *testing.T) {
	b := newPatientBare(t)
	a := startAgent(t, b, bareConfig())
	a.watchCounters()
	s := b.build(1)
	var steps []string
	for range 80 {
		steps = append(steps, "cpu=0.03", "sleep=0.15")
	}
	c, err := s.begin("step", steps...)
	if err != nil {
		t.Fatal(err)
	}
	a.eventually("the build is metered", func() error {
		if n := a.metric("cimeter_stage_cpu_seconds_total", `stage="step"`); n < 0.06 {
			return fmt.Errorf("%v s of CPU", n)
		}
		return nil
	})
	a.pause(func() { <-time.After(12 * time.Second) }) // the pause is the fault
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	s.remove()
	r := s.check(t, a, 1)
	checkMarked(t, &r, cimeter.GapLongInterval)
	// One thread of burn uses one CPU at most; a round lasts 200 ms and more.
	if u := r.Usage.CPUCores; u == nil || u.Max > 1.2 {
		t.Errorf("CPU cores %+v, want a maximum that a single process can reach", u)
	}
}

// TestAgentMissedEnd removes a container while the agent looks away and starts
// another: what that one uses is not booked on the first.
func TestAgentMissedEnd(t *testing.T) {
	b := newPatientBare(t)
	a := startAgent(t, b, bareConfig())
	first, second := b.build(1), b.build(2)
	proceed := filepath.Join(t.TempDir(), "proceed")
	c, err := first.begin("step", "cpu=0.02", "await="+proceed)
	if err != nil {
		t.Fatal(err)
	}
	a.eventually("the first build is metered", func() error {
		if n := a.metric("cimeter_builds_running", `project="acme/bare"`); n < 1 {
			return fmt.Errorf("%v builds run", n)
		}
		return nil
	})
	var other *box
	var errs error
	a.pause(func() {
		if errs = os.WriteFile(proceed, nil, 0o600); errs != nil {
			return
		}
		if errs = c.end(); errs == nil {
			other, errs = second.begin("step", "cpu=0.3", "sleep=1")
		}
		<-time.After(500 * time.Millisecond) // the other one burns
	})
	if errs != nil {
		t.Fatal(errs)
	}
	first.remove()
	if err := other.end(); err != nil {
		t.Fatal(err)
	}
	second.remove()
	second.check(t, a, 1)
	r := a.await(first.Key())
	checkMarked(t, &r, cimeter.GapMissedEnd)
	if got := time.Duration(r.Usage.CPUSeconds.Total.Value * float64(time.Second)); got > first.spent+10*time.Millisecond {
		t.Errorf("%s: CPU %v, more than the %v that it used", r.Key, got, first.spent)
	}
}

// TestAgentEventsLost has the engine say nothing of a container: it is found by
// its cgroup, and asked about.
func TestAgentEventsLost(t *testing.T) {
	b := newPatientBare(t)
	a := startAgent(t, b, bareConfig())
	s := b.build(1)
	b.silent = true
	proceed := filepath.Join(t.TempDir(), "proceed")
	c, err := s.begin("step", "cpu=0.1", "await="+proceed)
	if err != nil {
		t.Fatal(err)
	}
	a.eventually("the build is known", func() error {
		if n := a.metric("cimeter_builds_running", `project="acme/bare"`); n < 1 {
			return fmt.Errorf("%v builds run", n)
		}
		return nil
	})
	if err := os.WriteFile(proceed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	s.remove()
	r := s.check(t, a, 1)
	checkComplete(t, &r)
}

// TestAgentNested has a container that makes cgroups of its own, as Docker in
// Docker does: what runs there is the container's.
func TestAgentNested(t *testing.T) {
	b := newPatientBare(t)
	a := startAgent(t, b, bareConfig())
	s := b.build(1)
	proceed := filepath.Join(t.TempDir(), "proceed")
	c, err := s.begin("step", "cpu=0.02", "await="+proceed)
	if err != nil {
		t.Fatal(err)
	}
	inner := fmt.Sprintf("%s/docker/%064x", c.cgroup, 1)
	for _, path := range []string{filepath.Dir(inner), inner} {
		if err := testdocker.MakeCgroup(path); err != nil {
			t.Fatal(err)
		}
	}
	files, err := testdocker.CgroupProcs(inner)
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, f := range files {
		args = append(args, "join="+f)
	}
	if out, err := exec.Command(b.burn, append(args, "cpu=0.3", "mem=33554432")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, path := range []string{inner, filepath.Dir(inner)} {
		if err := testdocker.DropCgroup(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(proceed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	s.remove()
	r := s.check(t, a, 1)
	checkComplete(t, &r)
	if m := r.Usage.MemoryBytes; m == nil || m.Peak.Value < 32<<20 {
		t.Errorf("memory %+v, want a peak of 32 MiB at least", m)
	}
}
