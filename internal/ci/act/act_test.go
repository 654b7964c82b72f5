package act_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/act"
)

var (
	hash  = strings.Repeat("0f", 32)
	name  = "act-CI-test-" + hash
	id1   = strings.Repeat("1", 64)
	id2   = strings.Repeat("2", 64)
	inJob = map[string]string{"RUNNER_TOOL_CACHE": "/opt/hostedtoolcache"}
)

func TestIdentify(t *testing.T) {
	network := "act-CI-test-" + hash + "-test-network"
	tests := []struct {
		name string
		in   cimeter.Container
		want cimeter.Identity
	}{
		{"job container", cimeter.Container{ID: id1, Name: name, NetworkMode: "host", Env: inJob}, cimeter.Identity{
			Build: cimeter.Build{Key: "act/local/" + id1, CI: "act", Name: "CI-test"}, Role: cimeter.RoleBuild, Stage: "job",
		}},
		{"not inspected", cimeter.Container{ID: id1, Name: name}, cimeter.Identity{
			Build: cimeter.Build{Key: "act/local/" + id1, CI: "act", Name: "CI-test"}, Role: cimeter.RoleBuild, Stage: "job",
		}},
		{"the same job again", cimeter.Container{ID: id2, Name: name, Env: inJob}, cimeter.Identity{
			Build: cimeter.Build{Key: "act/local/" + id2, CI: "act", Name: "CI-test"}, Role: cimeter.RoleBuild, Stage: "job",
		}},
		{"docker action in the job's network", cimeter.Container{ID: id2, Name: name, NetworkMode: "container:" + id1, Env: map[string]string{
			"RUNNER_TOOL_CACHE": "x", "GITHUB_ACTION": "lint", "GITHUB_REPOSITORY": "org/app", "GITHUB_JOB": "test", "GITHUB_RUN_ID": "1",
		}}, cimeter.Identity{
			Build: cimeter.Build{Key: "act/local/" + id1, CI: "act", Project: "org/app", Name: "test", Pipeline: "1"}, Role: cimeter.RoleBuild, Stage: "lint",
		}},
		{"service", cimeter.Container{ID: id2, Name: name, Image: "postgres:15", Networks: []string{network}, Env: map[string]string{}}, cimeter.Identity{
			Build: cimeter.Build{Key: "act/local/" + id2, CI: "act", Name: "CI-test"}, Role: cimeter.RoleService, Stage: "service:postgres", Alongside: true,
			Group: network,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := act.Identify(&tt.in); !ok || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, ok, tt.want)
			}
		})
	}
}

func TestParseName(t *testing.T) {
	for in, want := range map[string]string{
		name: "CI-test", "act-a-" + hash: "a",
		"act-" + hash: "", "act--" + hash: "", "act-a-" + hash[1:]: "", "act-a": "", "actor-a-" + hash: "", "act-a-" + strings.ToUpper(hash): "", "": "",
	} {
		if got, ok := act.ParseName(in); got != want || ok != (want != "") {
			t.Errorf("ParseName(%q) = %q, %v, want %q", in, got, ok, want)
		}
	}
}

func FuzzParseName(f *testing.F) {
	f.Add(name)
	f.Add("act--" + hash)
	f.Fuzz(func(t *testing.T, s string) {
		if job, ok := act.ParseName(s); ok && (job == "" || !strings.HasPrefix(s, "act-"+job+"-")) {
			t.Errorf("%q gives %q", s, job)
		}
	})
}
