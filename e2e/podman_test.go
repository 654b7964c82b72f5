package e2e_test

import (
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
		if cpu := r.Usage.CPUSeconds.Total.Value; cpu < time.Duration(truth.CPU).Seconds() || cpu > time.Duration(truth.CPU).Seconds()+0.2 {
			t.Errorf("CPU %v s, want %v", cpu, time.Duration(truth.CPU))
		}
		if len(r.Stages) != 1 || r.Stages[0].Name != "unit" || r.Stages[0].ExitCode != cimeter.Some(0) {
			t.Errorf("stages %q, want unit", stageNames(&r))
		}
		if why := r.Usage.NotMetered["network_bytes"]; r.Usage.NetworkBytes == nil && why == "" {
			t.Error("neither the network of the pod nor why it is not told")
		}
	})
}
