package gitea_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/gitea"
)

var hash = strings.Repeat("0f", 32)

func TestParseName(t *testing.T) {
	tests := map[string]gitea.Name{
		"GITEA-ACTIONS-TASK-12-WORKFLOW-ci-JOB-test-" + hash:                         {CI: "gitea", Task: "12", Job: "test", Hash: true},
		"GITEA-ACTIONS-TASK-12-WORKFLOW-ci-JOB-test-CALLED-BY-x-" + hash:             {CI: "gitea", Task: "12", Job: "test", Hash: true},
		"GITEA-ACTIONS-TASK-12_WORKFLOW-ci_JOB-unit-tests":                           {CI: "gitea", Task: "12", Job: "unit-tests"},
		"GITEA-ACTIONS-TASK-12_WORKFLOW-ci_JOB-test_STEP-lint":                       {CI: "gitea", Task: "12", Job: "test", Step: "lint"},
		"GITEA-ACTIONS-TASK-1-WORKFLOW-a-workflow-of-a-long-name-JOB-unit-" + hash:   {CI: "gitea", Task: "1", Hash: true}, // cut at 63
		"GITEA-ACTIONS-TASK-12-" + hash:                                              {CI: "gitea", Task: "12", Hash: true},
		"FORGEJO-ACTIONS-TASK-7_WORKFLOW-" + hash + "_JOB-build-it":                  {CI: "forgejo", Task: "7", Job: "build-it"},
		"FORGEJO-ACTIONS-TASK-7-WORKFLOW-000f0f0f0f0f0f0f0f0f0f0f0f0f0f0f-" + hash:   {CI: "forgejo", Task: "7", Hash: true},
		"FORGEJO-ACTIONS-TASK-7_WORKFLOW-" + hash + "_JOB-deadbeef-" + hash + "-end": {CI: "forgejo", Task: "7", Job: "deadbeef-" + hash + "-end"},
	}
	for in, want := range tests {
		if got, ok := gitea.ParseName(in); !ok || got != want {
			t.Errorf("ParseName(%q) = %+v, %v, want %+v", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "GITEA-ACTIONS-TASK-", "GITEA-ACTIONS-TASK-12", "GITEA-ACTIONS-TASK-x-", "GITEA-ACTIONS-TASK--1-", "gitea-actions-task-12-x",
		"xGITEA-ACTIONS-TASK-12-x", "FORGEJO-ACTIONS-TASK-_WORKFLOW", "GITEA-ACTIONS-TASK-99999999999999999999-x"} {
		if got, ok := gitea.ParseName(in); ok {
			t.Errorf("ParseName(%q) = %+v, want none", in, got)
		}
	}
}

func TestIdentify(t *testing.T) {
	const forgejo = "FORGEJO-ACTIONS-TASK-7_WORKFLOW-"
	job := "GITEA-ACTIONS-TASK-12-WORKFLOW-ci-JOB-test-" + hash
	network := job + "-test-network"
	inJob := map[string]string{"RUNNER_TOOL_CACHE": "/opt/hostedtoolcache"}
	build := cimeter.Build{Key: "gitea/local/12", CI: "gitea", Number: "12", Name: "test"}
	tests := []struct {
		name string
		in   cimeter.Container
		want cimeter.Identity
	}{
		{"job container", cimeter.Container{Name: job, Networks: []string{network}, Env: inJob},
			cimeter.Identity{Build: build, Role: cimeter.RoleBuild, Stage: "job", Group: network}},
		{"not inspected", cimeter.Container{Name: job}, cimeter.Identity{Build: build, Role: cimeter.RoleBuild, Stage: "job"}},
		{"service", cimeter.Container{Name: job, Image: "docker.io/library/redis:7", NetworkMode: network, Env: map[string]string{}},
			cimeter.Identity{Build: build, Role: cimeter.RoleService, Stage: "service:redis", Alongside: true, Group: network}},
		{"docker action, which tells more", cimeter.Container{Name: job, NetworkMode: "container:x", Env: map[string]string{
			"GITHUB_ACTION": "lint", "GITHUB_SERVER_URL": "https://git.example.com", "GITHUB_REPOSITORY": "org/app", "GITHUB_JOB": "test",
			"GITHUB_RUN_ID": "99", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_REF_NAME": "main", "GITHUB_SHA": "7e4d", "GITHUB_EVENT_NAME": "push", "JOB_CONTAINER_NAME": job,
		}}, cimeter.Identity{
			Build: cimeter.Build{Key: "gitea/local/12", CI: "gitea", Server: "git.example.com", Project: "org/app", Number: "12", Name: "test", Attempt: 2,
				Pipeline: "99", Ref: "main", SHA: "7e4d", Event: "push"},
			Role: cimeter.RoleBuild, Stage: "lint",
		}},
		{"step of an older runner", cimeter.Container{Name: "GITEA-ACTIONS-TASK-12_WORKFLOW-ci_JOB-test_STEP-lint", Env: inJob},
			cimeter.Identity{Build: build, Role: cimeter.RoleBuild, Stage: "lint"}},
		{"another job's container name", cimeter.Container{Name: job, Env: map[string]string{"JOB_CONTAINER_NAME": strings.Replace(job, "12", "13", 1)}},
			cimeter.Identity{Build: build, Role: cimeter.RoleBuild, Stage: "job", Doubt: `task: name says "12", variable JOB_CONTAINER_NAME says "13"`}},
		{"Forgejo's job container", cimeter.Container{Name: forgejo + hash + "_JOB-build", Networks: []string{"WORKFLOW-abc"}, Env: map[string]string{}},
			cimeter.Identity{Build: cimeter.Build{Key: "forgejo/local/7", CI: "forgejo", Number: "7", Name: "build"}, Role: cimeter.RoleBuild, Stage: "job", Group: "WORKFLOW-abc"}},
		{"Forgejo's service", cimeter.Container{Name: strings.ReplaceAll(forgejo, "_", "-") + "0f-" + hash, Image: "postgres", Env: map[string]string{}},
			cimeter.Identity{Build: cimeter.Build{Key: "forgejo/local/7", CI: "forgejo", Number: "7"}, Role: cimeter.RoleService, Stage: "service:postgres", Alongside: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := gitea.Identify(&tt.in); !ok || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, ok, tt.want)
			}
		})
	}
	if id, ok := gitea.Identify(&cimeter.Container{Name: "gitea", Env: map[string]string{"GITEA_ACTIONS": "true"}}); ok {
		t.Errorf("a server of Gitea is taken for %+v", id)
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("GITEA-ACTIONS-TASK-12-WORKFLOW-ci-JOB-test-" + hash)
	f.Add("FORGEJO-ACTIONS-TASK-7_WORKFLOW-x_JOB-y_STEP-_CALLED-BY-")
	f.Add("GITEA-ACTIONS-TASK-1-" + hash)
	f.Fuzz(func(t *testing.T, s string) {
		n, ok := gitea.ParseName(s)
		if ok && (n.Task == "" || n.CI == "" || !strings.Contains(s, n.Job) || !strings.Contains(s, n.Step)) {
			t.Errorf("%q gives %+v", s, n)
		}
	})
}
