package buildkite_test

import (
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/buildkite"
	"github.com/cimeter/cimeter/internal/ci/citest"
)

const job = "0190c0de-1111-4222-8333-444455556666"

// What is told of each container of a pod is in the golden files beside the pods.
func TestIdentify_pods(t *testing.T) {
	citest.GoldenPods(t, "testdata/pods", buildkite.Variables(), buildkite.Identify)
}

func TestIdentify_podsForged(t *testing.T) {
	const other = "0190c0de-1111-4222-8333-000000000000"
	citest.Forged(t, "testdata/pods/stack.pod.json", "container-0", buildkite.Variables(), buildkite.Identify, []citest.Forgery{
		{Name: "another job", Labels: map[string]string{"buildkite.com/job-uuid": other}},
		{Name: "another build", Annotations: map[string]string{"buildkite.com/build-url": "https://buildkite.com/acme/shop-web/builds/16"}},
		{Name: "another pipeline", Annotations: map[string]string{
			"buildkite.com/build-url": "https://buildkite.com/acme/other/builds/17", "buildkite.com/job-url": "https://buildkite.com/acme/other/builds/17#" + job}},
		{Name: "another job's variable", Env: map[string]string{"BUILDKITE_JOB_ID": other}},
	})
}

func TestOfProcess(t *testing.T) {
	env := map[string]string{"BUILDKITE": "true", "BUILDKITE_JOB_ID": job, "BUILDKITE_BUILD_URL": "https://buildkite.com/acme/shop-web/builds/17",
		"BUILDKITE_BUILD_NUMBER": "17", "BUILDKITE_ORGANIZATION_SLUG": "acme", "BUILDKITE_PIPELINE_SLUG": "shop-web", "BUILDKITE_LABEL": "unit",
		"BUILDKITE_BRANCH": "main", "BUILDKITE_COMMIT": "7e4d", "BUILDKITE_RETRY_COUNT": "1", "BUILDKITE_AGENT_ID": "a1", "BUILDKITE_AGENT_NAME": "ci-1",
		"BUILDKITE_HOOK_PHASE": "pre-command"}
	want := cimeter.Identity{
		Build: cimeter.Build{Key: "buildkite/buildkite.com/acme/shop-web/17/" + job, CI: "buildkite", Server: "buildkite.com", Project: "acme/shop-web", Number: "17",
			Name: "unit", Attempt: 2, Ref: "main", SHA: "7e4d", URL: "https://buildkite.com/acme/shop-web/builds/17", Runner: cimeter.Runner{ID: "a1", Name: "ci-1"}},
		Role: cimeter.RoleBuild, Stage: "pre-command",
	}
	if id, ok := buildkite.OfProcess(env); !ok || id != want {
		t.Errorf("%v %+v\nwant %+v", ok, id, want)
	}
	delete(env, "BUILDKITE_BUILD_URL")
	if id, ok := buildkite.OfProcess(env); !ok || id.Build.Key != want.Build.Key {
		t.Errorf("without the address: %v %+v", ok, id)
	}
	env["BUILDKITE_JOB_ID"] = "x"
	if id, ok := buildkite.OfProcess(env); ok {
		t.Errorf("with a job's id that is none: %+v", id)
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("https://buildkite.com/acme/shop-web/builds/17#" + job)
	f.Add("http://x//a/builds/1")
	f.Fuzz(func(t *testing.T, address string) {
		p, ok := buildkite.ParseURL(address)
		if ok && (p.Server == "" || len(p.Project) < 3 || !ci.IsDecimal(p.Number) || p.Job != "" && !ci.IsUUID(p.Job)) {
			t.Errorf("ParseURL(%q) = %+v", address, p)
		}
	})
}

func TestOwnProgram(t *testing.T) {
	for line, want := range map[string]bool{
		"/workspace/buildkite-agent\x00kubernetes-bootstrap\x00": true,
		"/workspace/tini-static\x00--\x00":                       true,
		"/bin/sh\x00-ec\x00make\x00":                             false,
	} {
		if got := buildkite.OwnProgram([]byte(line)); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}
