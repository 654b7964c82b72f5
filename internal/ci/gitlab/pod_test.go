package gitlab_test

import (
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
)

// What is told of each container of a pod is in the golden files beside the pods.
func TestIdentify_pods(t *testing.T) {
	citest.GoldenPods(t, "testdata/pods", gitlab.Variables(), gitlab.Identify)
}

func TestIdentify_podsForged(t *testing.T) {
	citest.Forged(t, "testdata/pods/v19.pod.json", "build", gitlab.Variables(), gitlab.Identify, []citest.Forgery{
		{Name: "another job's id", Annotations: map[string]string{"job.runner.gitlab.com/id": "1"}},
		{Name: "another job's address", Annotations: map[string]string{"job.runner.gitlab.com/url": "https://gitlab.example.com/a/b/-/jobs/1"}},
		{Name: "another job's id and address", Annotations: map[string]string{"job.runner.gitlab.com/id": "1", "job.runner.gitlab.com/url": "https://gitlab.example.com/a/b/-/jobs/1"}},
		{Name: "another project's id", Annotations: map[string]string{"project.runner.gitlab.com/id": "1"}},
		{Name: "another project's label", Labels: map[string]string{"project.runner.gitlab.com/id": "1"}, Annotations: map[string]string{"project.runner.gitlab.com/id": "1"}},
		{Name: "another runner", Labels: map[string]string{"manager.runner.gitlab.com/id-short": "other"}},
		{Name: "another pod", Pod: "runner-3lj4ihzt1-project-1-concurrent-0-shpvdimu"},
		{Name: "a pod of somebody's", Pod: "web"},
		{Name: "another job's variable", Env: map[string]string{"CI_JOB_ID": "1"}},
	})
}

func TestIdentify_podsOfOthers(t *testing.T) {
	for name, change := range map[string]func(*cimeter.Pod){
		"no UID":                   func(p *cimeter.Pod) { p.UID = "" },
		"a pause pod":              func(p *cimeter.Pod) { p.Labels["runner.gitlab.com/pause-pod"] = "true" },
		"a job's id that is none":  func(p *cimeter.Pod) { p.Annotations["job.runner.gitlab.com/id"] = "x" },
		"a label that others have": func(p *cimeter.Pod) { p.Labels, p.Annotations = map[string]string{"pod": p.Name[:4]}, nil },
	} {
		c := citest.Container(t, "testdata/pods/v19.pod.json", "build", nil)
		change(c.Pod)
		if id, ok := gitlab.Identify(c); ok {
			t.Errorf("%s: taken for %s", name, id.Build.Key)
		}
	}
}

func TestStageInPod(t *testing.T) {
	build := cimeter.Identity{Build: cimeter.Build{CI: gitlab.CI, Number: "345"}, Role: cimeter.RoleBuild}
	helper := build
	helper.Role = cimeter.RoleHelper
	old := helper
	old.Build.Number = ""
	for _, tt := range []struct {
		name  string
		id    *cimeter.Identity
		args  []string
		stage string
		own   bool
	}{
		{"the script", &build, []string{"/bin/bash", "/scripts-12-345/step_script"}, "step_script", true},
		{"below a folder", &build, []string{"sh", "/builds/x/scripts-12-345/after_script"}, "after_script", true},
		{"a job with run", &build, []string{"sh", "/scripts-12-345/step_run"}, "step_run", true},
		{"sources", &helper, []string{"/usr/bin/gitlab-runner-build", "/scripts-12-345/get_sources"}, "get_sources", true},
		{"sources, in the wrong container", &build, []string{"sh", "/scripts-12-345/get_sources"}, "", true},
		{"another job's script", &build, []string{"sh", "/scripts-12-346/step_script"}, "", true},
		{"a script whose job is not known", &old, []string{"sh", "/scripts-12-346/restore_cache"}, "restore_cache", true},
		{"a name of the author's", &build, []string{"sh", "/scripts-12-345/step_x'y"}, "", true},
		{"git", &helper, []string{"git", "fetch", "origin"}, "get_sources", true},
		{"git in the build", &build, []string{"git", "fetch", "origin"}, "", false},
		{"the cache", &helper, []string{"gitlab-runner-helper", "cache-archiver", "--file", "x"}, "archive_cache", true},
		{"the log's reader", &helper, []string{"gitlab-runner-helper", "read-logs", "--path", "/logs-12-345/output.log"}, "", true},
		{"the waiting shell", &build, []string{"/bin/bash"}, "", true},
		{"a compiler", &build, []string{"go", "build", "./..."}, "", false},
		{"nothing: a zombie", &build, nil, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			line := strings.Join(tt.args, "\x00") + "\x00"
			if stage, own := gitlab.StageInPod(tt.id, []byte(line)); stage != tt.stage || own != tt.own {
				t.Errorf("%q of the runner's own %v, want %q, %v", stage, own, tt.stage, tt.own)
			}
		})
	}
}

func FuzzStageInPod(f *testing.F) {
	f.Add([]byte("sh\x00/scripts-1-2/step_script\x00"), "2", true)
	f.Add([]byte("/scripts--/\x00/scripts-1-/x"), "", false)
	f.Fuzz(func(t *testing.T, line []byte, job string, build bool) {
		id := cimeter.Identity{Build: cimeter.Build{CI: gitlab.CI, Number: job}, Role: cimeter.RoleHelper}
		if build {
			id.Role = cimeter.RoleBuild
		}
		stage, own := gitlab.StageInPod(&id, line)
		if stage != "" && (!own || len(stage) > 40 || strings.Trim(stage, "abcdefghijklmnopqrstuvwxyz_") != "") {
			t.Errorf("stage %q, own %v", stage, own)
		}
	})
}
