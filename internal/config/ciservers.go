package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// CIServer is a CI server whose queue, workers and builds are asked for.
type CIServer struct {
	Kind           string        `yaml:"kind" oneof:"gitlab drone woodpecker gitea forgejo github jenkins buildkite" doc:"What it is."`
	Name           string        `yaml:"name" check:"label" doc:"What it is called in metrics and pages. Default: the host of url."`
	URL            string        `yaml:"url" check:"address" doc:"Its address, such as https://gitlab.example.com, as builds know it: their keys have its host."`
	TokenFile      string        `yaml:"token_file" check:"optionalpath" doc:"File of the token that it is asked with; it only has to read. It is read before each request. Without one it is not asked: it is fed by webhooks alone. Must not be readable by everybody."`
	User           string        `yaml:"user" check:"label" doc:"User whose token it is, where the server asks for one (Jenkins)."`
	CancelFile     string        `yaml:"cancel_token_file" check:"optionalpath" doc:"File of a token that may cancel builds, for cimeter queue cancel. Without one cimeter cancels nothing. Must not be readable by everybody."`
	HookSecretFile string        `yaml:"hook_secret_file" check:"optionalpath" doc:"File of the secret that its webhooks, received at /api/v1/hooks/KIND, are verified by. One for each server. Must not be readable by everybody."`
	DatabaseFile   string        `yaml:"database_file" check:"optionalpath" doc:"Drone alone: file of the address of its database, which is read instead of asking the API: sqlite:///path, postgres://user:password@host/name or mysql://user:password@host/name. Nothing is written there. Must not be readable by everybody."`
	CAFile         string        `yaml:"ca_file" check:"optionalpath" doc:"PEM file of the authorities that may sign its certificate. Default: the system's."`
	Interval       time.Duration `yaml:"interval" auto:"true" min:"1s" max:"1h" doc:"Time between two polls. auto: 10s."`
	Timeout        time.Duration `yaml:"timeout" auto:"true" min:"1s" max:"5m" doc:"Longest that one poll takes. auto: 30s."`
	Requests       int           `yaml:"requests_per_minute" auto:"true" min:"1" max:"6000" doc:"Most requests in a minute that are made to it. auto: 60."`
	Projects       []string      `yaml:"projects" check:"project" max:"5000" doc:"Paths of the projects to ask for, where the token cannot ask for all of them, or the server does not tell of all at once."`
	Sections       []string      `yaml:"sections" check:"project" max:"500" doc:"GitLab alone: projects whose jobs' logs are read once, after the job's end, for the names and times of their sections, by which pages and the API divide the job: paths, where * is any text, such as group/*. It needs token_file. Nothing else of a log is kept. See docs/gitlab.md."`
	Logs           int           `yaml:"logs_per_minute" auto:"true" min:"1" max:"600" doc:"Most logs in a minute that are read so, besides requests_per_minute. auto: 10."`
	Notes          CINotes       `yaml:"notes" doc:"Where its people are told what builds cost (GitLab, GitHub, Gitea, Forgejo): see docs/gitlab.md and docs/summary.md."`
}

// wantedCIServer is wanted for the checks of CI servers.
func wantedCIServer(check string) string {
	if check == "project" {
		return "a path such as group/app, at most 255 bytes"
	}
	return ""
}

// projectPath reports whether s can be the path of a project on a forge, or the name
// of an organisation.
func projectPath(s string) bool {
	return s != "" && len(s) <= 255 && !strings.HasPrefix(s, "/") && !strings.HasSuffix(s, "/") && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == 0x7f || r == '?' || r == '#' || r == '\\'
	}) && !slices.Contains(strings.Split(s, "/"), "..")
}

// ciServers checks what no tag can say, and names those that have no name.
func (d *decoder) ciServers(servers []CIServer) {
	names, secrets := map[string]bool{}, map[string]bool{}
	for i := range servers {
		s, path := &servers[i], fmt.Sprintf("ci_servers[%d]", i)
		if s.URL == "" {
			d.problem(path+".url", "", "none given: want "+wanted("address"))
			continue
		}
		if u, err := url.Parse(s.URL); err == nil && s.Name == "" {
			s.Name = u.Host
		}
		if s.TokenFile == "" && s.HookSecretFile == "" && s.DatabaseFile == "" {
			d.problem(path, "", "nothing would tell of it: want token_file, hook_secret_file, or both")
		}
		if s.DatabaseFile != "" && (s.Kind != "drone" || s.TokenFile != "") {
			d.problem(path+".database_file", shown(s.DatabaseFile), "want kind drone, and no token_file")
		}
		if len(s.Sections) > 0 && (s.Kind != "gitlab" || s.TokenFile == "") {
			d.problem(path+".sections", "", "want kind gitlab, and token_file")
		}
		if names[s.Name] {
			d.problem(path+".name", shown(s.Name), "second time: want a name for each")
		}
		if f := s.Kind + " " + s.HookSecretFile; s.HookSecretFile != "" {
			if secrets[f] {
				d.problem(path+".hook_secret_file", shown(s.HookSecretFile), "second time for this kind: want a secret for each server, which tells whose a webhook is")
			}
			secrets[f] = true
		}
		names[s.Name] = true
	}
}
