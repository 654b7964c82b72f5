package e2e_test

import (
	"errors"
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

// podman is a machine whose containers are podman's.
type podman struct{ *machine }

// Command implements place: the agent is told of podman, and of no Docker Engine.
func (p podman) Command(name string, args ...string) *exec.Cmd {
	args = slices.Clone(args)
	if i := slices.Index(args, "--docker"); i >= 0 {
		args[i] = "--podman"
	}
	return p.machine.Command(name, args...)
}

func newPodman(t *testing.T) podman {
	t.Helper()
	if testing.Short() {
		t.Skip("podman is not for -short")
	}
	burn := burnProgram(t)
	d := testdocker.StartPodman(t, testdocker.Options{Files: map[string]string{
		"/usr/bin/burn": burn, "/usr/bin/git": burn, "/usr/bin/gitlab-runner-helper": burn,
		"/usr/bin/gitlab-runner-build": "testdata/gitlab-runner-build", "/entrypoint": "testdata/entrypoint",
	}})
	m := &machine{Daemon: d, truths: t.TempDir(), disk: filepath.Join(d.Folder(), "disk")}
	if err := os.Mkdir(m.disk, 0o777); err != nil {
		t.Fatal(err)
	}
	// Podman's bridge is there only while a container is on it.
	l, err := d.Listen("tcp4", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, _ := strings.Cut(l.Addr().String(), ":")
	m.sink = d.Gateway() + ":" + port
	go serveSink(l)
	exit, err := m.Run(t.Context(), testdocker.Spec{Name: "warm", CgroupParent: d.CgroupParent(), Cmd: []string{"sh", "-c", "cat /usr/bin/* /entrypoint /bin/busybox >/dev/null"}})
	if err != nil || exit.Code != 0 {
		t.Fatalf("warming up: exit %d: %s: %v", exit.Code, exit.Output, err)
	}
	return podman{m}
}

// TestPodman runs builds on podman, by its service alone: a job of GitLab Runner,
// and a step in a pod.
func TestPodman(t *testing.T) {
	p := newPodman(t)
	m := p.machine
	t.Run("GitLab", func(t *testing.T) {
		a := startAgent(t, p, agentConfig(nil))
		a.watchCounters()
		j := &gitlabJob{
			ID: 4600, Project: "group/podman", Name: "unit", Random: "97c49c249c7ce907", Cgroup: m.CgroupParent() + "/job",
			Stages: []gitlabStage{
				{Name: "prepare_script", Steps: []string{"cpu=0.01"}},
				{Name: "get_sources", Steps: []string{"cpu=0.1", "receive=3000000:" + m.sink}},
				{Name: "step_script", Steps: []string{"cpu=0.4", "mem=50331648", "send=1000000:" + m.sink, "sleep=0.2"}},
				{Name: "archive_cache", Steps: []string{"cpu=0.1"}},
			},
		}
		if err := j.playNew(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		r := a.await(j.Key())
		checkOrder(t, &r, j.names()...)
		checkComplete(t, &r)
		checkSum(t, &r)
		if r.CI != "gitlab" || r.Project != j.Project || r.Name != j.Name || r.Result != "success" {
			t.Errorf("identity %+v, result %s, want that of job %d", r.Build, r.Result, j.ID)
		}
		var sum time.Duration
		for _, s := range j.Stages {
			got, truth := stageOf(&r, s.Name, 1), m.truth(t, j.truthName(s.Name))
			if got == nil {
				t.Errorf("no stage %s in %q", s.Name, stageNames(&r))
				continue
			}
			cpu := time.Duration(got.Usage.CPUSeconds.Total.Value * float64(time.Second))
			// What burn and its shell use after burn has looked is not in the truth.
			if floor := time.Duration(truth.CPU); cpu < floor {
				t.Errorf("%s: CPU %v, less than the %v that burn saw", s.Name, cpu, floor)
			}
			sum += cpu
			if n := got.Usage.NetworkBytes; n == nil || int64(n.Transmit) < truth.NetworkTransmit || int64(n.Receive) < truth.NetworkReceive {
				t.Errorf("%s: network %+v, want %d and %d bytes at least", s.Name, n, truth.NetworkReceive, truth.NetworkTransmit)
			}
		}
		kept, err := testdocker.CgroupCPU(j.Cgroup)
		if err != nil {
			t.Fatal(err)
		}
		// Podman has its monitors beside the containers: they are no build's.
		monitors, err := testdocker.CgroupCPU(j.Cgroup + "/conmon")
		if err != nil {
			t.Fatal(err)
		}
		kept -= monitors
		t.Logf("CPU %.3f s on the record, %v in the parent cgroup", r.Usage.CPUSeconds.Total.Value, kept)
		if got := r.Usage.CPUSeconds.Total.Value; got > kept.Seconds()*1.001 || got < 0.98*kept.Seconds()-0.02 {
			t.Errorf("CPU %v s, the parent cgroup kept %v", got, kept)
		}
		if s := stageOf(&r, "step_script", 1); s != nil && (s.Usage.MemoryBytes == nil || s.Usage.MemoryBytes.Peak.Value < 48<<20) {
			t.Errorf("step_script: memory %+v, want a peak of 48 MiB at least", s.Usage.MemoryBytes)
		}
	})
	t.Run("Pod", func(t *testing.T) {
		a := startAgent(t, p, agentConfig(nil))
		s := &droneStage{Number: 46, Slug: "acme/pod", Random: "pt4306jSfhaW8L19g"}
		pod, name := "pod-46", "drone-"+s.Random+"001"
		before := booked(t, m.CgroupParent())
		labels := s.labels()
		labels["io.drone.step.name"], labels["io.drone.step.number"] = "unit", "1"
		if out, err := m.Podman("pod", "create", "--name", pod, "--infra-image", "docker.io/library/"+testdocker.Image, "--infra-command", "sleep 1000",
			"--cgroup-parent", m.CgroupParent()).CombinedOutput(); err != nil {
			t.Fatalf("podman pod create: %v: %s", err, out)
		}
		args := []string{"run", "--detach", "--pod", pod, "--name", name}
		for k, v := range labels {
			args = append(args, "--label", k+"="+v)
		}
		for _, b := range m.binds() {
			args = append(args, "--volume", b)
		}
		for _, e := range m.env("pod") {
			args = append(args, "--env", e)
		}
		if out, err := m.Podman(append(args, testdocker.Image, "burn", "cpu=0.3", "send=1000000:"+m.sink, "sleep=0.3")...).CombinedOutput(); err != nil {
			t.Fatalf("podman run in a pod: %v: %s", err, out)
		}
		if exit, err := m.Wait(t.Context(), name); err != nil || exit.Code != 0 {
			t.Fatalf("exit %d: %v", exit.Code, err)
		}
		truth := m.truth(t, "pod")
		if out, err := m.Podman("pod", "rm", "--force", "--time", "0", pod).CombinedOutput(); err != nil {
			t.Logf("podman pod rm: %v: %s", err, out) // it cannot remove its own cgroups where there are many hierarchies
		}
		r := a.await(s.Key())
		kept := booked(t, m.CgroupParent()) - before // with the pod's own container
		if cpu := r.Usage.CPUSeconds.Total.Value; cpu < time.Duration(truth.CPU).Seconds() || cpu > 1.001*kept.Seconds() {
			t.Errorf("CPU %v s, want %v that burn saw, and at most %v of the parent cgroup", cpu, time.Duration(truth.CPU), kept)
		}
		if len(r.Stages) != 1 || r.Stages[0].Name != "unit" || r.Stages[0].ExitCode != cimeter.Some(0) {
			t.Errorf("stages %q, want unit", stageNames(&r))
		}
		if why := r.Usage.NotMetered["network_bytes"]; r.Usage.NetworkBytes == nil && why == "" {
			t.Error("neither the network of the pod nor why it is not told")
		}
	})
}

// user is a machine whose containers are those of a user's podman.
type user struct{ *testdocker.Rootless }

// Command implements place.
func (u user) Command(name string, args ...string) *exec.Cmd {
	return podman{&machine{Daemon: u.Daemon}}.Command(name, args...)
}

// Cgroups implements place.
func (u user) Cgroups() []string { return nil }

// TestPodmanRootless runs builds on a user's podman. On cgroup v1 it gives its containers
// no cgroup of their own: that is told once, and the builds are on record with nothing
// metered. On v2 they have one, below what the user was given.
func TestPodmanRootless(t *testing.T) {
	if testing.Short() {
		t.Skip("podman is not for -short")
	}
	v2, err := testdocker.V2()
	if err != nil {
		t.Fatal(err)
	}
	u := user{testdocker.StartRootless(t, map[string]string{"/usr/bin/burn": burnProgram(t)})}
	a := startAgent(t, u, agentConfig(nil))
	if v2 {
		podmanDelegated(t, u, a)
		return
	}
	var stages []*droneStage
	play := func(number int, random string, steps ...string) {
		t.Helper()
		s := &droneStage{Number: number, Slug: "acme/user", Random: random}
		labels := s.labels()
		labels["io.drone.step.name"], labels["io.drone.step.number"] = "unit", "1"
		id, err := u.Create(t.Context(), testdocker.Spec{Name: "drone-" + random + "001", Labels: labels, Network: "none", Cmd: append([]string{"burn"}, steps...)})
		if err != nil {
			t.Fatal(err)
		}
		if err := u.Begin(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if number == 51 {
			a.eventually("it is known that there is no cgroup", func() error {
				if !strings.Contains(a.log.String(), "no cgroup of their own") {
					return errors.New("it is not told")
				}
				return nil
			})
		} else if exit, err := u.Wait(t.Context(), id); err != nil || exit.Code != 0 {
			t.Fatalf("exit %d: %v", exit.Code, err)
		}
		if err := u.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		stages = append(stages, s)
	}
	play(51, "Dt4306jSfhaW8L19g", "cpu=0.1", "sleep=1000") // killed when it is known
	play(52, "Et4306jSfhaW8L19g", "cpu=0.01")              // gone before anybody can look
	for _, s := range stages {
		r := a.await(s.Key())
		if r.CI != "drone" || r.Project != s.Slug || r.Complete || len(r.Gaps) != 1 || r.Gaps[0].Reason != cimeter.GapNoCgroup {
			t.Errorf("record %+v, complete %v, gaps %+v: want a build of %s that is not metered for want of a cgroup", r.Build, r.Complete, r.Gaps, s.Slug)
		}
		if c := r.Usage.CPUSeconds; c.Total.Known && c.Total.Value > 0 {
			t.Errorf("%s: CPU %+v, want none", r.Key, c)
		}
		if text := a.tool("summary", s.Key()); !strings.Contains(text, "no cgroup") {
			t.Errorf("the summary does not say why it has nothing:\n%s", text)
		}
	}
	if n := strings.Count(a.log.String(), "no cgroup of their own"); n != 1 {
		t.Errorf("told %d times, want once", n)
	}
	if n := a.metric("cimeter_agent_gaps_total", `reason="no_cgroup"`); n != 2 {
		t.Errorf("%v gaps for want of a cgroup, want 2", n)
	}
}

// podmanDelegated runs builds of a user's podman on cgroup v2: one below a cgroup that
// the user has chosen, one where the runtime puts it, beside podman's own.
func podmanDelegated(t *testing.T, u user, a *agent) {
	all := strings.TrimSuffix(u.CgroupParent(), "/containers")
	for i, parent := range []string{u.CgroupParent(), ""} {
		s := &droneStage{Number: 53 + i, Slug: "acme/user", Random: fmt.Sprintf("%dt4306jSfhaW8L19g", i)}
		labels := s.labels()
		labels["io.drone.step.name"], labels["io.drone.step.number"] = "unit", "1"
		before := booked(t, all) - booked(t, all+"/podman")
		id, err := u.Create(t.Context(), testdocker.Spec{
			Name: "drone-" + s.Random + "001", Labels: labels, Network: "none", CgroupParent: parent, Cmd: []string{"burn", "cpu=0.3", "mem=50331648", "sleep=0.2", "exit=4"},
		})
		if err == nil {
			err = u.Begin(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := u.Wait(t.Context(), id); err != nil || exit.Code != 4 {
			t.Fatalf("exit %d: %v: want 4", exit.Code, err)
		}
		if err := u.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		r := a.await(s.Key())
		kept := (booked(t, all) - booked(t, all+"/podman") - before).Seconds()
		checkComplete(t, &r)
		checkSum(t, &r)
		cpu := r.Usage.CPUSeconds.Total.Value
		t.Logf("parent %q: CPU %.3f s on the record, %.3f s in the user's cgroup", parent, cpu, kept)
		if cpu > 1.001*kept || cpu < 0.98*kept-0.02 {
			t.Errorf("%s: CPU %v s, the user's cgroup kept %v s", r.Key, cpu, kept)
		}
		if len(r.Stages) != 1 || r.Stages[0].Name != "unit" || r.Stages[0].ExitCode != cimeter.Some(4) {
			t.Errorf("%s: stages %q, want unit with exit code 4", r.Key, stageNames(&r))
		}
		if m := r.Usage.MemoryBytes; m == nil || m.Peak.Value < 48<<20 {
			t.Errorf("%s: memory %+v, want a peak of 48 MiB at least", r.Key, m)
		}
	}
	if n := a.metric("cimeter_agent_gaps_total", `reason="no_cgroup"`); n != 0 {
		t.Errorf("%v gaps for want of a cgroup, want none", n)
	}
}

// booked is the CPU time of a cgroup and of all that ever were below it.
func booked(t *testing.T, path string) time.Duration {
	t.Helper()
	used, err := testdocker.CgroupCPU(path)
	if err != nil {
		t.Fatal(err)
	}
	return used
}
