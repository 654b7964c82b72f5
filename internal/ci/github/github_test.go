package github_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/github"
)

const (
	random  = "0123456789abcdef0123456789abcdef"
	network = "github_network_" + random
)

func container(change func(*cimeter.Container)) *cimeter.Container {
	c := &cimeter.Container{
		ID: strings.Repeat("a", 64), Name: "4a5b0123456789abcdef0123456789ab_node20_0a1b2c", Image: "docker.io/library/node:20",
		NetworkMode: network, Networks: []string{network}, Labels: map[string]string{"6a6825": "", "maintainer": "x"},
		Env: map[string]string{"GITHUB_ACTIONS": "true", "HOME": "/github/home"},
	}
	change(c)
	return c
}

func TestIdentify(t *testing.T) {
	key := "github/local/" + random
	action := map[string]string{
		"GITHUB_ACTIONS": "true", "HOME": "/github/home", "GITHUB_ACTION": "__org_lint", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "org/app",
		"GITHUB_RUN_ID": "99", "GITHUB_RUN_NUMBER": "4", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_JOB": "test", "GITHUB_REF_NAME": "main", "GITHUB_SHA": "7e4d",
		"GITHUB_EVENT_NAME": "push", "RUNNER_NAME": "ci-7",
	}
	told := cimeter.Build{Key: key, CI: "github", Server: "github.com", Project: "org/app", Number: "4", Name: "test", Attempt: 2, Pipeline: "99",
		Ref: "main", SHA: "7e4d", Event: "push", URL: "https://github.com/org/app/actions/runs/99", Runner: cimeter.Runner{Name: "ci-7"}}
	alone := told
	alone.Key = "github/github.com/org/app/99/2/ci-7/test"
	tests := []struct {
		name string
		in   *cimeter.Container
		want cimeter.Identity
	}{
		{"job container", container(func(*cimeter.Container) {}),
			cimeter.Identity{Build: cimeter.Build{Key: key, CI: "github"}, Role: cimeter.RoleBuild, Stage: "job", Group: network}},
		{"service", container(func(c *cimeter.Container) {
			c.Image, c.Env = "postgres:15", map[string]string{"GITHUB_ACTIONS": "true"}
		}), cimeter.Identity{Build: cimeter.Build{Key: key, CI: "github"}, Role: cimeter.RoleService, Stage: "service:postgres", Alongside: true, Group: network}},
		{"docker action in the job's network", container(func(c *cimeter.Container) { c.Name, c.Env = "lint_0a1b2c", action }),
			cimeter.Identity{Build: told, Role: cimeter.RoleBuild, Stage: "__org_lint", Group: network}},
		{"docker action of a job without container", container(func(c *cimeter.Container) {
			c.NetworkMode, c.Networks, c.Env = "default", []string{"bridge"}, action
		}), cimeter.Identity{Build: alone, Role: cimeter.RoleBuild, Stage: "__org_lint"}},
		{"not inspected: it stands for itself", container(func(c *cimeter.Container) { c.NetworkMode, c.Networks, c.Env = "", nil, nil }),
			cimeter.Identity{Build: cimeter.Build{Key: "github/local/" + strings.Repeat("a", 64), CI: "github"}, Role: cimeter.RoleBuild, Stage: "job"}},
		{"network joined by a container of the job's own", container(func(c *cimeter.Container) { c.Labels = nil }), cimeter.Identity{
			Build: cimeter.Build{Key: key, CI: "github"}, Role: cimeter.RoleBuild, Stage: "job", Group: network,
			Doubt: "label: the network is a GitHub runner's, the runner's label is missing",
		}},
		{"a name of its own", container(func(c *cimeter.Container) { c.Name = "web-1" }), cimeter.Identity{
			Build: cimeter.Build{Key: key, CI: "github"}, Role: cimeter.RoleBuild, Stage: "job", Group: network,
			Doubt: `name: label and network are a GitHub runner's, the name "web-1" is not`,
		}},
		{"no watermark", container(func(c *cimeter.Container) { c.Env = map[string]string{"HOME": "/github/home"} }), cimeter.Identity{
			Build: cimeter.Build{Key: key, CI: "github"}, Role: cimeter.RoleBuild, Stage: "job", Group: network,
			Doubt: "variables: label and name are a GitHub runner's, GITHUB_ACTIONS is not true",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := github.Identify(tt.in); !ok || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, ok, tt.want)
			}
		})
	}
}

func TestIdentifyOthers(t *testing.T) {
	for name, c := range map[string]*cimeter.Container{
		"nothing":                     {Name: "web_0a1b2c"},
		"a label with a value":        {Name: "web_0a1b2c", Labels: map[string]string{"6a6825": "x"}},
		"a label of another length":   {Name: "web_0a1b2c", Labels: map[string]string{"6a68250": ""}},
		"a label alone":               {Name: "web-1", Labels: map[string]string{"6a6825": ""}},
		"a variable alone":            {Name: "web-1", Env: map[string]string{"GITHUB_ACTIONS": "true"}},
		"a network of similar a name": {Name: "web_0a1b2c", NetworkMode: "github_network_1"},
	} {
		if id, ok := github.Identify(c); ok {
			t.Errorf("%s: taken for %+v", name, id)
		}
	}
}

func TestVariablesHoldNoSecret(t *testing.T) {
	env := citest.Allow([]string{"GITHUB_TOKEN=x", "ACTIONS_RUNTIME_TOKEN=x", "INPUT_PASSWORD=x", "GITHUB_JOB=test"}, github.Variables())
	if len(env) != 1 {
		t.Errorf("allowed %v, want GITHUB_JOB alone", env)
	}
}

func FuzzIdentify(f *testing.F) {
	f.Add("a_node20_0a1b2c", "6a6825", network, "org/app", "99")
	f.Add("_000000", "000000", "github_network_", "", "")
	f.Fuzz(func(t *testing.T, name, label, net, repo, run string) {
		id, ok := github.Identify(&cimeter.Container{ID: "id", Name: name, Labels: map[string]string{label: ""}, NetworkMode: net,
			Env: map[string]string{"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": repo, "GITHUB_RUN_ID": run, "GITHUB_SERVER_URL": "https://github.com"}})
		if ok && (!strings.HasPrefix(id.Build.Key, "github/") || id.Doubt == "" && !github.IsName(name)) {
			t.Errorf("%+v", id)
		}
	})
}
