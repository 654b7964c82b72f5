package e2e_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
	"github.com/cimeter/cimeter/internal/testtools"
)

// node is a machine whose containers a Kubernetes runtime makes.
type node struct {
	*testdocker.CRI
	truths  string
	streams bool   // the runtime streams events
	sink    string // address, from a pod with a network of its own
}

// podRules tell the builds of pods that no CI system made: a label of the pod, and
// the name of the container as the stage.
const podRules = `log:
  level: debug
agent:
  grace: 2s
  quiet: 20s
  rules:
    - name: e2e
      match:
        labels: {example.com/build: '^(?P<number>\d+)$', io.kubernetes.container.name: '^(?P<stage>.+)$'}
      set: {ci: e2e}
`

func podKey(number int) string { return fmt.Sprintf("e2e///%d/", number) }

func newNode(t *testing.T, programs ...string) *node {
	t.Helper()
	burn := burnProgram(t)
	n := &node{
		truths: t.TempDir(),
		CRI: testdocker.StartCRI(t, toolProgram(t, testtools.Crictl), testdocker.Options{
			Programs: programs,
			Files:    map[string]string{"/bin/burn": burn, "/bin/gitlab-runner-build": burn},
			Links: map[string]string{
				"/tekton/bin/entrypoint": "/bin/burn", "/workspace/buildkite-agent": "/bin/burn",
				"/home/runner/bin/Runner.Listener": "/bin/burn", "/home/runner/bin/Runner.Worker": "/bin/burn",
			},
		}),
	}
	l, err := n.Listen("tcp4", ":0") // the bridge comes with the first pod
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go serveSink(l)
	n.sink = fmt.Sprintf("%s:%d", n.Gateway(), l.Addr().(*net.TCPAddr).Port)
	return n
}

// spec is a container that burns.
func (n *node) spec(name string, steps ...string) testdocker.ContainerSpec {
	return testdocker.ContainerSpec{
		Name: name, Cmd: append([]string{"/bin/burn"}, steps...),
		Env: map[string]string{"BURN_TRUTH": "/truth", "BURN_NAME": name}, Mounts: map[string]string{"/truth": n.truths},
	}
}

// pod makes the pod of a build.
func (n *node) pod(t *testing.T, build, number int, class string) *testdocker.Pod {
	t.Helper()
	p, err := n.RunPod(testdocker.PodSpec{
		Name: fmt.Sprintf("step-%d-%d", build, number), Namespace: "ci", UID: fmt.Sprintf("%08d-0000-4000-8000-%012d", build, number),
		Class: class, Labels: map[string]string{"example.com/build": fmt.Sprint(build)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// spent is the CPU time of pods as the kernel counted it in their cgroups, containers
// that are gone included.
type spent struct {
	before    time.Duration // when all of their containers had ended
	all       time.Duration // when their sandboxes had, too
	sandboxes time.Duration // of those alone: to make a pod's namespaces takes 15 ms
}

// remove removes pods and returns the CPU time that they have used.
func remove(t *testing.T, pods ...*testdocker.Pod) (s spent) {
	t.Helper()
	for _, p := range pods {
		before, err := p.CPU()
		if err != nil {
			t.Fatal(err)
		}
		sandbox, err := testdocker.CgroupCPU(filepath.Join(p.Cgroup, p.ID))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.End(); err != nil {
			t.Fatal(err)
		}
		all, err := p.CPU()
		if err != nil {
			t.Fatal(err)
		}
		s = spent{s.before + before, s.all + all, s.sandboxes + sandbox + all - before}
		if err := p.RemoveCgroup(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// podBodies share one runtime. Each has an agent of its own.
func podBodies() []podBody {
	return []podBody{
		{name: "ShortLived", play: podsShortLived, asked: true, streamed: true},
		{name: "GitLab", play: podOfGitLab, asked: true, streamed: true},
		{name: "Systems", play: podsOfSystems, asked: true}, // what systems are is no runtime's
		{name: "AgentAway", play: podAgentAway, asked: true},
		{name: "RuntimeAway", play: podRuntimeAway, asked: true, streamed: true},
		{name: "AgentStopped", play: podsAgentStopped, streamed: true},
		{name: "EventsOff", play: podEventsOff, streamed: true},
	}
}

type podBody struct {
	name string
	play func(*testing.T, *node)
	// It is played on a runtime that is asked, and on one that streams events.
	asked, streamed bool
}

// TestCRI runs the bodies on the distribution's containerd, one after the other. It
// streams no events: it is asked.
func TestCRI(t *testing.T) {
	n := newNode(t)
	for _, c := range podBodies() {
		if c.asked {
			t.Run(c.name, func(t *testing.T) { c.play(t, n) })
		}
	}
}

// TestCRIStreamed runs bodies on a newer containerd, which streams events.
func TestCRIStreamed(t *testing.T) {
	n := newNode(t, toolProgram(t, testtools.Containerd), toolProgram(t, testtools.ContainerdShim))
	n.streams = true
	for _, c := range podBodies() {
		if c.streamed {
			t.Run(c.name, func(t *testing.T) { c.play(t, n) })
		}
	}
}

// checkStreamed holds that the agent has followed a runtime by its stream of events
// where it has one, and by questions where not.
func checkStreamed(t *testing.T, n *node, a *agent) {
	t.Helper()
	const name = "cimeter_agent_engine_events_total"
	told, asked := a.metric(name, `engine="cri"`, `by="told"`), a.metric(name, `engine="cri"`, `by="asked"`)
	t.Logf("of what happened to containers %v was told and %v asked for", told, asked)
	switch {
	case !n.streams && (told != 0 || asked == 0):
		t.Errorf("%v events were told by a runtime that streams none, %v asked for", told, asked)
	case n.streams && asked > told:
		// A machine that starves the agent for seconds has it ask for what it was told
		// and has not read yet: 18 of 168 with 230 processes for two processors.
		t.Errorf("%v events were told by a runtime that streams them, and %v asked for: want most of them told", told, asked)
	}
}

// checkPods holds what a build's record says of CPU time against what the kernel
// has counted for its pods. shown is the share that readings of the containers must
// have shown; the pods' cgroups have the rest.
func checkPods(t *testing.T, r *cimeter.Record, used spent, shown float64) {
	t.Helper()
	checkSum(t, r)
	s := stageOf(r, "pod", 1)
	if s == nil {
		t.Fatalf("%s: no stage pod in %q", r.Key, stageNames(r))
	}
	want, total := used.all.Seconds(), r.Usage.CPUSeconds.Total.Value
	left := s.Usage.CPUSeconds.Total.Value - used.sandboxes.Seconds()
	t.Logf("%s: %.3f s of %.3f s of CPU captured (%.2f %%), %.2f %% by readings of containers", r.Key, total, want, 100*total/want, 100*(total-left)/want)
	// The pod may be read before its sandbox ends, or after.
	if total < 0.99*used.before.Seconds() || total > 1.001*want {
		t.Errorf("%s: CPU %.4f s, want that of its pods, %.4f s, at most %.4f s with the ends of their sandboxes", r.Key, total, used.before.Seconds(), want)
	}
	if total-left < shown*want {
		t.Errorf("%s: containers have shown %.3f s of CPU, want %.0f %% of %.3f s", r.Key, total-left, 100*shown, want)
	}
}

// podsShortLived has pods with several containers each run steps of 0.1 s.
func podsShortLived(t *testing.T, n *node) {
	pods, steps := 6, 6
	if slow {
		pods, steps = 2, 3
	}
	a := startAgent(t, n, podRules)
	classes := []string{"", "burstable", "besteffort"}
	var all []*testdocker.Pod
	for i := range pods {
		all = append(all, n.pod(t, 7, i, classes[i%len(classes)]))
	}
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			for k := range steps {
				if err := p.Run(n.spec(fmt.Sprintf("s-%d-%d", i, k), "cpu=0.1")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	used := remove(t, all...)
	r := a.await(podKey(7))
	if got := len(r.Stages) - 1; got != pods*steps {
		t.Errorf("%d of %d containers were seen", got, pods*steps)
	}
	for _, s := range r.Stages {
		if s.Name != "pod" && s.ExitCode != cimeter.Some(0) {
			t.Errorf("stage %s: exit code %v, want 0", s.Name, s.ExitCode)
		}
	}
	checkComplete(t, &r) // a container that was missed would be a gap
	// On a busy machine the meter may come late for a few; the pods have the rest.
	checkPods(t, &r, used, 0.98)
	checkStreamed(t, n, a)
}

// podOfGitLab plays a job of GitLab Runner's Kubernetes executor: one pod, an init
// container, and two containers that both live as long as the job.
func podOfGitLab(t *testing.T, n *node) {
	a := startAgent(t, n, "log:\n  level: debug\nagent:\n  grace: 2s\n  quiet: 20s\n")
	const unique = "runner-zx8k2mqpl-project-9-concurrent-0"
	p, err := n.RunPod(testdocker.PodSpec{
		Name: unique + "-a1b2c3d4", Namespace: "ci", UID: "3f8c5c4e-9a0e-4a52-8c1d-0d6f6a7f1b2c", Class: "burstable",
		Labels: map[string]string{
			"pod": unique, "job.runner.gitlab.com/pod": unique, "project.runner.gitlab.com/id": "9",
			"manager.runner.gitlab.com/id-short": "zx8k2mqpl", "manager.runner.gitlab.com/name": "kube-1",
		},
		Annotations: map[string]string{
			"job.runner.gitlab.com/id": "4711", "job.runner.gitlab.com/url": "https://gitlab.example.com/group/app/-/jobs/4711",
			"job.runner.gitlab.com/name": "build", "job.runner.gitlab.com/ref": "main", "job.runner.gitlab.com/sha": "7e4d0c",
			"project.runner.gitlab.com/id": "9",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	traffic := []string{"sleep=0.1"}
	if !slow {
		traffic = []string{"send=300000:" + n.sink, "receive=200000:" + n.sink}
	}
	if err := p.Run(n.spec("init-permissions", "cpu=0.05")); err != nil {
		t.Fatal(err)
	}
	script := func(s testdocker.ContainerSpec, stage string, before, after []string) testdocker.ContainerSpec {
		// What waits has no process but its shell; then the stage's script is one.
		s.Env["SCRIPT"] = "/scripts-9-4711/" + stage
		s.Cmd = []string{"/bin/sh", "-c", fmt.Sprintf("read go </truth/go-%s; gitlab-runner-build $SCRIPT -- %s; burn %s",
			s.Name, strings.Join(before, " "), strings.Join(after, " "))}
		return s
	}
	helper := script(n.spec("helper"), "get_sources", append([]string{"cpu=0.4"}, traffic...), []string{"sleep=0.1"})
	build := script(n.spec("build"), "step_script", []string{"cpu=0.6"}, []string{"sleep=0.1"})
	build.CPUShares, build.MemoryLimit = 512, 256<<20
	var ids []string
	for _, s := range []testdocker.ContainerSpec{build, helper} {
		if err := syscall.Mkfifo(filepath.Join(n.truths, "go-"+s.Name), 0o666); err != nil {
			t.Fatal(err)
		}
		id, err := p.Create(s)
		if err == nil {
			err = n.Start(id)
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for i, name := range []string{"helper", "build"} {
		if err := os.WriteFile(filepath.Join(n.truths, "go-"+name), []byte("\n"), 0); err != nil {
			t.Fatal(err)
		}
		if code, err := n.Wait(ids[1-i]); err != nil || code != 0 {
			t.Fatalf("container %s: exit code %d: %v", name, code, err)
		}
	}
	used := remove(t, p)
	r := a.await(cimeter.BuildKey("gitlab", "gitlab.example.com", "4711"))
	checkComplete(t, &r)
	checkPods(t, &r, used, 0.98)
	if r.Project != "group/app" || r.Number != "4711" || r.Name != "build" || r.Runner.ShortToken != "zx8k2mqpl" {
		t.Errorf("identity %+v, want that of job 4711 of group/app", r.Build)
	}
	// Programs take something to start. All stages are the pod's CPU time, so what one
	// has too much, another lacks.
	under := 0.02 // the kernel tells of children in steps of 10 ms, of each mode
	if slow {
		under = 0.1
	}
	for stage, burnt := range map[string]float64{"get_sources": 0.4, "step_script": 0.6} {
		got := 0.0
		for _, s := range r.Stages { // the runtime's own process may look like work, and so like a first attempt
			if s.Name == stage {
				got += s.Usage.CPUSeconds.Total.Value
			}
		}
		if got < burnt-under {
			t.Errorf("stage %s: CPU %.3f s, want the %.1f s that its script burns", stage, got, burnt)
		}
	}
	if r.Limits == nil || r.Limits.Requested.CPUCores != cimeter.Some(0.5) || r.Limits.MemoryBytes != cimeter.Some[uint64](256<<20) {
		t.Errorf("limits %+v, want half a core asked for and 256 MiB of memory", r.Limits)
	}
	if slow {
		return // a pod of the guest has the guest's network
	}
	for _, s := range r.Stages {
		if (s.Usage.NetworkBytes != nil) != (s.Name == "pod") {
			t.Errorf("stage %s: network %+v, want it once, at the pod", s.Name, s.Usage.NetworkBytes)
		}
	}
	if b := r.Usage.NetworkBytes; b == nil || b.Transmit < 300000 || b.Transmit > 330000 || b.Receive < 200000 || b.Receive > 230000 {
		t.Errorf("network %+v, want 300,000 bytes sent and 200,000 received", b)
	}
	if r.Usage.NotMetered["network_bytes"] != "" {
		t.Errorf("the build's network is metered and said not to be: %q", r.Usage.NotMetered)
	}
}

// podAgentAway has containers come and go while no agent runs: the pod's cgroup has
// what they used.
func podAgentAway(t *testing.T, n *node) {
	a := startAgent(t, n, podRules)
	p := n.pod(t, 8, 0, "burstable")
	if err := p.Run(n.spec("before", "cpu=0.2")); err != nil {
		t.Fatal(err)
	}
	a.eventually("the build runs", func() error {
		if a.metric("cimeter_builds_running", `ci="e2e"`) < 1 {
			return context.DeadlineExceeded
		}
		return nil
	})
	a.terminate()
	if err := p.Run(n.spec("away", "cpu=0.3")); err != nil {
		t.Fatal(err)
	}
	a.start()
	if err := p.Run(n.spec("after", "cpu=0.2")); err != nil {
		t.Fatal(err)
	}
	used := remove(t, p)
	r := a.await(podKey(8))
	checkPods(t, &r, used, 0)
	for name, burnt := range map[string]float64{"pod": 0.3, "before": 0.2, "after": 0.2} { // the pod has what nobody saw
		if got := stageOf(&r, name, 1); got == nil || got.Usage.CPUSeconds.Total.Value < burnt-0.01 {
			t.Errorf("stage %s in %q: %+v, want the %.1f s that were burnt in it", name, stageNames(&r), got, burnt)
		}
	}
}

// podRuntimeAway kills containerd under its pods and starts it again.
func podRuntimeAway(t *testing.T, n *node) {
	a := startAgent(t, n, podRules)
	p := n.pod(t, 9, 0, "")
	id, err := p.Create(n.spec("long", "await=/truth/end", "cpu=0.2", "exit=3"))
	if err == nil {
		err = n.Start(id)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.eventually("the build runs", func() error {
		if a.metric("cimeter_builds_running", `ci="e2e"`) < 1 {
			return context.DeadlineExceeded
		}
		return nil
	})
	n.KillRuntime()
	a.eventually("the agent says that the runtime is away", func() error {
		if a.metric("cimeter_agent_engine_up", `engine="cri"`) != 0 {
			return context.DeadlineExceeded
		}
		return nil
	})
	if _, err := a.get("/readyz"); err == nil {
		t.Error("the agent is ready without the runtime")
	}
	// The container ends while nobody can say so.
	if err := os.WriteFile(filepath.Join(n.truths, "end"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n.StartAgain()
	code, err := n.Wait(id)
	if err != nil || code != 3 && !(slow && code == 255) { // which an emulated containerd tells that gave a shim up
		t.Fatalf("exit code %d: %v, want 3", code, err)
	}
	a.eventually("the agent is ready", func() error {
		_, err := a.get("/readyz")
		return err
	})
	if err := p.Run(n.spec("next", "cpu=0.1")); err != nil {
		t.Fatal(err)
	}
	used := remove(t, p)
	r := a.await(podKey(9))
	checkComplete(t, &r)
	checkPods(t, &r, used, 0.98)
	if s := stageOf(&r, "long", 1); s == nil || s.ExitCode != cimeter.Some(code) {
		t.Errorf("stage long: %+v, want exit code %d", s, code)
	}
	if r.Result != "failed" {
		t.Errorf("result %q, want failed", r.Result)
	}
}
