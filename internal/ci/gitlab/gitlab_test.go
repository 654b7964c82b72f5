package gitlab_test

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
)

const (
	label = "com.gitlab.gitlab-runner."
	group = "runner-zx8k2mqpl-project-42-concurrent-1-97c49c249c7ce906"
)

// container returns a build container as a runner of 19.x makes it, changed by
// pairs of what and value: a label, $variable, or name, image.
func container(changes ...string) *cimeter.Container {
	c := &cimeter.Container{
		ID:    strings.Repeat("a", 64),
		Name:  group + "-build",
		Image: "golang:1.26",
		Labels: map[string]string{
			label + "managed": "true", label + "type": "build", label + "job.id": "4242",
			label + "job.url": "https://gitlab.example.com:8443/group/sub/app/-/jobs/4242",
			label + "job.sha": "7e4dc6e0", label + "job.ref": "main", label + "pipeline.id": "991", label + "project.id": "42",
			label + "project.runner_id": "1", label + "runner.id": "Zx8k2_mQpL", label + "runner.local_id": "3",
			label + "runner.system_id": "s_a1b2c3d4e5f6",
		},
		Env: map[string]string{
			"GITLAB_CI": "true", "CI_JOB_ID": "4242", "CI_JOB_NAME": "build-and-test", "CI_JOB_STAGE": "test", "CI_PROJECT_ID": "42",
			"CI_PROJECT_PATH": "group/sub/app", "CI_PIPELINE_SOURCE": "merge_request_event", "CI_SERVER_URL": "https://gitlab.example.com:8443",
			"CI_RUNNER_SHORT_TOKEN": "Zx8k2_mQpL", "CI_RUNNER_DESCRIPTION": "docker-1",
		},
	}
	for i := 0; i < len(changes); i += 2 {
		what, value := changes[i], changes[i+1]
		switch {
		case what == "name":
			c.Name = value
		case what == "image":
			c.Image = value
		case what == "env" && value == "none":
			c.Env = nil
		case strings.HasPrefix(what, "$"):
			c.Env[what[1:]] = value
		case value == "none":
			delete(c.Labels, label+what)
		default:
			c.Labels[label+what] = value
		}
	}
	return c
}

func TestIdentify(t *testing.T) {
	build := cimeter.Build{
		Key: "gitlab/gitlab.example.com:8443/4242", CI: "gitlab", Server: "gitlab.example.com:8443", Project: "group/sub/app",
		Number: "4242", Name: "build-and-test", Pipeline: "991", PipelineStage: "test", Ref: "main", SHA: "7e4dc6e0",
		Event: "merge_request_event", URL: "https://gitlab.example.com:8443/group/sub/app/-/jobs/4242",
		Runner: cimeter.Runner{ID: "s_a1b2c3d4e5f6", ShortToken: "Zx8k2_mQpL", Name: "docker-1"},
	}
	with := func(change func(*cimeter.Identity)) cimeter.Identity {
		id := cimeter.Identity{Build: build, Role: cimeter.RoleBuild, Group: group}
		change(&id)
		return id
	}
	tests := []struct {
		name string
		in   *cimeter.Container
		want cimeter.Identity
	}{
		{"build container of 19.x", container(), with(func(*cimeter.Identity) {})},
		{"build container of 15.4", container("name", group+"-build-3"), with(func(*cimeter.Identity) {})},
		{"helper of 19.x", container("type", "predefined", "name", group+"-predefined"),
			with(func(id *cimeter.Identity) { id.Role = cimeter.RoleHelper })},
		{"helper of 15.4", container("type", "predefined", "name", group+"-predefined-4"),
			with(func(id *cimeter.Identity) { id.Role = cimeter.RoleHelper })},
		{"service", container("type", "service", "service", "registry.example.com:5000/db/postgres", "name", group+"-registry.example.com:5000__db__postgres-0"),
			with(func(id *cimeter.Identity) {
				id.Role, id.Stage, id.Alongside = cimeter.RoleService, "service:postgres", true
			})},
		{"service whose label is missing", container("type", "service", "name", group+"-docker-dind-1"),
			with(func(id *cimeter.Identity) {
				id.Role, id.Stage, id.Alongside = cimeter.RoleService, "service:docker-dind", true
			})},
		{"service of an image named build", container("type", "service", "service", "build", "name", group+"-build-0"),
			with(func(id *cimeter.Identity) {
				id.Role, id.Stage, id.Alongside = cimeter.RoleService, "service:build", true
			})},
		{"wait", container("type", "wait", "wait", strings.Repeat("b", 64), "name", group+"-lab__debian-0-wait-for-service"),
			with(func(id *cimeter.Identity) { id.Role, id.Stage = cimeter.RoleWait, "prepare_executor" })},
		{"cache", container("type", "cache-init", "name", "runner-zx8k2mqpl-project-42-concurrent-1-cache-3c3f060a0374fc8bc39395164f415a70-set-permission-40a45c6fd1915ad1"),
			with(func(id *cimeter.Identity) {
				id.Role, id.Stage, id.Group = cimeter.RoleCache, "prepare_executor", ""
			})},
		{"protected cache", container("type", "cache-init", "name", "runner-zx8k2mqpl-project-42-concurrent-1-cache-3c3f060a0374fc8bc39395164f415a70-protected-set-permission-40a45c6fd1915ad1"),
			with(func(id *cimeter.Identity) {
				id.Role, id.Stage, id.Group = cimeter.RoleCache, "prepare_executor", ""
			})},
		{"a runner before 12.10: no random part", container("name", "runner-zx8k2mqpl-project-42-concurrent-1-build-4"),
			with(func(id *cimeter.Identity) { id.Group = "" })},
		{"not inspected", container("env", "none"), with(func(id *cimeter.Identity) {
			id.Build.Name, id.Build.PipelineStage, id.Build.Event, id.Build.Runner.Name = "", "", "", ""
		})},
		{"GitLab under a path", container("job.url", "https://example.com/gitlab/group/sub/app/-/jobs/4242", "$CI_SERVER_URL", "https://example.com/gitlab"),
			with(func(id *cimeter.Identity) {
				id.Build.Key, id.Build.Server = "gitlab/example.com/4242", "example.com"
				id.Build.URL = "https://example.com/gitlab/group/sub/app/-/jobs/4242"
			})},
		{"no job.url, before 13.11", container("job.url", "none"), with(func(id *cimeter.Identity) { id.Build.URL = "" })},
		{"no server at all", container("job.url", "none", "env", "none"), with(func(id *cimeter.Identity) {
			id.Build = cimeter.Build{Key: "gitlab/local/Zx8k2_mQpL/4242", CI: "gitlab", Number: "4242", Pipeline: "991", Ref: "main", SHA: "7e4dc6e0",
				Runner: cimeter.Runner{ID: "s_a1b2c3d4e5f6", ShortToken: "Zx8k2_mQpL"}}
		})},
		{"user name and password in the URL", container("job.url", "https://u:p@GitLab.example.com:8443/group/sub/app/-/jobs/4242?x=1"),
			with(func(*cimeter.Identity) {})},
		{"a job that names another project keeps its own", container("$CI_PROJECT_PATH", "other/app"), with(func(*cimeter.Identity) {})},
		{"a name that breaks exporters", container("$CI_JOB_NAME", "say \"hi\"\\\n\xff"),
			with(func(id *cimeter.Identity) { id.Build.Name = "say \"hi\"\\\n\xff" })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := gitlab.Identify(tt.in)
			if tt.name == "user name and password in the URL" {
				tt.want.Build.URL = "https://GitLab.example.com:8443/group/sub/app/-/jobs/4242"
			}
			if !ok || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, ok, tt.want)
			}
		})
	}
}

func TestIdentifyOthers(t *testing.T) {
	for name, c := range map[string]*cimeter.Container{
		"no labels":                container("managed", "none", "job.id", "none"),
		"managed is not true":      container("managed", "false"),
		"no job id":                container("job.id", "none"),
		"a job id that is no id":   container("job.id", "42; rm"),
		"a job id without measure": container("job.id", strings.Repeat("9", 100)),
	} {
		if id, ok := gitlab.Identify(c); ok {
			t.Errorf("%s: taken for %+v", name, id)
		}
	}
}

func TestIdentifyDoubt(t *testing.T) {
	tests := []struct {
		name string
		in   *cimeter.Container
		want string // in Doubt
	}{
		{"labels copied to a container with a name of its own", container("name", "sneaky_turing"), `name "sneaky_turing" is not`},
		{"an image's labels", container("name", "web-1", "env", "none"), `name "web-1" is not`},
		{"a name that only begins like a runner's", container("name", "runner-zx8k2mqpl-build"), "is not"},
		{"project", container("project.id", "43"), `project id: label says "43", name says "42"`},
		{"project in the variables", container("$CI_PROJECT_ID", "7"), `variable CI_PROJECT_ID says "7"`},
		{"slot", container("project.runner_id", "2"), `concurrent number: label says "2", name says "1"`},
		{"runner", container("runner.id", "Abcdefghi", "$CI_RUNNER_SHORT_TOKEN", "Abcdefghi"), `runner token: label says "abcdefghi", name says "zx8k2mqpl"`},
		{"runner in the variables", container("$CI_RUNNER_SHORT_TOKEN", "other"), "variable CI_RUNNER_SHORT_TOKEN"},
		{"job in the variables", container("$CI_JOB_ID", "4243"), `job id: label says "4242", variable CI_JOB_ID says "4243"`},
		{"job in the URL", container("job.url", "https://gitlab.example.com/group/app/-/jobs/1"), `label job.url says "1"`},
		{"type and name: helper", container("type", "predefined"), `type: the labels say "predefined", the name ends in "build"`},
		{"type and name: build", container("name", group+"-predefined-2"), "type"},
		{"type and name: wait", container("type", "wait"), "type"},
		{"type and name: cache", container("type", "cache-init"), "type"},
		{"type and name: service", container("type", "service"), "type"},
		{"no type", container("type", "none"), "which no container of a runner has"},
		{"a type of its own, with a line of its own", container("type", "x\ny"), `"x\ny"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id, ok := gitlab.Identify(tt.in)
			if !ok || !strings.Contains(id.Doubt, tt.want) {
				t.Errorf("got %q, %v, want a doubt with %q", id.Doubt, ok, tt.want)
			}
			if strings.ContainsRune(id.Doubt, '\n') || len(id.Doubt) > 400 {
				t.Errorf("doubt is not one short line: %q", id.Doubt)
			}
		})
	}
}

// A container that another build started with all of a build's labels and a
// runner's form of name still has another group.
func TestIdentifyGroupTellsForgery(t *testing.T) {
	victim, _ := gitlab.Identify(container())
	forged, ok := gitlab.Identify(container("name", "runner-zx8k2mqpl-project-42-concurrent-1-0000000000000000-build", "env", "none"))
	if !ok || forged.Build.Key != victim.Build.Key || forged.Group == victim.Group || forged.Group == "" {
		t.Errorf("forged group %q, the build's %q: want another", forged.Group, victim.Group)
	}
}

// Two jobs of one project at once on one runner differ in key and group.
func TestIdentifyConcurrent(t *testing.T) {
	a, _ := gitlab.Identify(container())
	b, _ := gitlab.Identify(container("job.id", "4243", "job.url", "https://gitlab.example.com:8443/group/sub/app/-/jobs/4243", "$CI_JOB_ID", "4243",
		"project.runner_id", "2", "name", "runner-zx8k2mqpl-project-42-concurrent-2-0011223344556677-build"))
	if a.Build.Key == b.Build.Key || a.Group == b.Group || b.Doubt != "" {
		t.Errorf("got %+v and %+v", a, b)
	}
}

// What is not on the allow-list cannot get into an identity, wherever it is planted.
func TestIdentifyNoSecrets(t *testing.T) {
	const secret = "planted-and-never-told"
	env := citest.Allow([]string{"SECRET_TOKEN=" + secret, "CI_JOB_TOKEN=" + secret, "CI_JOB_ID=4242", "CI_REGISTRY_PASSWORD=" + secret}, gitlab.Variables())
	if len(env) != 1 {
		t.Errorf("allowed %v, want CI_JOB_ID alone", env)
	}
	c := container("job.url", "https://user:"+secret+"@gitlab.example.com/group/app/-/jobs/4242?private_token="+secret+"#"+secret)
	maps.DeleteFunc(c.Env, func(name, _ string) bool { return name == "CI_PROJECT_PATH" })
	id, _ := gitlab.Identify(c)
	if s := fmt.Sprintf("%+v", id); strings.Contains(s, secret) {
		t.Errorf("secret in %s", s)
	}
}

func TestParseJobURL(t *testing.T) {
	good := map[string]gitlab.JobPage{
		"https://gitlab.example.com/group/app/-/jobs/1":              {Server: "gitlab.example.com", Project: "group/app", Job: "1"},
		"http://172.17.0.1:8929/group/app/-/jobs/4242":               {Server: "172.17.0.1:8929", Project: "group/app", Job: "4242"},
		"https://Example.COM/gitlab/a/b/c/d/-/jobs/99":               {Server: "example.com", Project: "gitlab/a/b/c/d", Job: "99"},
		"http://[::1]:8080/g/a/-/jobs/7":                             {Server: "[::1]:8080", Project: "g/a", Job: "7"},
		"https://gitlab.example.com/g/a%20b/-/jobs/7":                {Server: "gitlab.example.com", Project: "g/a b", Job: "7"},
		"https://gitlab.example.com/g/-/jobs/1/-/jobs/2":             {Server: "gitlab.example.com", Project: "g/-/jobs/1", Job: "2"},
		"https://u:p@gitlab.example.com/group/app/-/jobs/1?a=b#frag": {Server: "gitlab.example.com", Project: "group/app", Job: "1"},
	}
	for in, want := range good {
		if got, ok := gitlab.ParseJobURL(in); !ok || got != want {
			t.Errorf("ParseJobURL(%q) = %+v, %v, want %+v", in, got, ok, want)
		}
	}
	for _, in := range []string{
		"", "/group/app/-/jobs/1", "ftp://h/g/a/-/jobs/1", "https:///g/a/-/jobs/1", "https://h/g/a/-/jobs/", "https://h/g/a/-/jobs/x",
		"https://h/g/a/jobs/1", "https://h/-/jobs/1", "https://h/g/a/-/jobs/1/trace", "https://h/%zz/-/jobs/1",
		"https://h/" + strings.Repeat("g/", 2000) + "-/jobs/1",
	} {
		if got, ok := gitlab.ParseJobURL(in); ok {
			t.Errorf("ParseJobURL(%.60q) = %+v, want none", in, got)
		}
	}
}

// The job list is matched with containers by this.
func TestJobPageKey(t *testing.T) {
	page, ok := gitlab.ParseJobURL("https://gitlab.example.com:8443/group/sub/app/-/jobs/4242")
	id, _ := gitlab.Identify(container())
	if !ok || page.Key() != id.Build.Key {
		t.Errorf("key %q of the page, %q of the container", page.Key(), id.Build.Key)
	}
}

func FuzzParseJobURL(f *testing.F) {
	f.Add("https://gitlab.example.com/group/app/-/jobs/1")
	f.Add("https://u:p@[::1]:8080//g/a/-/jobs/-/jobs/00")
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := gitlab.ParseJobURL(s)
		if ok && (p.Server == "" || p.Project == "" || p.Job == "" || strings.Contains(p.Server, "@")) {
			t.Errorf("%q gives %+v", s, p)
		}
	})
}

func FuzzIdentify(f *testing.F) {
	f.Add(group+"-build", "build", "4242", "42", "Zx8k2_mQpL", "https://h/g/a/-/jobs/4242", "lab/debian")
	f.Add("runner--project-1-concurrent-1-", "service", "1", "1", "", "", "")
	f.Add("runner-x-project-1-concurrent-1-cache-a-set-permission-0123456789abcdef", "cache-init", "1", "1", "x", "", "")
	f.Fuzz(func(t *testing.T, name, typ, job, project, token, url, service string) {
		c := container("name", name, "type", typ, "job.id", job, "project.id", project, "runner.id", token, "job.url", url, "service", service, "env", "none")
		id, ok := gitlab.Identify(c)
		if !ok {
			return
		}
		if !strings.HasPrefix(id.Build.Key, "gitlab/") || !strings.HasSuffix(id.Build.Key, "/"+job) {
			t.Errorf("key %q of job %q", id.Build.Key, job)
		}
		if id.Doubt == "" && (id.Role == "" || !strings.HasPrefix(name, id.Group) || !strings.HasPrefix(name, "runner-")) {
			t.Errorf("%q is not in doubt: %+v", name, id)
		}
	})
}
