package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// below moves the containers of a bare machine to a cgroup below its parent.
func (b *bare) below(dir string) {
	top := b.parent
	for _, name := range strings.Split(strings.Trim(dir, "/"), "/") {
		b.parent += "/" + name
		if err := testdocker.MakeCgroup(b.parent); err != nil {
			b.t.Fatal(err)
		}
	}
	b.t.Cleanup(func() { b.parent = top })
}

// TestAgentSlices has containers where systemd makes their cgroups, of Docker, of
// containerd, of CRI-O and of podman, root's and a user's.
func TestAgentSlices(t *testing.T) {
	for i, c := range []struct{ dir, name, inside string }{
		{"/system.slice", "docker-%s.scope", ""},
		{"/ci.slice/ci-job.slice", "docker-%s.scope", ""},
		{"/kubepods.slice/kubepods-burstable.slice", "cri-containerd-%s.scope", ""},
		{"/machine.slice", "libpod-%s.scope", "/container"}, // as crun makes them
		// A user's, in a pod.
		{"/user.slice/user-1000.slice/user@1000.service/user.slice/user-libpod_pod_" + strings.Repeat("a0d5", 16) + ".slice", "libpod-%s.scope", "/container"},
		{"/runner.service", "libpod-payload-%s", ""}, // podman run --cgroups=split
	} {
		t.Run(strings.ReplaceAll(strings.Trim(c.dir, "/"), "/", "_"), func(t *testing.T) {
			b := newPatientBare(t)
			b.below(c.dir)
			b.name = c.name
			a := startAgent(t, b, bareConfig())
			proceed := filepath.Join(t.TempDir(), "proceed")
			s := b.build(61 + i)
			x, err := s.begin("step", "await="+proceed, "cpu=0.2", "mem=33554432")
			if err != nil {
				t.Fatal(err)
			}
			if c.inside != "" {
				moveInside(t, x, c.inside)
			}
			if err := os.WriteFile(proceed, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := x.end(); err != nil {
				t.Fatal(err)
			}
			s.remove()
			r := s.check(t, a, 1)
			checkComplete(t, &r)
			if m := r.Usage.MemoryBytes; m == nil || m.Peak.Value < 32<<20 {
				t.Errorf("memory %+v, want a peak of 32 MiB at least", m)
			}
		})
	}
}

// TestAgentMovedBefore starts the agent when a container's processes are in a cgroup
// below its own already: its end is seen all the same.
func TestAgentMovedBefore(t *testing.T) {
	b := newPatientBare(t)
	proceed := filepath.Join(t.TempDir(), "proceed")
	s := b.build(1)
	c, err := s.begin("dind", "cpu=0.05", "await="+proceed, "cpu=0.2")
	if err != nil {
		t.Fatal(err)
	}
	moveInside(t, c, "/init")
	a := startAgent(t, b, bareConfig())
	a.eventually("the build is known", func() error {
		if n := a.metric("cimeter_builds_running", `project="acme/bare"`); n != 1 {
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
	r := a.await(s.Key())
	if len(r.Gaps) != 1 || r.Gaps[0].Reason != cimeter.GapBeforeAgent {
		t.Errorf("gaps %+v, want that before the agent alone", r.Gaps)
	}
	if cpu := r.Usage.CPUSeconds.Total.Value; cpu < 0.2 || cpu > s.spent.Seconds() {
		t.Errorf("CPU %v s, want 0.2 at least, and %v at most", cpu, s.spent.Seconds())
	}
}

// TestAgentOOMGroup has the kernel kill all processes of a container at once, where
// it has that: each is counted.
func TestAgentOOMGroup(t *testing.T) {
	b := newPatientBare(t)
	a := startAgent(t, b, bareConfig())
	proceed := filepath.Join(t.TempDir(), "proceed")
	s := b.build(1)
	c, err := s.begin("step", "await="+proceed, "oom")
	if err != nil {
		t.Fatal(err)
	}
	files, err := testdocker.CgroupProcs(c.cgroup)
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, f := range files {
		args = append(args, "join="+f)
	}
	ready := filepath.Join(t.TempDir(), "ready")
	second := exec.Command(b.burn, append(args, "mark="+ready, "sleep=600")...)
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	defer second.Process.Kill()
	a.eventually("the second process is in the container", func() error { _, err := os.Stat(ready); return err })
	if err := testdocker.SetCgroup(c.cgroup, "25165824", memoryMax...); err != nil {
		t.Fatal(err)
	}
	_ = testdocker.SetCgroup(c.cgroup, "0", "memory.swap.max") // v1, or no swap
	least := uint64(1)
	if err := testdocker.SetCgroup(c.cgroup, "1", "memory.oom.group"); err == nil {
		least = 2
	}
	if err := os.WriteFile(proceed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a.eventually("the first is killed", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if err == nil && !strings.Contains(string(stat), ") Z ") {
			err = fmt.Errorf("it runs: %s", stat)
		}
		return err
	})
	if least == 1 { // v1: the kernel leaves it alone
		if err := second.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	_ = second.Wait() // killed
	// Linux counts the one that it has chosen again with its group, and each time that
	// it chooses while they die: the number is its own.
	killed := killedIn(t, files)
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	s.remove()
	r := a.await(s.Key())
	if n := r.Usage.OOMKills.Value; n < least || n != killed || r.Usage.OOMKillsNested.Value != 0 {
		t.Errorf("%v killed and %v below, want %d, at least %d, and none", r.Usage.OOMKills, r.Usage.OOMKillsNested, killed, least)
	}
	if !slices.ContainsFunc(r.Verdicts, func(v cimeter.Verdict) bool { return v.Kind == "oom" }) {
		t.Errorf("verdicts %+v, want oom", r.Verdicts)
	}
}

// killedIn returns how many processes of a cgroup the kernel says it has killed, by
// the folders of its cgroup.procs files.
func killedIn(t *testing.T, files []string) (n uint64) {
	t.Helper()
	for _, f := range files {
		for _, name := range []string{"memory.events", "memory.oom_control"} {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(f), name))
			if err != nil {
				continue // another hierarchy's
			}
			for line := range strings.Lines(string(b)) {
				if _, err := fmt.Sscanf(line, "oom_kill %d", &n); err == nil {
					return n
				}
			}
		}
	}
	t.Fatalf("no count of killed processes beside %q", files)
	return 0
}

// TestAgentRunInside runs cimeter run in a cgroup that a container was given to
// divide: it meters its command, and the agent the container, what is in it once.
func TestAgentRunInside(t *testing.T) {
	b := newPatientBare(t)
	a := startAgent(t, b, bareConfig())
	proceed := filepath.Join(t.TempDir(), "proceed")
	s := b.build(1)
	c, err := s.begin("step", "cpu=0.02", "await="+proceed)
	if err != nil {
		t.Fatal(err)
	}
	engineInside(t, c)
	work := c.cgroup + "/work"
	if err := testdocker.MakeCgroup(work); err != nil {
		t.Fatal(err)
	}
	c.inside = append(c.inside, work)
	files, err := testdocker.CgroupProcs(work)
	if err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(t.TempDir(), "record.json")
	script := `for f in "$@"; do echo $$ >"$f"; done; exec "$CIMETER" run --json "$RECORD" -- "$BURN" cpu=0.3 mem=33554432 sleep=0.2`
	cmd := exec.Command("sh", append([]string{"-c", script, "run"}, files...)...)
	cmd.Env = append(os.Environ(), "CIMETER="+agentProgram(t), "BURN="+b.burn, "RECORD="+record)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cimeter run: %v: %s", err, out)
	}
	<-time.After(lateRemoval)
	if err := os.WriteFile(proceed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	s.remove()
	r := s.check(t, a, 1)
	checkComplete(t, &r)
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var own cimeter.Record
	if err := json.Unmarshal(text, &own); err != nil {
		t.Fatal(err)
	}
	if cpu := own.Usage.CPUSeconds.Total.Value; cpu < 0.3 || cpu > s.spent.Seconds() {
		t.Errorf("cimeter run counted %v s, want 0.3 at least, and less than the %v of all", cpu, s.spent)
	}
	if m := own.Usage.MemoryBytes; m == nil || m.Peak.Value < 32<<20 {
		t.Errorf("cimeter run saw memory %+v, want a peak of 32 MiB at least", m)
	}
}
