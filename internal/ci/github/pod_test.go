package github_test

import (
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/github"
)

// What is told of each container of a pod, without the API server, is in the golden
// files beside the pods.
func TestPods(t *testing.T) {
	citest.GoldenPods(t, "testdata/pods", github.Variables(), github.Pods(nil))
}

func TestPods_forged(t *testing.T) {
	citest.Forged(t, "testdata/pods/arc-hooks-job.pod.json", "job", github.Variables(), github.Pods(nil), []citest.Forgery{
		{Name: "another runner", Labels: map[string]string{"runner-pod": "linux-abcde-runner-other"}},
		{Name: "a pod of somebody's", Pod: "web"},
	})
}

// With somebody to ask, a runner's container is nobody's before its runner has got a
// job, and the job's then; so are the pods that the hooks made.
func TestPods_asked(t *testing.T) {
	job := github.Ephemeral{ConfigURL: "https://github.com/acme"}
	asked := ""
	identify := github.Pods(func(namespace, runner string) (github.Ephemeral, bool) {
		asked = namespace + "/" + runner
		return job, true
	})
	c := citest.Container(t, "testdata/pods/arc-hooks-runner.pod.json", "runner", nil)
	if id, ok := identify(c); !ok || !id.Later || asked != "arc-runners/linux-abcde-runner-x7k2p" {
		t.Errorf("%v %+v, asked for %s: want one to ask for later", ok, id, asked)
	}
	job.Repository, job.RunID, job.Job, job.Ref = "acme/shop", "99", "ci / test (1.25, linux)", "acme/shop/.github/workflows/ci.yml@refs/heads/main"
	want := cimeter.Build{
		Key: "github/github.com/acme/shop/99/1/linux-abcde-runner-x7k2p/test", CI: "github", Server: "github.com", Project: "acme/shop",
		Pipeline: "99", Name: "ci / test (1.25, linux)", Ref: "main", URL: "https://github.com/acme/shop/actions/runs/99",
		Runner: cimeter.Runner{Name: "linux-abcde-runner-x7k2p"},
	}
	group := ""
	for _, of := range []struct{ file, container string }{{"arc-hooks-runner", "runner"}, {"arc-hooks-job", "job"}, {"arc-hooks-job", "postgres"}} {
		id, ok := identify(citest.Container(t, "testdata/pods/"+of.file+".pod.json", of.container, nil))
		if !ok || id.Later || id.Build != want || group != "" && id.Group != group {
			t.Errorf("%s of %s: %v %+v\nwant %+v", of.container, of.file, ok, id, want)
		}
		group = id.Group
	}
	nobody := github.Pods(func(string, string) (github.Ephemeral, bool) { return github.Ephemeral{}, false })
	if id, ok := nobody(c); !ok || id.Later || id.Build.Key != "github/local/arc-runners/linux-abcde-runner-x7k2p" {
		t.Errorf("with nobody to ask: %v %+v", ok, id)
	}
}

func TestJobOf(t *testing.T) {
	for name, want := range map[string]string{
		"test": "test", "test (1.25, linux)": "test", "call / test": "test", "a / b / test (x)": "test", "Unit tests": "Unit tests",
		"(x)": "(x)", "": "", " / ": " / ", "test (": "test (", "a / b (c / d)": "d)",
	} {
		if got := github.JobOf(name); got != want {
			t.Errorf("JobOf(%q) = %q, want %q", name, got, want)
		}
	}
}

func FuzzJobOf(f *testing.F) {
	f.Add("call / test (1, 2)")
	f.Fuzz(func(t *testing.T, name string) {
		job := github.JobOf(name)
		if !strings.Contains(name, job) || name != "" && job == "" {
			t.Errorf("JobOf(%q) = %q", name, job)
		}
	})
}

func TestOwnProgram(t *testing.T) {
	for line, want := range map[string]bool{
		"/home/runner/bin/Runner.Listener\x00run\x00":                     true,
		"/bin/bash\x00/home/runner/run.sh\x00":                            true,
		"/bin/bash\x00/home/runner/run-helper.sh\x00":                     true,
		"/home/runner/bin/Runner.Worker\x00spawnclient\x00120\x00123\x00": false,
		"/bin/bash\x00-e\x00/home/runner/_work/_temp/0190c0de.sh\x00":     false,
		"node\x00index.js\x00":                                            false,
		"":                                                                true,
	} {
		if got := github.OwnProgram([]byte(line)); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}
