// Package act knows the containers of nektos/act, which runs GitHub workflows
// on one machine. It is pure; [Identify] is its entry point.
//
// Nothing in a container of act tells the run, the repository or the server: it
// has no labels, and a name that is the same at every run of the same job. So the
// job container stands for the build by its id.
package act

import (
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// CI is the kind of CI system in builds of this package.
const CI = "act"

// Variables returns the environment variables worth reading. None holds a secret.
func Variables() []string { return ci.ActionsVariables() }

// Identify tells whether a container is one of act's, by its name alone:
//
//	act-<workflow>-<job>-<64 hex>
//
// A docker action runs in the network of its job container and is put to its
// build. A service cannot be: it is a build of its own. Group is the network of
// the job, which there is only for jobs with services.
//
// A name is easily chosen, but claims no other build: the key is a container's id.
func Identify(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	name, ok := ParseName(c.Name)
	if !ok {
		return id, false
	}
	id.Build = ci.Actions(c.Env)
	id.Build.CI = CI
	if id.Build.Name == "" {
		id.Build.Name = name
	}
	owner := c.ID
	if job, ok := strings.CutPrefix(c.NetworkMode, "container:"); ok && ci.IsHex(job, 64) {
		owner = job
	}
	id.Build.Key = cimeter.BuildKey(CI, ci.Local, owner)
	id.Group = ci.Network(c, func(name string) bool {
		return strings.HasPrefix(name, "act-") && strings.HasSuffix(name, "-network")
	})
	id.Role, id.Stage, id.Alongside = ci.ActionsStage(c, IsJob(c))
	return id, true
}

// ParseName returns the readable part of the name of a container of act: workflow
// and job joined by -, cut at 63 characters with the prefix.
func ParseName(name string) (job string, ok bool) {
	rest, ok := strings.CutPrefix(name, "act-")
	if !ok {
		return "", false
	}
	i := strings.LastIndexByte(rest, '-')
	if i <= 0 || !ci.IsHex(rest[i+1:], 64) {
		return "", false
	}
	return rest[:i], true
}

// IsJob reports whether the container is taken for a job's own and not for a
// service: act tells job containers and docker actions where their tools are, and
// services nothing. A container that was not inspected is taken for a job's.
func IsJob(c *cimeter.Container) bool {
	return c.Env == nil || c.Env["RUNNER_TOOL_CACHE"] != ""
}
