package e2e_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// systemsConfig has no rules: the pods are known by what their systems make.
const systemsConfig = "log:\n  level: debug\nagent:\n  grace: 2s\n  quiet: 20s\n"

// podsOfSystems plays jobs of CI systems, one after the other, and then looks at what
// the agent says of them: it takes some seconds to be sure that one is over.
func podsOfSystems(t *testing.T, n *node) {
	a := startAgent(t, n, systemsConfig)
	var checks []func()
	for _, play := range []func(*testing.T, *node, *agent) func(){podOfTekton, podsOfBuildkite, podsOfWorkflow, podsOfJenkins, podOfRunner} {
		checks = append(checks, play(t, n, a))
	}
	for _, check := range checks {
		check()
	}
}

// begin makes containers of a pod and starts them all, as the kubelet does.
func (n *node) begin(t *testing.T, p *testdocker.Pod, specs ...testdocker.ContainerSpec) (ids []string) {
	t.Helper()
	for _, s := range specs {
		id, err := p.Create(s)
		if err == nil {
			err = n.Start(id)
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// end waits for containers that end well.
func (n *node) end(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		if code, err := n.Wait(id); err != nil || code != 0 {
			t.Fatalf("container %.12s: exit code %d: %v", id, code, err)
		}
	}
}

// letGo lets a container begin that waits for it.
func (n *node) letGo(t *testing.T, what string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.truths, "go-"+what), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// made is when a file came to be.
func (n *node) made(t *testing.T, name string) time.Time {
	t.Helper()
	info, err := os.Stat(filepath.Join(n.truths, name))
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

// held is a container of a program of the system's that waits, and then runs
// something of the build's.
func (n *node) held(name, program string, arguments []string, steps ...string) testdocker.ContainerSpec {
	s := n.spec(name)
	s.Cmd = append(append(append([]string{program}, arguments...), "--"), steps...)
	return s
}

func runPod(t *testing.T, n *node, p testdocker.PodSpec) *testdocker.Pod {
	t.Helper()
	pod, err := n.RunPod(p)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// burnt checks that a stage has used what its step burns. It may be more, as programs
// take something to start; but all stages are the pods' CPU time (checkPods), so what one
// has too much, another lacks.
func burnt(t *testing.T, a *agent, r *cimeter.Record, stage string, seconds float64, by cimeter.Boundary) *cimeter.Stage {
	t.Helper()
	s := stageOf(r, stage, 1)
	if s == nil {
		t.Errorf("%s: no stage %s in %q", r.Key, stage, stageNames(r))
		return &cimeter.Stage{}
	}
	least := 0.9
	if by == cimeter.BoundaryCommand && a.held() > busy {
		// What a process uses before the agent has seen it twice without its command
		// line is that of what waited before.
		least = 0.5
	}
	if got := s.Usage.CPUSeconds.Total.Value; got < least*seconds || s.Boundary != by || s.Alongside {
		t.Errorf("%s: stage %s by %s, alongside %v: CPU %.3f s, want %.1f s by %s", r.Key, stage, s.Boundary, s.Alongside, got, seconds, by)
	}
	return s
}

// podOfTekton plays a TaskRun: the containers of both steps begin with the pod, and
// the entry point of the second waits for the first.
func podOfTekton(t *testing.T, n *node, a *agent) (check func()) {
	const entrypoint = "/tekton/bin/entrypoint"
	p := runPod(t, n, testdocker.PodSpec{
		Name: "release-build-pod", Namespace: "ci", UID: "7a000000-0000-4000-8000-000000000001", Class: "besteffort",
		Labels: map[string]string{"tekton.dev/taskRun": "release-build", "tekton.dev/pipeline": "release", "tekton.dev/pipelineRun": "release-1", "tekton.dev/pipelineTask": "build"},
	})
	ids := n.begin(t, p,
		n.held("step-compile", entrypoint, []string{"-post_file", "/tekton/run/0/out"}, "await=/truth/go-tekton", "fork=1:0.5", "mark=/truth/go-tekton-2"),
		n.held("step-test", entrypoint, []string{"-wait_file", "/tekton/run/0/out"}, "await=/truth/go-tekton-2", "fork=1:0.3"))
	a.eventually("the build runs", func() error {
		if a.metric("cimeter_builds_running", `ci="tekton"`) < 1 {
			return context.DeadlineExceeded
		}
		return nil
	})
	n.letGo(t, "tekton")
	n.end(t, ids)
	used := remove(t, p)
	return func() {
		r := a.await(cimeter.BuildKey("tekton", "local", "ci", "release-build", p.UID))
		checkComplete(t, &r)
		checkPods(t, &r, used, 0.95)
		compile := burnt(t, a, &r, "compile", 0.5, cimeter.BoundaryCommand)
		test := burnt(t, a, &r, "test", 0.3, cimeter.BoundaryCommand)
		// When the steps were let go, the kernel has written down. A process may have
		// begun a tick of its clock before.
		const tick = 10 * time.Millisecond
		if first, second := n.made(t, "go-tekton"), n.made(t, "go-tekton-2"); compile.StartedAt.Before(first.Add(-tick)) ||
			!compile.StartedAt.Before(second) || test.StartedAt.Before(second.Add(-tick)) {
			t.Errorf("the steps begin at %v and %v: want when the entry point lets them go, from %v and %v on", compile.StartedAt, test.StartedAt, first, second)
		}
		if w := stageOf(&r, cimeter.StageWaiting, 1); w == nil || !w.Alongside {
			t.Errorf("waiting %+v in %q", w, stageNames(&r))
		}
		if r.Project != "ci/release" || r.Name != "build" || r.Attempt != 1 || r.Pipeline != "release-1" {
			t.Errorf("identity %+v", r.Build)
		}
	}
}

// podsOfBuildkite plays a job of the agent stack, and beside it a pod that says it
// is of the same job.
func podsOfBuildkite(t *testing.T, n *node, a *agent) (check func()) {
	const job, agent = "0190c0de-1111-4222-8333-444455556666", "/workspace/buildkite-agent"
	spec := testdocker.PodSpec{
		Name: "buildkite-" + job, Namespace: "ci", UID: "7b000000-0000-4000-8000-000000000001", Class: "burstable",
		Labels: map[string]string{"buildkite.com/job-uuid": job},
		Annotations: map[string]string{
			"buildkite.com/build-url": "https://buildkite.com/acme/shop-web/builds/17", "buildkite.com/job-url": "https://buildkite.com/acme/shop-web/builds/17#" + job,
			"buildkite.com/pipeline-slug": "shop-web", "buildkite.com/build-branch": "main",
		},
	}
	p := runPod(t, n, spec)
	command := n.held("container-0", agent, []string{"kubernetes-bootstrap"}, "await=/truth/go-buildkite", "fork=1:0.4")
	command.Env["BUILDKITE_LABEL"], command.Env["BUILDKITE_AGENT_ACCESS_TOKEN"] = "unit tests", "not-to-be-read"
	ids := n.begin(t, p, n.held("agent", agent, []string{"start"}, "await=/truth/go-buildkite", "sleep=0.5"), command)
	a.eventually("the build runs", func() error {
		if a.metric("cimeter_builds_running", `ci="buildkite"`) < 1 {
			return context.DeadlineExceeded
		}
		return nil
	})
	spec.Name, spec.UID, spec.Annotations = spec.Name+"-x", "7b000000-0000-4000-8000-000000000002", maps.Clone(spec.Annotations)
	forged := runPod(t, n, spec)
	if err := forged.Run(n.held("container-0", agent, nil, "fork=1:0.3")); err != nil {
		t.Fatal(err)
	}
	n.letGo(t, "buildkite")
	n.end(t, ids)
	used := remove(t, p)
	remove(t, forged)
	return func() {
		r := a.await(cimeter.BuildKey("buildkite", "buildkite.com", "acme/shop-web", "17", job))
		checkPods(t, &r, used, 0.9)
		burnt(t, a, &r, "command", 0.4, cimeter.BoundaryCommand)
		if r.Name != "unit tests" || r.Number != "17" || r.Ref != "main" {
			t.Errorf("identity %+v", r.Build)
		}
		if !slices.ContainsFunc(r.Verdicts, func(v cimeter.Verdict) bool { return v.Kind == "disputed" }) {
			t.Errorf("verdicts %+v: want one that another pod claims the build", r.Verdicts)
		}
	}
}

// podsOfWorkflow plays two steps of a workflow of Woodpecker's, a pod each: only
// their variables tell the pipeline.
func podsOfWorkflow(t *testing.T, n *node, a *agent) (check func()) {
	var pods []*testdocker.Pod
	for i, step := range []string{"build", "test"} {
		name := "wp-01234567-89ab-cdef-0123-45678900000" + string(rune('0'+i))
		p := runPod(t, n, testdocker.PodSpec{
			Name: name, Namespace: "ci", UID: "7c000000-0000-4000-8000-00000000000" + string(rune('0'+i)),
			Labels: map[string]string{"step": step, "woodpecker-ci.org/step": step, "woodpecker-ci.org/task-uuid": "01j9k3v0000000000000000042"},
		})
		s := n.spec(name, "cpu=0.3")
		maps.Copy(s.Env, map[string]string{
			"CI_SYSTEM_NAME": "woodpecker", "CI_SYSTEM_URL": "https://ci.example.com", "CI_REPO": "acme/shop", "CI_PIPELINE_NUMBER": "17",
			"CI_WORKFLOW_NAME": "linux", "CI_WORKFLOW_NUMBER": "1", "CI_STEP_NAME": step, "CI_STEP_TYPE": "commands", "CI_COMMIT_BRANCH": "main",
		})
		if err := p.Run(s); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, p)
	}
	used := remove(t, pods...)
	return func() {
		r := a.await(cimeter.BuildKey("woodpecker", "ci.example.com", "acme/shop", "17", "linux"))
		checkComplete(t, &r)
		checkPods(t, &r, used, 0.95)
		for _, step := range []string{"build", "test"} {
			burnt(t, a, &r, step, 0.3, cimeter.BoundaryContainer)
		}
		if r.Project != "acme/shop" || r.Ref != "main" || len(r.Verdicts) > 0 && r.Verdicts[0].Kind == "disputed" {
			t.Errorf("identity %+v, verdicts %+v", r.Build, r.Verdicts)
		}
	}
}

// podsOfJenkins plays a pipeline that has two pods at once: each has a record, the
// first that of the build.
func podsOfJenkins(t *testing.T, n *node, a *agent) (check func()) {
	var pods []*testdocker.Pod
	var ids []string
	for i, container := range []string{"maven", "node"} {
		p := runPod(t, n, testdocker.PodSpec{
			Name: "team-app-17-" + container, Namespace: "ci", UID: "7d000000-0000-4000-8000-00000000000" + string(rune('0'+i)),
			Labels: map[string]string{"jenkins": "slave", "jenkins/label": "team_app_17-" + container},
			Annotations: map[string]string{
				"buildUrl": "https://jenkins.example.com/job/team/job/app/17/", "runUrl": "job/team/job/app/17/",
			},
		})
		pods = append(pods, p)
		ids = append(ids, n.begin(t, p, n.spec("jnlp", "sleep=0.5"), n.spec(container, "cpu=0.3"))...)
	}
	n.end(t, ids)
	used := []spent{remove(t, pods[0]), remove(t, pods[1])}
	return func() {
		key := cimeter.BuildKey("jenkins", "jenkins.example.com", "team/app", "17")
		for i, k := range []string{key, key + "/team-app-17-node"} {
			r := a.await(k)
			checkPods(t, &r, used[i], 0.9)
			burnt(t, a, &r, []string{"maven", "node"}[i], 0.3, cimeter.BoundaryContainer)
			if r.Number != "17" || r.Project != "team/app" {
				t.Errorf("identity %+v", r.Build)
			}
		}
	}
}

// podOfRunner plays a runner of Actions Runner Controller that waits for a job and
// then has one, without the API server.
func podOfRunner(t *testing.T, n *node, a *agent) (check func()) {
	const listener, worker = "/home/runner/bin/Runner.Listener", "/home/runner/bin/Runner.Worker"
	p := runPod(t, n, testdocker.PodSpec{
		Name: "linux-abcde-runner-x7k2p", Namespace: "arc", UID: "7e000000-0000-4000-8000-000000000001",
		Labels: map[string]string{"actions-ephemeral-runner": "True", "actions.github.com/scale-set-name": "linux"},
	})
	s := n.spec("runner")
	s.Cmd = []string{"/bin/sh", "-c", listener + " run -- await=/truth/go-runner; " + worker + " spawnclient 1 2 -- cpu=0.5; " + listener + " run -- sleep=1"}
	ids := n.begin(t, p, s)
	a.eventually("the build runs", func() error {
		if a.metric("cimeter_builds_running", `ci="github"`) < 1 {
			return context.DeadlineExceeded
		}
		return nil
	})
	n.letGo(t, "runner")
	n.end(t, ids)
	used := remove(t, p)
	return func() {
		r := a.await(cimeter.BuildKey("github", "local", "arc", p.Name))
		checkComplete(t, &r)
		checkPods(t, &r, used, 0.9)
		burnt(t, a, &r, "job", 0.5, cimeter.BoundaryCommand)
	}
}
