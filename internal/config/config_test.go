package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/config"
)

func TestDefaultPassesItsOwnCheck(t *testing.T) {
	got, err := config.Parse("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := config.Default(); !reflect.DeepEqual(got, want) {
		t.Errorf("no file: got %+v, want the defaults %+v", got, want)
	}
}

func TestParse(t *testing.T) {
	c, err := config.Parse("c.yaml", []byte(`
listen: 127.0.0.1:9900
log: {level: debug}
agent:
  interval: 250ms
  gitlab_runners: http://127.0.0.1:9252/debug/jobs/list, http://127.0.0.1:9253/debug/jobs/list
  variables: [ BUILD_TAG, " JOB_NAME " ]
  memory_limit: auto
  rules:
    - name: jenkins
      match:
        labels: {com.example.job: '^(?P<job>[a-z/]+)$'}
        name: '-(?P<number>\d+)$'
      set: {ci: jenkins, project: '${job}', number: '${number}'}
records: {max_bytes: 64MiB}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Listen = "127.0.0.1:9900"
	want.Log.Level = "debug"
	want.Agent.Interval = 250 * time.Millisecond
	want.Agent.GitLabRunners = []string{"http://127.0.0.1:9252/debug/jobs/list", "http://127.0.0.1:9253/debug/jobs/list"}
	want.Agent.Variables = []string{"BUILD_TAG", "JOB_NAME"}
	want.Records.MaxBytes = 64 << 20
	rules := c.Agent.Rules
	c.Agent.Rules = nil
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if len(rules) != 1 || rules[0].Match.Name.FindStringSubmatch("x-17")[1] != "17" ||
		!rules[0].Match.Labels["com.example.job"].MatchString("group/app") || rules[0].Set["ci"] != "jenkins" {
		t.Errorf("rules: got %+v", rules)
	}
}

// A space in a list with commas made cAdvisor drop what came after it
// (google/cadvisor#3235).
func TestParse_TrimsCommaLists(t *testing.T) {
	c, err := config.Parse("", []byte("agent: {variables: 'A, B ,C,, D'}"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"A", "B", "C", "D"}; !reflect.DeepEqual(c.Agent.Variables, want) {
		t.Errorf("variables: got %q, want %q", c.Agent.Variables, want)
	}
}

func TestParse_ReportsAllProblemsAtOnce(t *testing.T) {
	_, err := config.Parse("c.yaml", []byte(`listen: nowhere
data: relative/dir
colour: red
agent:
  intervall: 1s
  interval: 0s
  full_every: many
  trace: yes
  cgroup_root: [a]
  docker: on
  gitlab_runners: ["http://user:hunter2@runner:9252/", "ftp://x/"]
  memory_limit: 1MiB
  variables: A-B
log:
  level: loud
metrics: {series_budget: 5, series_budget: 6}
records: {max_bytes: -3}
`))
	want := `c.yaml:1: listen: nowhere: want HOST:PORT with a port from 0 to 65535, such as :9808
c.yaml:2: data: relative/dir: want an absolute path
c.yaml:3: colour: unknown key: want one of listen, data, web_config_file, machine, pool, log, agent, metrics, records, server, access, store, discover, outputs, debug, ci_servers, sources
c.yaml:5: agent.intervall: unknown key: did you mean interval?
c.yaml:6: agent.interval: 0s: want 100ms to 5m
c.yaml:7: agent.full_every: many: want 1 to 1000
c.yaml:8: agent.trace: yes: want true or false
c.yaml:9: agent.cgroup_root: a list: want an absolute path
c.yaml:10: agent.docker: on: want a mapping
c.yaml:11: agent.gitlab_runners[0]: "http://<secret>@runner:9252/": want an http or https URL without user and password
c.yaml:11: agent.gitlab_runners[1]: "ftp://x/": want an http or https URL without user and password
c.yaml:12: agent.memory_limit: 1MiB: want auto, or 16MiB to 4GiB
c.yaml:13: agent.variables[0]: A-B: want a name of letters, digits and underscores
c.yaml:15: log.level: loud: want one of debug, info, warn, error
c.yaml:16: metrics.series_budget: second time: want each key once
c.yaml:16: metrics.series_budget: 5: want 1000 to 1000000
c.yaml:17: records.max_bytes: -3: want 1MiB to 1TiB`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	var ps config.Problems
	if !errors.As(err, &ps) || len(ps) != 17 || ps[4].Line != 6 || ps[4].Path != "agent.interval" {
		t.Errorf("problems: got %+v", ps)
	}
}

func TestParse_Rules(t *testing.T) {
	for _, rule := range []string{
		`{match: {network: '(?P<group>.+)'}, set: {ci: x}}`, `{match: {network: '(?P<number>.+)'}, set: {ci: x}}`,
		`{match: {name: '(?P<ci>.)'}, set: {group: g}}`, `{match: {name: a}, set: {ci: x, number: '$$1'}}`,
	} {
		if _, err := config.Parse("f", []byte("agent: {rules: [ "+rule+"\n]}")); err != nil {
			t.Errorf("%s: %v, want it accepted", rule, err)
		}
	}
	for _, c := range []struct{ name, rule, want string }{
		{"broken pattern", `{match: {name: '('}, set: {ci: x, project: p, number: n}}`,
			"agent.rules[0].match.name: (: want a regular expression: error parsing regexp: missing closing ): `(`"},
		{"nothing to match", `{set: {ci: x, project: p, number: n}}`,
			"agent.rules[0].match: nothing to match: want at least one pattern"},
		{"group that no pattern has", `{match: {image: 'a(?P<v>.)'}, set: {ci: x, project: '${w}', number: '${v}'}}`,
			"agent.rules[0].set.project: ${w}: ${w}: want ${name} of a named group of this rule's patterns, or $$ for a dollar sign"},
		{"group without braces", `{match: {image: 'a(?P<v>.)'}, set: {ci: x, project: '$v', number: '${v}'}}`,
			"agent.rules[0].set.project: $v: $v: want ${name} of a named group of this rule's patterns, or $$ for a dollar sign"},
		{"no number", `{match: {image: a}, set: {ci: x, project: p}}`,
			"agent.rules[0].set: nothing tells one build from the next: want number or group"},
		{"no ci", `{match: {image: a}, set: {project: p, number: n}}`,
			"agent.rules[0].set: no ci: want the name of the CI system"},
		{"unknown field", `{match: {image: a}, set: {ci: x, project: p, number: n, colour: red}}`,
			"agent.rules[0].set.colour: unknown field: want one of ci, server, project, number, name, attempt, pipeline, " +
				"pipeline_stage, ref, sha, event, url, runner, stage, role, group"},
		{"label without a pattern", `{match: {labels: {a: }, image: a}, set: {ci: x, project: p, number: n}}`,
			"agent.rules[0].match.labels.a: nothing given: want a regular expression"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Parse("f", []byte("agent: {rules: [ "+c.rule+"\n]}"))
			if want := "f:1: " + c.want; err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

// A named group gives the field of its name, and $$ is a dollar sign.
func TestParse_RuleOfGroupsAlone(t *testing.T) {
	_, err := config.Parse("f", []byte(`agent: {rules: [{match: {name: '^(?P<ci>x)-(?P<number>\d+)$'}, set: {project: 'a$$b'}}]}`))
	if err != nil {
		t.Error(err)
	}
}

func TestParse_BrokenYAML(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"syntax", "a: [", "f:1: want YAML: did not find expected node content"},
		{"not a mapping", "- a", "f:1: want a mapping"},
		{"two documents", "log: {}\n---\nlog: {}", "f:1: second document: want one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Parse("f", []byte(c.text))
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestParse_Overrides(t *testing.T) {
	file := []byte("listen: :1\nagent: {docker: {host: 'unix:///a'}}")
	c, err := config.Parse("f", file, config.Override{Path: "agent.docker.host", Value: "tcp://127.0.0.1:2375", Source: "--docker"})
	if err != nil || c.Agent.Docker.Host != "tcp://127.0.0.1:2375" || c.Listen != ":1" {
		t.Errorf("got %+v, %v; want the flag over the file and the rest of the file kept", c, err)
	}
	_, err = config.Parse("f", file, config.Override{Path: "agent.docker.host", Value: "ssh://me@host", Source: "--docker"})
	if want := `--docker: agent.docker.host: "ssh://<secret>@host": want unix:///path or tcp://HOST:PORT`; err == nil || err.Error() != want {
		t.Errorf("bad flag: got %v, want %s", err, want)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("machine is the host's name", func(t *testing.T) {
		if c, err := config.Load(""); err != nil || c.Machine != host {
			t.Errorf("got %q, %v; want %q", c.Machine, err, host)
		}
	})
	t.Run("no such file", func(t *testing.T) {
		if _, err := config.Load(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v, want that it does not exist", err)
		}
	})
	t.Run("huge file", func(t *testing.T) {
		path := filepath.Join(dir, "huge")
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 2<<20)); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), "want at most 1048576") {
			t.Errorf("got %v, want its size refused", err)
		}
	})
}

func TestLoad_WebConfigModes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	users := "basic_auth_users: {me: $2y$10$abc}\n"
	write("open.key", "key", 0o644)
	write("closed.key", "key", 0o640)
	for _, c := range []struct{ name, path, want string }{
		{"users, private", write("a", users, 0o640), ""},
		{"users, world-readable", write("b", users, 0o644), "b: mode 0644 lets everybody at a secret: want 0640 or 0600"},
		{"no secret, world-readable", write("c", "tls_server_config: {min_version: TLS13}\n", 0o644), ""},
		{"key within, world-readable", write("g", "tls_server_config: {key: abc}\n", 0o644), "g: mode 0644 lets everybody"},
		{"private key", write("d", "tls_server_config: {key_file: closed.key}\n", 0o644), ""},
		{"world-readable key", write("e", "tls_server_config: {key_file: open.key}\n", 0o600), "open.key: mode 0644 lets everybody"},
		{"missing", filepath.Join(dir, "none"), "want a readable file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Parse("f", []byte("web_config_file: "+c.path))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v, want it accepted", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %s", err, c.want)
			case err != nil && strings.Contains(err.Error(), "$2y$"):
				t.Errorf("a hash is in the error: %v", err)
			}
		})
	}
}

// The invariants: never a panic; an error and a usable Config exclude each
// other; what is accepted is within its ranges.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "listen: :9808", "agent: {interval: 1s, rules: [{match: {name: a}, set: {ci: a, project: b, number: c}}]}",
		"a: &a [*a]", "<<: {log: {}}", "agent: {rules: [1, [2], {match: 3}]}", "records: {max_bytes: 9999999999999TiB}",
		"agent:\n  gitlab_runners: [a, b]\n  variables: ,,\n", "? [a]\n: b", "\x00", "log: !!binary aGk=",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := config.Parse("f", b)
		if err != nil {
			if !reflect.DeepEqual(c, config.Config{}) {
				t.Errorf("error and a config: %v, %+v", err, c)
			}
			return
		}
		if c.Agent.Interval < 100*time.Millisecond || c.Agent.Interval > 5*time.Minute || c.Records.MaxBytes < 1<<20 {
			t.Errorf("accepted out of range: %+v", c)
		}
	})
}
