package jenkins_test

import (
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/jenkins"
)

// What is told of each container of a pod is in the golden files beside the pods.
func TestIdentify_pods(t *testing.T) {
	citest.GoldenPods(t, "testdata/pods", nil, jenkins.Identify)
}

func TestIdentify_podsForged(t *testing.T) {
	citest.Forged(t, "testdata/pods/pipeline.pod.json", "maven", nil, jenkins.Identify, []citest.Forgery{
		{Name: "another build", Annotations: map[string]string{"buildUrl": "https://ci.example.com/jenkins/job/team/job/my%20app/16/"}},
		{Name: "another job", Annotations: map[string]string{"buildUrl": "https://ci.example.com/jenkins/job/team/job/other/17/"}},
		{Name: "a run that is none", Annotations: map[string]string{"runUrl": "x"}},
	})
}

func TestOfProcess(t *testing.T) {
	env := map[string]string{"JOB_NAME": "team/my app", "BUILD_NUMBER": "17", "BUILD_URL": "https://CI.example.com/jenkins/job/team/job/my%20app/17/",
		"NODE_NAME": "linux-1", "STAGE_NAME": "Test", "GIT_BRANCH": "origin/main", "GIT_COMMIT": "7e4d"}
	want := cimeter.Identity{
		Build: cimeter.Build{Key: "jenkins/ci.example.com/team/my%20app/17", CI: "jenkins", Server: "ci.example.com", Project: "team/my app", Number: "17",
			Name: "team/my app", Ref: "main", SHA: "7e4d", URL: "https://CI.example.com/jenkins/job/team/job/my%20app/17/", Runner: cimeter.Runner{Name: "linux-1"}},
		Role: cimeter.RoleBuild, Stage: "Test",
	}
	if id, ok := jenkins.OfProcess(env); !ok || id != want {
		t.Errorf("%v %+v\nwant %+v", ok, id, want)
	}
	env["JOB_NAME"] = "team/other"
	if id, ok := jenkins.OfProcess(env); !ok || id.Doubt == "" {
		t.Errorf("%v %+v: want doubt", ok, id)
	}
	delete(env, "BUILD_NUMBER")
	if id, ok := jenkins.OfProcess(env); ok {
		t.Errorf("without a number: %+v", id)
	}
}

func TestParseURL(t *testing.T) {
	for address, want := range map[string]string{
		"https://ci.example.com/job/app/17/":                  "app 17",
		"https://ci.example.com/jenkins/job/a/job/b/17":       "a/b 17",
		"https://ci.example.com/job/job/job/job/3/":           "job/job 3",
		"/job/feature%2Fx/2/":                                 "",
		"https://ci.example.com/job/app/lastBuild/":           "",
		"https://ci.example.com/app/17/":                      "",
		"https://ci.example.com/job/../17/":                   "",
		"":                                                    "",
		"https://ci.example.com/":                             "",
		"job/team/job/my%20app/17/":                           "team/my app 17",
		"https://ci.example.com/blue/pipelines/job/app/17/x/": "",
	} {
		job, number, ok := jenkins.ParseURL(address)
		if got := strings.TrimSpace(job + " " + number); ok != (want != "") || ok && got != want {
			t.Errorf("ParseURL(%q) = %q, %v, want %q", address, got, ok, want)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("https://ci.example.com/job/a/job/b%20c/17/")
	f.Add("job//1")
	f.Fuzz(func(t *testing.T, address string) {
		job, number, ok := jenkins.ParseURL(address)
		if ok && (job == "" || number == "" || strings.HasPrefix(job, "/") || strings.Contains(job, "//")) {
			t.Errorf("ParseURL(%q) = %q, %q", address, job, number)
		}
	})
}
