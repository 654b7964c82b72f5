// Package github tells which GitHub Actions job a container of the runner
// (actions/runner) belongs to: job containers, service containers and docker
// actions, and pods of Actions Runner Controller. It is pure; [Identify] and, for
// pods, [Pods] are its entry points.
//
// A job that has no container runs as plain processes and is not seen here. A
// job container tells neither repository nor run: its steps get those on docker
// exec. A docker action of the same job that ran in its network does.
package github

import (
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// CI is the kind of CI system in builds of this package.
const CI = "github"

// networkPrefix begins the name of a job's network; 32 hex digits follow
// (Container/ContainerOperationProvider.cs).
const networkPrefix = "github_network_"

// home is the home directory that the runner gives its job container and
// docker actions, and no service.
const home = "/github/home"

// Variables returns the environment variables worth reading. None holds a secret.
func Variables() []string {
	return append(ci.ActionsVariables(), "HOME")
}

// Identify tells which job a container belongs to. ok is true for a container in
// a job's network, and for one with the runner's label (six hex digits with no
// value) and its variable or form of name.
//
// The key is the job's network, which the runner makes for each job with a
// container. A docker action of a job without one is known by repository, run,
// attempt, job and runner; where even those are not known, the container stands for
// itself. Group is the network.
func Identify(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	if c.Pod != nil {
		return cimeter.Identity{}, false // see Pods
	}
	id.Group = ci.Network(c, IsNetwork)
	labelled := hasLabel(c.Labels)
	if id.Group == "" && !(labelled && (c.Env["GITHUB_ACTIONS"] == "true" || IsName(c.Name))) {
		return cimeter.Identity{}, false
	}
	id.Build = ci.Actions(c.Env)
	id.Build.CI = CI
	id.Build.Number = c.Env["GITHUB_RUN_NUMBER"]
	if b := id.Build; b.Server != "" && b.Project != "" && ci.IsDecimal(b.Pipeline) {
		id.Build.URL = ci.PageOf(strings.TrimRight(c.Env["GITHUB_SERVER_URL"], "/") + "/" + b.Project + "/actions/runs/" + b.Pipeline)
	}
	id.Build.Key = key(c, id.Group, id.Build)
	job := c.Env == nil || c.Env["HOME"] == home
	id.Role, id.Stage, id.Alongside = ci.ActionsStage(c, job)
	switch {
	case !labelled:
		id.Doubt = "label: the network is a GitHub runner's, the runner's label is missing"
	case !IsName(c.Name):
		id.Doubt = "name: label and network are a GitHub runner's, the name " + ci.Quote(c.Name) + " is not"
	case c.Env != nil && c.Env["GITHUB_ACTIONS"] != "true":
		id.Doubt = "variables: label and name are a GitHub runner's, GITHUB_ACTIONS is not true"
	}
	return id, true
}

func key(c *cimeter.Container, network string, b cimeter.Build) string {
	switch {
	case network != "":
		return cimeter.BuildKey(CI, ci.Local, strings.TrimPrefix(network, networkPrefix))
	case b.Server != "" && b.Project != "" && b.Pipeline != "":
		return Key(b.Server, b.Project, b.Pipeline, b.Attempt, b.Runner.Name, b.Name)
	}
	return cimeter.BuildKey(CI, ci.Local, c.ID)
}

// IsNetwork reports whether name is that of a job's network.
func IsNetwork(name string) bool {
	random, ok := strings.CutPrefix(name, networkPrefix)
	return ok && ci.IsHex(random, 32)
}

// IsName reports whether name is one that the runner gives a container:
// <alias>_<image>_<6 hex> or, for docker actions, <image>_<6 hex>.
func IsName(name string) bool {
	i := strings.LastIndexByte(name, '_')
	return i > 0 && ci.IsHex(name[i+1:], 6)
}

// hasLabel looks for the runner's label: the first six hex digits of a hash
// of its configuration, with no value.
func hasLabel(labels map[string]string) bool {
	for name, value := range labels {
		if value == "" && ci.IsHex(name, 6) {
			return true
		}
	}
	return false
}
