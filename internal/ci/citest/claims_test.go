package citest_test

import (
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/act"
	"github.com/cimeter/cimeter/internal/ci/argo"
	"github.com/cimeter/cimeter/internal/ci/buildkite"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/drone"
	"github.com/cimeter/cimeter/internal/ci/gitea"
	"github.com/cimeter/cimeter/internal/ci/github"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/ci/jenkins"
	"github.com/cimeter/cimeter/internal/ci/prow"
	"github.com/cimeter/cimeter/internal/ci/tekton"
	"github.com/cimeter/cimeter/internal/ci/woodpecker"
)

// Names of variables overlap between the systems. Every recorded container is
// claimed by its own system alone, with all their variables read.
func TestClaims(t *testing.T) {
	identifiers := map[string]ci.Identifier{
		"gitlab": gitlab.Identify, "drone": drone.Identify, "woodpecker": woodpecker.Identify,
		"gitea": gitea.Identify, "act": act.Identify, "github": github.Identify,
	}
	variables := ci.Variables(gitlab.Variables(), drone.Variables(), woodpecker.Variables(), gitea.Variables(), act.Variables(), github.Variables())
	for dir, want := range map[string]string{
		"../gitlab/testdata/one": "gitlab", "../gitlab/testdata/two-failing": "gitlab",
		"../drone/testdata/exec": "drone", "../woodpecker/testdata/exec": "woodpecker",
	} {
		r := citest.Load(t, dir, variables)
		all := r.Created
		for _, c := range r.Inspected {
			all = append(all, c)
		}
		if len(r.Created) < 3 || len(r.Inspected) < 3 {
			t.Fatalf("%s: %d containers, %d inspected: the recording is not whole", dir, len(r.Created), len(r.Inspected))
		}
		for _, c := range all {
			for name, identify := range identifiers {
				id, ok := identify(c)
				if ok != (name == want) {
					t.Errorf("%s of %s: claimed by %s is %v", c.Name, want, name, ok)
				}
				if ok && (id.Build.CI != want || id.Build.Key == "") {
					t.Errorf("%s: %s gives %+v", c.Name, name, id)
				}
			}
		}
	}
}

// A container of nobody's is nobody's.
func TestClaimsNobody(t *testing.T) {
	first := ci.First(gitlab.Identify, drone.Identify, woodpecker.Identify, gitea.Identify, github.Identify, act.Identify)
	for _, c := range []cimeter.Container{
		{}, {Name: "postgres"}, {Name: "runner-1"}, {Name: "drone-server"}, {Name: "wp_cron"}, {Name: "gitea"}, {Name: "act-runner"},
		{Name: "web", Labels: map[string]string{"com.docker.compose.project": "x"}, Env: map[string]string{"CI_JOB_ID": "1", "GITLAB_CI": "true", "DRONE_REPO": "a/b"}},
	} {
		if id, ok := first(&c); ok {
			t.Errorf("%+v is taken for %+v", c, id)
		}
	}
}

// Every pod is claimed by its own system alone, with all variables read, and its
// containers are, outside of a pod, nobody's.
func TestClaims_pods(t *testing.T) {
	identifiers := map[string]ci.Identifier{
		"gitlab": gitlab.Identify, "drone": drone.Identify, "woodpecker": woodpecker.Identify, "github": github.Pods(nil),
		"jenkins": jenkins.Identify, "buildkite": buildkite.Identify, "tekton": tekton.Identify, "argo": argo.Identify, "prow": prow.Identify,
		"gitea": gitea.Identify, "act": act.Identify,
	}
	variables := ci.Variables(gitlab.Variables(), drone.Variables(), woodpecker.Variables(), github.Variables(), jenkins.Variables(),
		buildkite.Variables(), prow.Variables())
	for want := range identifiers {
		if want == "gitea" || want == "act" {
			continue // have none
		}
		for _, p := range citest.Pods(t, "../"+want+"/testdata/pods", variables) {
			for _, c := range p.Containers {
				alone := *c
				alone.Pod = nil
				for name, identify := range identifiers {
					if _, ok := identify(c); ok != (name == want) {
						t.Errorf("%s: %s: claimed by %s %v, want %v", p.File, c.Name, name, ok, name == want)
					}
					if name != "woodpecker" { // whose containers are known by a name and a variable
						if id, ok := identify(&alone); ok {
							t.Errorf("%s: %s outside of a pod: %s claims it for %s", p.File, c.Name, name, id.Build.Key)
						}
					}
				}
			}
		}
	}
}

// No metadata makes an identifier panic, or one key of two pods that name no build.
func FuzzIdentify_pods(f *testing.F) {
	f.Add("runner-x-project-1-concurrent-0", "job.runner.gitlab.com/id", "12", "build", "image:1")
	f.Add("wp-01234567-89ab-cdef-0123-456789abcdef", "woodpecker-ci.org/step", "a", "wp-01234567-89ab-cdef-0123-456789abcdef", "")
	f.Add("x-pod-retry1", "tekton.dev/taskRun", "x", "step-", "")
	f.Add("x", "workflows.argoproj.io/workflow", "x-bcdfg", "main", "@")
	f.Add("x-workflow", "runner-pod", "x", "job", "a@sha256:")
	f.Add("x", "jenkins/label", "l", "jnlp", "")
	f.Add("drone-x1y2z3a4b5c6d7e8f9g0", "io.drone", "true", "c", "drone/placeholder:1")
	f.Add("x", "buildkite.com/job-uuid", "0190c0de-1111-4222-8333-444455556666", "container-0", "")
	f.Fuzz(func(t *testing.T, pod, key, value, container, image string) {
		m := map[string]string{key: value, "io.drone": "true", "io.drone.build.number": value, "buildUrl": value, "runUrl": value, "created-by-prow": "true",
			"buildkite.com/build-url": value, "job.runner.gitlab.com/url": value, "pod": pod[:len(pod)/2]}
		c := &cimeter.Container{Name: container, Image: image, Labels: map[string]string{cimeter.LabelPodContainer: container},
			Pod: &cimeter.Pod{UID: "u1", Name: pod, Namespace: "ns", Labels: m, Annotations: m}}
		for name, identify := range map[string]ci.Identifier{
			"gitlab": gitlab.Identify, "drone": drone.Identify, "woodpecker": woodpecker.Identify, "github": github.Pods(nil), "jenkins": jenkins.Identify,
			"buildkite": buildkite.Identify, "tekton": tekton.Identify, "argo": argo.Identify, "prow": prow.Identify,
		} {
			id, ok := identify(c)
			if !ok {
				continue
			}
			if id.Build.Key == "" || id.Build.CI != name || id.Role == "" || id.Stage == "" || id.Group == "" || id.Inside && id.Stage != cimeter.StageWaiting {
				t.Errorf("%s: %+v of %+v", name, id, c.Pod)
			}
			c.Sandbox = true
			if id, ok := ci.InPod(identify)(c); !ok || id.Role != cimeter.RoleWait || id.Inside || id.Doubt != "" && name == "woodpecker" {
				t.Errorf("%s: sandbox %+v", name, id)
			}
			c.Sandbox = false
		}
	})
}
