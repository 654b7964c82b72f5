// Package woodpecker tells which Woodpecker workflow a container of the Docker or
// the Kubernetes backend belongs to. It is pure; [Identify] is its entry point.
//
// A build of cimeter is a workflow. Every step is a container of its own, and the
// containers of a workflow share a network. The labels say nothing of the build, so
// a container must have been inspected to be put to its repository.
package woodpecker

import (
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// CI is the kind of CI system in builds of this package.
const CI = "woodpecker"

// The labels of pipeline/backend/docker/convert.go. There are none before January 2024.
const (
	labelUUID = "wp_uuid"
	labelStep = "wp_step"
)

// The names of pipeline/frontend/builder: containers wp_<uuid of the step>,
// networks wp_<ulid of the pipeline run>_<workflow number>_default.
const (
	namePrefix    = "wp_"
	networkSuffix = "_default"
)

// Variables returns the environment variables worth reading. None holds a
// secret. (CI_SCRIPT does and is not among them.)
func Variables() []string {
	return []string{
		"CI_SYSTEM_NAME", "CI_SYSTEM_HOST", "CI_SYSTEM_URL", "CI_REPO", "CI_PIPELINE_NUMBER", "CI_PIPELINE_EVENT",
		"CI_PIPELINE_URL", "CI_WORKFLOW_NAME", "CI_WORKFLOW_NUMBER", "CI_STEP_NAME", "CI_STEP_TYPE",
		"CI_COMMIT_BRANCH", "CI_REPO_DEFAULT_BRANCH", "CI_COMMIT_TAG", "CI_COMMIT_SHA",
	}
}

// Identify tells which workflow a container belongs to. ok is true for a
// container with Woodpecker's labels, and for one without labels whose name and
// variables are Woodpecker's.
//
// The key ends in the workflow's name, and in its number also when that is not 1:
// the legs of a matrix have one name. A container whose repository is not known
// (woodpecker-cli exec, or not inspected) has its network's name instead, and
// where that is not known either, its own.
func Identify(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	if c.Pod != nil {
		return identifyPod(c)
	}
	uuid, labelled := c.Labels[labelUUID]
	ours := c.Env["CI_SYSTEM_NAME"] == CI
	if !labelled && !(ours && strings.HasPrefix(c.Name, namePrefix)) {
		return id, false
	}
	e := c.Env
	if c.Env != nil && !ours {
		e = nil // labels without the variables: the variables that are there are another system's
	}
	id.Group = ci.Network(c, IsNetwork)
	id.Build = build(c, e, id.Group)
	step := e["CI_STEP_NAME"]
	if labelled && c.Labels[labelStep] != "" {
		step = c.Labels[labelStep]
	}
	id.Role, id.Stage, id.Alongside = role(e["CI_STEP_TYPE"], step)
	id.Doubt = doubt(c, uuid, labelled, ours)
	return id, true
}

func build(c *cimeter.Container, e map[string]string, group string) cimeter.Build {
	b := cimeter.Build{CI: CI, Name: e["CI_WORKFLOW_NAME"], Event: e["CI_PIPELINE_EVENT"], Ref: e["CI_COMMIT_BRANCH"], DefaultBranch: e["CI_REPO_DEFAULT_BRANCH"], SHA: e["CI_COMMIT_SHA"]}
	if tag := e["CI_COMMIT_TAG"]; tag != "" {
		b.Ref = tag
	}
	if e["CI_REPO"] == "" || !ci.IsDecimal(e["CI_PIPELINE_NUMBER"]) {
		unique := group
		if unique == "" {
			unique = c.Name
		}
		b.Key = cimeter.BuildKey(CI, ci.Local, unique)
		return b
	}
	b.Project, b.Number = e["CI_REPO"], e["CI_PIPELINE_NUMBER"]
	b.URL = ci.PageOf(e["CI_PIPELINE_URL"])
	if b.Server = ci.ServerOf(e["CI_SYSTEM_URL"]); b.Server == "" {
		b.Server = strings.ToLower(e["CI_SYSTEM_HOST"])
	}
	server := b.Server
	if server == "" {
		server = ci.Local
	}
	b.Key = Key(server, b.Project, b.Number, b.Name, e["CI_WORKFLOW_NUMBER"])
	return b
}

// Key returns the key of a workflow: repo is a path such as org/app, pipeline the
// number of the pipeline in it, number that of the workflow in the pipeline.
func Key(server, repo, pipeline, workflow, number string) string {
	parts := []string{server, repo, pipeline, workflow}
	if number != "" && number != "1" {
		parts = append(parts, number)
	}
	return cimeter.BuildKey(CI, parts...)
}

// role maps the type of a step: clone, service, plugin, commands, cache.
func role(typ, step string) (r cimeter.Role, stage string, alongside bool) {
	switch typ {
	case "service":
		return cimeter.RoleService, "service:" + step, true
	case "clone":
		return cimeter.RoleHelper, step, false
	case "cache":
		return cimeter.RoleCache, step, false
	}
	return cimeter.RoleBuild, step, false
}

// IsNetwork reports whether name is that of a workflow's network.
func IsNetwork(name string) bool {
	rest, ok := strings.CutPrefix(name, namePrefix)
	if !ok {
		return false
	}
	if rest, ok = strings.CutSuffix(rest, networkSuffix); !ok {
		return false
	}
	run, workflow, ok := strings.Cut(rest, "_")
	return ok && run != "" && ci.IsDecimal(workflow)
}

func doubt(c *cimeter.Container, uuid string, labelled, ours bool) string {
	switch {
	case labelled && c.Name != namePrefix+uuid:
		return "name: label " + labelUUID + " says " + ci.Quote(uuid) + ", the name is " + ci.Quote(c.Name)
	case labelled && uuid == "":
		return "name: label " + labelUUID + " is empty"
	case labelled && c.Env != nil && !ours:
		return "variables: the labels are Woodpecker's, CI_SYSTEM_NAME is not woodpecker"
	}
	return ci.Disagree("step", "label "+labelStep, c.Labels[labelStep], "variable CI_STEP_NAME", c.Env["CI_STEP_NAME"])
}
