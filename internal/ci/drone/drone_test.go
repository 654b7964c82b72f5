package drone_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/drone"
)

// container returns a step as the Docker runner makes it, changed by pairs of
// what and value: a label, $variable, name, network, or env none.
func container(changes ...string) *cimeter.Container {
	c := &cimeter.Container{
		ID: strings.Repeat("a", 64), Name: "drone-ZLpmnUx4slHVaLx2pvev", Image: "golang:1.26", NetworkMode: "default",
		Networks: []string{"drone-cVRv9KgEFn5dC1OExiqM"},
		Labels: map[string]string{
			"io.drone": "true", "io.drone.build.number": "17", "io.drone.created": "1796022595", "io.drone.repo.slug": "org/app",
			"io.drone.stage.name": "default", "io.drone.stage.number": "2", "io.drone.step.name": "compile", "io.drone.step.number": "3",
			"io.drone.system.host": "Drone.example.com",
		},
		Env: map[string]string{
			"DRONE_REPO": "org/app", "DRONE_BUILD_NUMBER": "17", "DRONE_BUILD_EVENT": "push", "DRONE_BUILD_LINK": "https://drone.example.com/org/app/17",
			"DRONE_STAGE_NUMBER": "2", "DRONE_STAGE_MACHINE": "ci-7", "DRONE_STEP_NAME": "compile", "DRONE_BRANCH": "main", "DRONE_REPO_BRANCH": "trunk", "DRONE_COMMIT_SHA": "7e4d",
		},
	}
	for i := 0; i < len(changes); i += 2 {
		what, value := changes[i], changes[i+1]
		switch {
		case what == "name":
			c.Name = value
		case what == "network":
			c.NetworkMode, c.Networks = value, nil
		case what == "env":
			c.Env = nil
		case strings.HasPrefix(what, "$"):
			c.Env[what[1:]] = value
		default:
			c.Labels["io.drone"+what] = value
		}
	}
	return c
}

func TestIdentify(t *testing.T) {
	with := func(change func(*cimeter.Identity)) cimeter.Identity {
		id := cimeter.Identity{
			Build: cimeter.Build{
				Key: "drone/drone.example.com/org/app/17/2", CI: "drone", Server: "drone.example.com", Project: "org/app", Number: "17", Name: "default",
				Ref: "main", DefaultBranch: "trunk", SHA: "7e4d", Event: "push", URL: "https://drone.example.com/org/app/17", Runner: cimeter.Runner{Name: "ci-7"},
			},
			Role: cimeter.RoleBuild, Stage: "compile", Group: "drone-cVRv9KgEFn5dC1OExiqM",
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
		{"clone", container(".step.name", "clone", "$DRONE_STEP_NAME", "clone"), with(func(id *cimeter.Identity) {
			id.Role, id.Stage = cimeter.RoleHelper, "clone"
		})},
		{"tag", container("$DRONE_TAG", "v1"), with(func(id *cimeter.Identity) { id.Build.Ref = "v1" })},
		{"network by its mode", container("network", "drone-00000000000000000000"), with(func(id *cimeter.Identity) { id.Group = "drone-00000000000000000000" })},
		{"network by its variable", container("network", "host", "$DRONE_DOCKER_NETWORK_ID", "drone-11111111111111111111"),
			with(func(id *cimeter.Identity) { id.Group = "drone-11111111111111111111" })},
		{"no network of the stage", container("network", "host"), with(func(id *cimeter.Identity) { id.Group = "" })},
		{"not inspected", container("env", "none", "network", ""), with(func(id *cimeter.Identity) {
			id.Build = cimeter.Build{Key: id.Build.Key, CI: "drone", Server: "drone.example.com", Project: "org/app", Number: "17", Name: "default"}
			id.Group = ""
		})},
		{"no server", container(".system.host", "", ".repo.slug", "", "$DRONE_REPO", "", "$DRONE_BUILD_LINK", ":////1"),
			with(func(id *cimeter.Identity) {
				id.Build.Key, id.Build.Server, id.Build.Project, id.Build.URL = "drone/local/1796022595/17/2", "", "", ""
			})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := drone.Identify(tt.in); !ok || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, ok, tt.want)
			}
		})
	}
}

func TestIdentifyOthers(t *testing.T) {
	for name, c := range map[string]*cimeter.Container{
		"no label":  {Name: "drone-ZLpmnUx4slHVaLx2pvev"},
		"no build":  container(".build.number", ""),
		"not drone": container("", "false"),
		"injection": container(".build.number", "1/../2"),
	} {
		if id, ok := drone.Identify(c); ok {
			t.Errorf("%s: taken for %+v", name, id)
		}
	}
}

func TestIdentifyDoubt(t *testing.T) {
	for name, tt := range map[string]struct {
		in   *cimeter.Container
		want string
	}{
		"labels copied to a name of its own": {container("name", "web-1"), `name "web-1" is not`},
		"a name that is too long":            {container("name", "drone-ZLpmnUx4slHVaLx2pvevx"), "is not"},
		"a name of other characters":         {container("name", "drone-ZLpmnUx4slHVaLx2pve_"), "is not"},
		"repository":                         {container(".repo.slug", "org/other"), `repository: label says "org/other"`},
		"build":                              {container(".build.number", "18"), `build number: label says "18", variable DRONE_BUILD_NUMBER says "17"`},
		"stage":                              {container(".stage.number", "1"), "stage number"},
		"step":                               {container(".step.name", "deploy"), "step: "},
		"no step":                            {container(".step.name", ""), "names its step"},
	} {
		if id, ok := drone.Identify(tt.in); !ok || !strings.Contains(id.Doubt, tt.want) {
			t.Errorf("%s: doubt %q, %v, want one with %q", name, id.Doubt, ok, tt.want)
		}
	}
}

func TestVariablesHoldNoSecret(t *testing.T) {
	env := citest.Allow([]string{"DRONE_NETRC_PASSWORD=x", "DRONE_SCRIPT=x", "DRONE_NETRC_FILE=x", "PLUGIN_TOKEN=x", "DRONE_REPO=org/app"}, drone.Variables())
	if len(env) != 1 {
		t.Errorf("allowed %v, want DRONE_REPO alone", env)
	}
}

func FuzzIdentify(f *testing.F) {
	f.Add("drone-ZLpmnUx4slHVaLx2pvev", "17", "org/app", "compile", "h")
	f.Add("drone-", "0", "../..", "", "")
	f.Fuzz(func(t *testing.T, name, build, slug, step, host string) {
		id, ok := drone.Identify(container("name", name, ".build.number", build, ".repo.slug", slug, ".step.name", step, ".system.host", host, "env", "none"))
		if !ok {
			return
		}
		if !strings.HasPrefix(id.Build.Key, "drone/") || !strings.HasSuffix(id.Build.Key, "/"+build+"/2") {
			t.Errorf("key %q of build %q", id.Build.Key, build)
		}
		if id.Doubt == "" && !drone.IsName(name) {
			t.Errorf("%q is not in doubt", name)
		}
	})
}
