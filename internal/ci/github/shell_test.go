package github_test

import (
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/github"
)

func stepEnv() map[string]string {
	return map[string]string{
		"GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "acme/app", "GITHUB_RUN_ID": "77",
		"GITHUB_RUN_ATTEMPT": "2", "GITHUB_RUN_NUMBER": "5", "GITHUB_JOB": "unit", "GITHUB_ACTION": "__run_2", "RUNNER_NAME": "host-1",
		"GITHUB_REF_NAME": "main", "GITHUB_SHA": "7e4d", "GITHUB_EVENT_NAME": "push",
	}
}

func TestOfProcess(t *testing.T) {
	want := cimeter.Identity{
		Build: cimeter.Build{
			Key: "github/github.com/acme/app/77/2/host-1/unit", CI: "github", Server: "github.com", Project: "acme/app", Number: "5", Name: "unit",
			Attempt: 2, Pipeline: "77", Ref: "main", SHA: "7e4d", Event: "push", URL: "https://github.com/acme/app/actions/runs/77",
			Runner: cimeter.Runner{Name: "host-1"},
		},
		Role: cimeter.RoleBuild, Stage: "__run_2",
	}
	if id, ok := github.OfProcess(stepEnv()); !ok || id != want {
		t.Errorf("%+v, %v, want %+v", id, ok, want)
	}
	hook := stepEnv()
	delete(hook, "GITHUB_ACTION")
	if id, ok := github.OfProcess(hook); !ok || id.Stage != "hook" {
		t.Errorf("a hook: %+v, %v", id, ok)
	}
	for name, value := range map[string]string{"GITHUB_ACTIONS": "", "GITEA_ACTIONS": "true", "FORGEJO_ACTIONS": "true", "GITHUB_RUN_ID": "x", "GITHUB_REPOSITORY": ""} {
		env := stepEnv()
		env[name] = value
		if id, ok := github.OfProcess(env); ok {
			t.Errorf("%s=%q: taken for %+v", name, value, id)
		}
	}
}
