package woodpecker_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/woodpecker"
)

const uuid = "01M8NMM1NTF6EZH63G91EGYYQ8"

// container returns a step as the Docker backend makes it, changed by pairs of
// what and value: $variable, wp_uuid, wp_step, name, labels none, env none, network.
func container(changes ...string) *cimeter.Container {
	c := &cimeter.Container{
		ID: strings.Repeat("a", 64), Name: "wp_" + uuid, Image: "golang:1.26", NetworkMode: "default",
		Networks: []string{"bridge", "wp_01m8nmm1ntf6ezh63g8ye3axd3_0_default"},
		Labels:   map[string]string{"wp_uuid": uuid, "wp_step": "compile"},
		Env: map[string]string{
			"CI_SYSTEM_NAME": "woodpecker", "CI_SYSTEM_HOST": "ci.example.com", "CI_SYSTEM_URL": "https://CI.example.com:8443", "CI_REPO": "org/app",
			"CI_PIPELINE_NUMBER": "7", "CI_PIPELINE_EVENT": "push", "CI_PIPELINE_URL": "https://ci.example.com:8443/repos/1/pipeline/7",
			"CI_WORKFLOW_NAME": "test", "CI_WORKFLOW_NUMBER": "1", "CI_STEP_NAME": "compile", "CI_STEP_TYPE": "commands",
			"CI_COMMIT_BRANCH": "main", "CI_COMMIT_SHA": "7e4d",
		},
	}
	for i := 0; i < len(changes); i += 2 {
		what, value := changes[i], changes[i+1]
		switch {
		case what == "name":
			c.Name = value
		case what == "labels":
			c.Labels = nil
		case what == "env":
			c.Env = nil
		case what == "network":
			c.NetworkMode, c.Networks = value, nil
		case strings.HasPrefix(what, "$"):
			c.Env[what[1:]] = value
		default:
			c.Labels[what] = value
		}
	}
	return c
}

func TestIdentify(t *testing.T) {
	const network = "wp_01m8nmm1ntf6ezh63g8ye3axd3_0_default"
	with := func(change func(*cimeter.Identity)) cimeter.Identity {
		id := cimeter.Identity{
			Build: cimeter.Build{
				Key: "woodpecker/ci.example.com:8443/org/app/7/test", CI: "woodpecker", Server: "ci.example.com:8443", Project: "org/app", Number: "7",
				Name: "test", Ref: "main", SHA: "7e4d", Event: "push", URL: "https://ci.example.com:8443/repos/1/pipeline/7",
			},
			Role: cimeter.RoleBuild, Stage: "compile", Group: network,
		}
		change(&id)
		return id
	}
	tests := []struct {
		name string
		in   *cimeter.Container
		want cimeter.Identity
	}{
		{"step", container(), with(func(*cimeter.Identity) {})},
		{"plugin", container("$CI_STEP_TYPE", "plugin"), with(func(*cimeter.Identity) {})},
		{"clone", container("wp_step", "clone", "$CI_STEP_NAME", "clone", "$CI_STEP_TYPE", "clone"), with(func(id *cimeter.Identity) {
			id.Role, id.Stage = cimeter.RoleHelper, "clone"
		})},
		{"service", container("wp_step", "db", "$CI_STEP_NAME", "db", "$CI_STEP_TYPE", "service"), with(func(id *cimeter.Identity) {
			id.Role, id.Stage, id.Alongside = cimeter.RoleService, "service:db", true
		})},
		{"cache", container("$CI_STEP_TYPE", "cache"), with(func(id *cimeter.Identity) { id.Role = cimeter.RoleCache })},
		{"tag", container("$CI_COMMIT_TAG", "v1"), with(func(id *cimeter.Identity) { id.Build.Ref = "v1" })},
		{"no labels, before 2024", container("labels", "none"), with(func(*cimeter.Identity) {})},
		{"another leg of a matrix", container("$CI_WORKFLOW_NUMBER", "2"), with(func(id *cimeter.Identity) { id.Build.Key += "/2" })},
		{"host without URL", container("$CI_SYSTEM_URL", ""), with(func(id *cimeter.Identity) {
			id.Build.Key, id.Build.Server = "woodpecker/ci.example.com/org/app/7/test", "ci.example.com"
		})},
		{"no server", container("$CI_SYSTEM_URL", "", "$CI_SYSTEM_HOST", ""), with(func(id *cimeter.Identity) {
			id.Build.Key, id.Build.Server = "woodpecker/local/org/app/7/test", ""
		})},
		{"no repository: the network stands for it", container("$CI_REPO", ""), with(func(id *cimeter.Identity) {
			id.Build = cimeter.Build{Key: "woodpecker/local/" + network, CI: "woodpecker", Name: "test", Ref: "main", SHA: "7e4d", Event: "push"}
		})},
		{"not inspected: it stands for itself", container("env", "none", "network", ""), cimeter.Identity{
			Build: cimeter.Build{Key: "woodpecker/local/wp_" + uuid, CI: "woodpecker"}, Role: cimeter.RoleBuild, Stage: "compile",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := woodpecker.Identify(tt.in); !ok || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, ok, tt.want)
			}
		})
	}
}

func TestIdentifyOthers(t *testing.T) {
	for name, c := range map[string]*cimeter.Container{
		"a name alone":      {Name: "wp_" + uuid},
		"a WordPress":       {Name: "wp_1", Env: map[string]string{"WORDPRESS_DB_HOST": "db"}},
		"variables alone":   container("labels", "none", "name", "web-1"),
		"GitLab's variable": container("labels", "none", "$CI_SYSTEM_NAME", "gitlab"),
	} {
		if id, ok := woodpecker.Identify(c); ok {
			t.Errorf("%s: taken for %+v", name, id)
		}
	}
}

func TestIdentifyDoubt(t *testing.T) {
	for name, tt := range map[string]struct {
		in   *cimeter.Container
		want string
	}{
		"labels copied to a name of its own": {container("name", "web-1"), `the name is "web-1"`},
		"another step's uuid":                {container("wp_uuid", "01M8NMM1NTF6EZH63G92QP4W28"), "label wp_uuid says"},
		"no uuid":                            {container("wp_uuid", "", "name", "wp_"), "is empty"},
		"step":                               {container("wp_step", "deploy"), `step: label wp_step says "deploy", variable CI_STEP_NAME says "compile"`},
		"variables of another system":        {container("$CI_SYSTEM_NAME", ""), "CI_SYSTEM_NAME is not woodpecker"},
	} {
		id, ok := woodpecker.Identify(tt.in)
		if !ok || !strings.Contains(id.Doubt, tt.want) {
			t.Errorf("%s: doubt %q, %v, want one with %q", name, id.Doubt, ok, tt.want)
		}
		if foreign := name == "variables of another system"; foreign != (id.Build.Project == "") {
			t.Errorf("%s: project %q", name, id.Build.Project)
		}
	}
}

func TestVariablesHoldNoSecret(t *testing.T) {
	env := citest.Allow([]string{"CI_SCRIPT=x", "CI_NETRC_PASSWORD=x", "CI_NETRC_USERNAME=x", "PLUGIN_TOKEN=x", "CI_REPO=org/app"}, woodpecker.Variables())
	if len(env) != 1 {
		t.Errorf("allowed %v, want CI_REPO alone", env)
	}
}

func TestIsNetwork(t *testing.T) {
	for in, want := range map[string]bool{
		"wp_01m8nmm1ntf6ezh63g8ye3axd3_0_default": true, "wp_x_12_default": true,
		"wp_default": false, "wp__0_default": false, "wp_x_y_default": false, "wp_x_0": false, "bridge": false, "": false, "wordpress_default": false,
	} {
		if got := woodpecker.IsNetwork(in); got != want {
			t.Errorf("IsNetwork(%q) = %v", in, got)
		}
	}
}

func FuzzIdentify(f *testing.F) {
	f.Add("wp_"+uuid, uuid, "compile", "org/app", "7", "test", "wp_x_0_default")
	f.Add("wp_", "", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, name, id, step, repo, number, workflow, network string) {
		c := container("name", name, "wp_uuid", id, "wp_step", step, "$CI_REPO", repo, "$CI_PIPELINE_NUMBER", number, "$CI_WORKFLOW_NAME", workflow, "network", network)
		got, ok := woodpecker.Identify(c)
		if !ok || !strings.HasPrefix(got.Build.Key, "woodpecker/") {
			t.Errorf("key %q, %v", got.Build.Key, ok)
		}
		if got.Doubt == "" && name != "wp_"+id {
			t.Errorf("%q is not in doubt", name)
		}
	})
}

func TestIdentify_defaultBranch(t *testing.T) {
	if id, ok := woodpecker.Identify(container("$CI_REPO_DEFAULT_BRANCH", "trunk")); !ok || id.Build.DefaultBranch != "trunk" {
		t.Errorf("%+v, %v", id.Build, ok)
	}
}
