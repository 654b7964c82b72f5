package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/agent"
	"github.com/cimeter/cimeter/internal/ci/jenkins"
	"github.com/cimeter/cimeter/internal/config"
)

func podIdentifiers(t *testing.T, rules ...config.Rule) identifiers {
	t.Helper()
	ids, err := newIdentifiers(config.Agent{Rules: rules}, runnerJobs{})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func inPod(p *cimeter.Pod, name string, env map[string]string) *cimeter.Container {
	return &cimeter.Container{ID: strings.Repeat("a", 64), Name: name, Image: "alpine:3", Pod: p, Env: env, Labels: map[string]string{cimeter.LabelPodContainer: name}}
}

// The container that holds a pod's namespaces is of the build that another one of
// the pod has told by its variables.
func TestPods_sandbox(t *testing.T) {
	ids := podIdentifiers(t)
	p := &cimeter.Pod{UID: "u-1", Name: "wp-01234567-89ab-cdef-0123-456789abcdef", Namespace: "ci", Labels: map[string]string{"woodpecker-ci.org/step": "build"}}
	sandbox := &cimeter.Container{Name: p.Name, Pod: p, Sandbox: true}
	if id, ok := ids.identify(sandbox); !ok || !id.Later {
		t.Errorf("before anything is known: %v %+v, want one to ask for later", ok, id)
	}
	step, ok := ids.identify(inPod(p, p.Name, map[string]string{"CI_SYSTEM_NAME": "woodpecker", "CI_SYSTEM_HOST": "ci.example.com", "CI_REPO": "a/b", "CI_PIPELINE_NUMBER": "7", "CI_WORKFLOW_NAME": "w"}))
	if !ok || step.Build.Key != "woodpecker/ci.example.com/a/b/7/w" {
		t.Fatalf("step: %v %+v", ok, step)
	}
	id, ok := ids.identify(sandbox)
	if !ok || id.Later || id.Build != step.Build || id.Group != step.Group || id.Role != cimeter.RoleWait || !id.Alongside {
		t.Errorf("%v %+v, want the step's build", ok, id)
	}
}

// What is remembered of pods is bounded.
func TestPods_bound(t *testing.T) {
	p := newPods(func(c *cimeter.Container) (cimeter.Identity, bool) {
		if id, ok := jenkins.Identify(c); ok {
			return id, true
		}
		return cimeter.Identity{Build: cimeter.Build{Key: c.Pod.UID}}, true
	})
	for i := range 3 * maxPods {
		for range 2 {
			p.Identify(inPod(&cimeter.Pod{UID: fmt.Sprint(i)}, "c", nil))
		}
	}
	for i := range 3 * maxPods {
		p.Identify(jenkinsPod(fmt.Sprint("j", i), fmt.Sprint(i)))
	}
	if len(p.first) > maxPods {
		t.Errorf("%d builds of several pods, want at most %d", len(p.first), maxPods)
	}
	if len(p.builds) != maxPods || len(p.uids) != maxPods {
		t.Errorf("%d builds of %d pods, want %d", len(p.builds), len(p.uids), maxPods)
	}
}

func jenkinsPod(uid, number string) *cimeter.Container {
	return inPod(&cimeter.Pod{
		UID: uid, Name: "app-" + uid, Labels: map[string]string{"jenkins/label": "x"},
		Annotations: map[string]string{"buildUrl": "https://ci.example.com/job/app/" + number + "/"},
	}, "maven", nil)
}

// A build of Jenkins that has a second pod on a machine has a second record: the
// first may be over.
func TestPods_further(t *testing.T) {
	ids := podIdentifiers(t)
	for _, tt := range []struct{ uid, number, want string }{
		{"u1", "17", "jenkins/ci.example.com/app/17"},
		{"u2", "17", "jenkins/ci.example.com/app/17/app-u2"},
		{"u1", "17", "jenkins/ci.example.com/app/17"},
		{"u3", "18", "jenkins/ci.example.com/app/18"},
	} {
		id, ok := ids.identify(jenkinsPod(tt.uid, tt.number))
		if !ok || id.Build.Key != tt.want || id.Group != tt.uid || id.Build.Number != tt.number {
			t.Errorf("pod %s of build %s: %v %+v, want key %s", tt.uid, tt.number, ok, id, tt.want)
		}
		sandbox := jenkinsPod(tt.uid, tt.number)
		sandbox.Sandbox = true
		if of, _ := ids.identify(sandbox); of.Build.Key != id.Build.Key {
			t.Errorf("sandbox of pod %s: key %s", tt.uid, of.Build.Key)
		}
	}
}

// Rules see a pod's labels and annotations as the container's.
func TestPods_rules(t *testing.T) {
	conf, err := config.Parse("c.yml", []byte(`
agent:
  rules:
    - name: mine
      match:
        labels:
          example.com/build: ^(?P<number>[0-9]+)$
          io.kubernetes.container.name: ^(?P<stage>.+)$
      set: {ci: mine, server: ci.example.com, project: p}
`))
	if err != nil {
		t.Fatal(err)
	}
	ids := podIdentifiers(t, conf.Agent.Rules...)
	p := &cimeter.Pod{UID: "u-1", Name: "x", Annotations: map[string]string{"example.com/build": "7", cimeter.LabelPodContainer: "forged"}}
	id, ok := ids.identify(inPod(p, "compile", nil))
	if !ok || id.Build.Key != "mine/ci.example.com/p/7/" || id.Stage != "compile" {
		t.Errorf("%v %+v", ok, id)
	}
}

// A container in no pod cannot be one of a pod's by its labels.
func TestPods_labelsOfContainers(t *testing.T) {
	ids := podIdentifiers(t)
	c := inPod(nil, "build", nil)
	c.Labels = map[string]string{
		"job.runner.gitlab.com/pod": "runner-x-project-1-concurrent-0", "job.runner.gitlab.com/id": "1", "tekton.dev/taskRun": "x",
		"io.kubernetes.pod.uid": "u-1", "io.kubernetes.pod.name": "runner-x-project-1-concurrent-0-abcdefgh", cimeter.LabelPodContainer: "build",
	}
	if id, ok := ids.identify(c); ok {
		t.Errorf("taken for %s", id.Build.Key)
	}
}

func TestCommandStage(t *testing.T) {
	in := func(kind, next string) *cimeter.Identity {
		return &cimeter.Identity{Build: cimeter.Build{CI: kind, Number: "2"}, Role: cimeter.RoleBuild, Stage: cimeter.StageWaiting, Inside: true, Next: next}
	}
	for _, tt := range []struct {
		name string
		id   *cimeter.Identity
		line string
		want agent.CommandTold
	}{
		{"not known whose", &cimeter.Identity{}, "gitlab-runner-helper\x00cache-archiver", agent.CommandTold{Stage: "archive_cache"}},
		{"a script, not known whose", &cimeter.Identity{}, "sh\x00/scripts-1-2/step_script", agent.CommandTold{Stage: "step_script", Inside: true}},
		{"another system's", &cimeter.Identity{Build: cimeter.Build{CI: "drone"}}, "git", agent.CommandTold{}},
		{"gitlab's script", in("gitlab", "step_script"), "sh\x00/scripts-1-2/step_script", agent.CommandTold{Stage: "step_script", Inside: true, Own: true}},
		{"gitlab's compiler", in("gitlab", "step_script"), "go\x00build", agent.CommandTold{Inside: true}},
		{"tekton's entry point", in("tekton", "compile"), "/tekton/bin/entrypoint\x00-wait_file\x00x", agent.CommandTold{Own: true}},
		{"tekton's step", in("tekton", "compile"), "go\x00build", agent.CommandTold{Stage: "compile", Inside: true}},
		{"the container's runtime", in("tekton", "compile"), "runc\x00init", agent.CommandTold{Own: true}},
		{"a process that becomes another", in("gitlab", "step_script"), "", agent.CommandTold{Own: true}},
		{"github's listener", in("github", "job"), "/home/runner/bin/Runner.Listener\x00run", agent.CommandTold{Own: true}},
		{"github's worker", in("github", "job"), "/home/runner/bin/Runner.Worker\x00spawnclient", agent.CommandTold{Stage: "job", Inside: true}},
		{"buildkite's agent", in("buildkite", "command"), "/workspace/buildkite-agent\x00kubernetes-bootstrap", agent.CommandTold{Own: true}},
		{"buildkite's command", in("buildkite", "command"), "/bin/sh\x00-ec\x00make", agent.CommandTold{Stage: "command", Inside: true}},
	} {
		if got := commandStage(tt.id, []byte(tt.line+"\x00")); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
