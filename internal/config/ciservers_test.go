package config

import (
	"strings"
	"testing"
)

func TestParse_CIServers(t *testing.T) {
	c, err := Parse("c.yaml", []byte(`
ci_servers:
  - {kind: gitlab, url: https://gitlab.example.com:8443/git, token_file: /t, interval: auto, projects: [group/app, group/sub/app]}
  - {kind: gitlab, url: https://gitlab.example.com:8443, name: other, hook_secret_file: /s}
  - {kind: jenkins, url: http://jenkins.example.com, token_file: /t, user: ci, interval: 30s, requests_per_minute: 5}
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.CIServers[0].Name; got != "gitlab.example.com:8443" {
		t.Errorf("name %q: want the host", got)
	}
	if c.CIServers[0].Interval != 0 || c.CIServers[1].Name != "other" || c.CIServers[2].Requests != 5 {
		t.Errorf("%+v", c.CIServers)
	}
}

func TestParse_CIServers_refuses(t *testing.T) {
	for text, want := range map[string]string{
		`{kind: svn, url: http://x, token_file: /t}`:                                                                 "want one of gitlab, drone",
		`{kind: drone, token_file: /t}`:                                                                              "ci_servers[0].url: none given",
		`{kind: drone, url: "http://me:secret@x", token_file: /t}`:                                                   "without user and password",
		`{kind: drone, url: http://x}`:                                                                               "want token_file, hook_secret_file, or both",
		`{kind: drone, url: http://x, token_file: /t, sections: [a/*]}`:                                              "want kind gitlab, and token_file",
		`{kind: drone, url: http://x, token_file: t}`:                                                                "want an absolute path",
		`{kind: drone, url: http://x, token_file: /t, interval: 10ms}`:                                               "want auto, or 1s to 1h",
		`{kind: drone, url: http://x, token_file: /t, projects: ["../../admin"]}`:                                    "want a path such as group/app",
		`{kind: drone, url: http://x, token_file: /t, projects: ["a?private_token=x"]}`:                              "want a path such as group/app",
		"{kind: drone, url: http://x, token_file: /t}\n  - {kind: drone, url: http://x, token_file: /t}":             "want a name for each",
		"{kind: drone, url: http://x, hook_secret_file: /t}\n  - {kind: drone, url: http://y, hook_secret_file: /t}": "want a secret for each server",
	} {
		_, err := Parse("c.yaml", []byte("ci_servers:\n  - "+text+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v: want %q", text, err, want)
		}
	}
}
