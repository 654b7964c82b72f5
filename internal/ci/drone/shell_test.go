package drone_test

import (
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/drone"
)

func TestOfProcess(t *testing.T) {
	env := map[string]string{
		"DRONE_REPO": "acme/app", "DRONE_BUILD_NUMBER": "12", "DRONE_STAGE_NUMBER": "1", "DRONE_STAGE_NAME": "default", "DRONE_SYSTEM_HOST": "Drone.example.com",
		"DRONE_BRANCH": "main", "DRONE_TAG": "v1", "DRONE_STAGE_MACHINE": "ci-7",
	}
	want := cimeter.Identity{
		Build: cimeter.Build{
			Key: "drone/drone.example.com/acme/app/12/1", CI: "drone", Server: "drone.example.com", Project: "acme/app", Number: "12", Name: "default",
			Ref: "v1", Runner: cimeter.Runner{Name: "ci-7"},
		},
		Role: cimeter.RoleBuild,
	}
	if id, ok := drone.OfProcess(env); !ok || id != want {
		t.Errorf("%+v, %v, want %+v", id, ok, want)
	}
	env["DRONE_STEP_NAME"] = "clone"
	if id, _ := drone.OfProcess(env); id.Role != cimeter.RoleHelper || id.Stage != "clone" {
		t.Errorf("the clone step: %+v", id)
	}
	delete(env, "DRONE_STAGE_NUMBER")
	if id, ok := drone.OfProcess(env); ok {
		t.Errorf("taken for %+v without a stage", id)
	}
}

func TestShellStep(t *testing.T) {
	for args, want := range map[string]string{
		"/bin/sh -e /tmp/drone-a1b2c3/opt/unit-tests.sh": "unit-tests",
		"/bin/sh -e /tmp/drone-a1b2c3/opt/a/b.sh":        "",
		"/bin/sh -e /tmp/drone-a1b2c3/home/x.sh":         "",
		"/bin/sh -e /tmp/drone-/opt/x.sh":                "",
		"":                                               "",
	} {
		if got, ok := drone.ShellStep([]byte(strings.ReplaceAll(args, " ", "\x00"))); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v, want %q", args, got, ok, want)
		}
	}
}

func FuzzShellStep(f *testing.F) {
	f.Add([]byte("sh\x00/tmp/drone-a/opt/x.sh\x00"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if step, ok := drone.ShellStep(line); ok != (step != "") || len(step) > 100 || strings.ContainsAny(step, "/\x00") {
			t.Errorf("%q, %v", step, ok)
		}
	})
}
