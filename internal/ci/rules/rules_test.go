package rules_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/rules"
)

func jenkins() rules.Rule {
	return rules.Rule{
		Name: "jenkins",
		Match: rules.Match{
			Env:   map[string]string{"JOB_NAME": `^(?P<project>.+)$`, "BUILD_NUMBER": `^(?P<number>\d+)$`, "BUILD_URL": `^(?P<url>https?://(?P<host>[^/]+)/.*)$`},
			Image: `agent`,
		},
		Set: map[string]string{"ci": "jenkins", "server": "${host}", "name": "$$${number} of ${project}", "stage": "build"},
	}
}

func TestIdentify(t *testing.T) {
	set, err := rules.Compile([]rules.Rule{
		jenkins(),
		{
			Name: "buildkite",
			Match: rules.Match{
				Labels:  map[string]string{"com.example.job": `^(?P<org>[a-z]+)/(?P<app>[a-z]+)$`},
				Name:    `-(?P<role>build|service)-(?P<number>\d+)$`,
				Network: `^bk_(?P<group>[0-9a-f]+)$`,
			},
			Set: map[string]string{"ci": "buildkite", "project": "${org}/${app}", "attempt": "${number}"},
		},
		{
			Name:  "grouped",
			Match: rules.Match{Network: `^(?P<group>grp_\w+)$`},
			Set:   map[string]string{"ci": "grouped"},
		},
		{
			Name:  "optional",
			Match: rules.Match{Name: `^opt(-(?P<number>\d+))?$`},
			Set:   map[string]string{"ci": "opt"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		in   cimeter.Container
		want cimeter.Identity
		ok   bool
	}{
		{
			name: "variables, with a group used in a template",
			in: cimeter.Container{Image: "jenkins/agent:1", Env: map[string]string{
				"JOB_NAME": "team/app", "BUILD_NUMBER": "17", "BUILD_URL": "https://user:pw@ci.example.com:8443/job/app/17/?token=x",
			}},
			want: cimeter.Identity{
				Build: cimeter.Build{
					Key: "jenkins/ci.example.com:8443/team/app/17/$17%20of%20team/app", CI: "jenkins", Server: "ci.example.com:8443",
					Project: "team/app", Number: "17", Name: "$17 of team/app", URL: "https://ci.example.com:8443/job/app/17/",
				},
				Role: cimeter.RoleBuild, Stage: "build",
			},
			ok: true,
		},
		{
			name: "label, name and network",
			in: cimeter.Container{Name: "x-service-2", Labels: map[string]string{"com.example.job": "org/app"},
				Networks: []string{"bridge", "bk_00ff"}},
			want: cimeter.Identity{
				Build: cimeter.Build{Key: "buildkite//org/app/2/", CI: "buildkite", Project: "org/app", Number: "2", Attempt: 2},
				Role:  cimeter.RoleService, Alongside: true, Group: "00ff",
			},
			ok: true,
		},
		{
			name: "group alone",
			in:   cimeter.Container{Name: "y", NetworkMode: "grp_7"},
			want: cimeter.Identity{Build: cimeter.Build{Key: "grouped/local/grp_7", CI: "grouped"}, Role: cimeter.RoleBuild, Group: "grp_7"},
			ok:   true,
		},
		{
			name: "a group that took no part: the container stands for itself",
			in:   cimeter.Container{ID: "0123", Name: "opt"},
			want: cimeter.Identity{Build: cimeter.Build{Key: "opt/local/0123", CI: "opt"}, Role: cimeter.RoleBuild},
			ok:   true,
		},
		{name: "a label that is not there", in: cimeter.Container{Name: "x-build-2", Networks: []string{"bk_00ff"}}},
		{name: "variables not read", in: cimeter.Container{Image: "jenkins/agent:1"}},
		{name: "a value too long to match", in: cimeter.Container{Name: "opt-" + strings.Repeat("1", 2000)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := set.Identify(&tt.in)
			if ok != tt.ok || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v, %v\nwant %+v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
	if got, want := set.Variables(), []string{"BUILD_NUMBER", "BUILD_URL", "JOB_NAME"}; !reflect.DeepEqual(got, want) {
		t.Errorf("Variables() = %q, want %q", got, want)
	}
}

func TestCompileErrors(t *testing.T) {
	with := func(change func(*rules.Rule)) []rules.Rule {
		r := jenkins()
		change(&r)
		return []rules.Rule{r}
	}
	tests := []struct {
		name string
		in   []rules.Rule
		want []string // one for each error, in order
	}{
		{"two rules of one name", []rules.Rule{jenkins(), jenkins()},
			[]string{`rule jenkins: name: invalid: "jenkins", want a name that no other rule has`}},
		{"several at once, of a rule without a name", []rules.Rule{{Match: rules.Match{Name: "(", Image: "["}, Set: map[string]string{"ci": "Jenkins 2", "role": "boss"}}},
			[]string{
				`rule number 1: match.name: invalid: "(", want a regular expression`,
				`rule number 1: match.image: invalid: "[", want a regular expression`,
				`rule number 1: set.ci: invalid: "Jenkins 2", want at most 40 lower-case letters, digits, - and _`,
				`rule number 1: set.role: invalid: "boss", want build, helper, service, cache or wait`,
				`rule number 1: set: invalid: "", want number or group: nothing else tells one build from the next`,
			}},
		{"unknown field", with(func(r *rules.Rule) { r.Set["colour"] = "red" }),
			[]string{`rule jenkins: set: invalid: "colour", want one of ci, server, project, number, name, attempt, pipeline, pipeline_stage, ref, sha, event, url, runner, stage, role, group`}},
		{"unknown group", with(func(r *rules.Rule) { r.Set["ref"] = "${branch}" }),
			[]string{`rule jenkins: set.ref: invalid: "${branch}", want groups that a pattern of the rule has, which "branch" is not`}},
		{"a group twice", with(func(r *rules.Rule) { r.Match.Name = `(?P<number>\d)` }),
			[]string{`rule jenkins: match.name: invalid: "(?P<number>\\d)", want group number in one pattern only`}},
		{"no CI", with(func(r *rules.Rule) { delete(r.Set, "ci") }),
			[]string{`rule jenkins: set.ci: invalid: "", want the name of the CI system`}},
		{"nothing to match", []rules.Rule{{Name: "all", Set: map[string]string{"ci": "x", "number": "1"}}},
			[]string{`rule all: match: invalid: "", want at least one pattern`}},
		{"a secret", with(func(r *rules.Rule) { r.Match.Env["DEPLOY_TOKEN"] = ".*" }),
			[]string{`rule jenkins: match.env: invalid: "DEPLOY_TOKEN", want a variable whose name is not that of a secret`}},
		{"too many", make([]rules.Rule, 201), []string{`rules: invalid: there are 201, want at most 200`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := rules.Compile(tt.in)
			if !errors.Is(err, cimeter.ErrInvalid) {
				t.Fatalf("error %v, want one that wraps ErrInvalid", err)
			}
			if got, want := err.Error(), strings.Join(tt.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(`^x-(?P<number>\d+)$`, "x-1", "$${number}${", "label")
	f.Add(`(`, "", "${", "")
	f.Add(`(?P<number>a)|(?P<group>b)`, "b", "$", "b")
	f.Fuzz(func(t *testing.T, pattern, name, template, label string) {
		set, err := rules.Compile([]rules.Rule{{Name: "r", Match: rules.Match{Name: pattern, Labels: map[string]string{"l": pattern}},
			Set: map[string]string{"ci": "x", "number": template}}})
		if err != nil {
			return
		}
		c := cimeter.Container{ID: "id", Name: name, Labels: map[string]string{"l": label}}
		if id, ok := set.Identify(&c); ok && (id.Build.Key == "" || id.Build.CI != "x") {
			t.Errorf("identity without a key or with another CI: %+v", id)
		}
	})
}
