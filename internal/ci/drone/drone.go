// Package drone tells which Drone build a container of the Docker runner
// (drone-runner-docker) or the Kubernetes runner (drone-runner-kube) belongs to. It is pure; [Identify] is its entry point.
//
// A build of cimeter is a Drone stage: one pipeline of the configuration file, run
// by one runner. Every step is a container of its own and names itself by a label.
package drone

import (
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// CI is the kind of CI system in builds of this package.
const CI = "drone"

// The labels of drone/runner-go labels/labels.go.
const (
	label            = "io.drone"
	labelHost        = label + ".system.host"
	labelRepo        = label + ".repo.slug"
	labelBuild       = label + ".build.number"
	labelStage       = label + ".stage.name"
	labelStageNumber = label + ".stage.number"
	labelStep        = label + ".step.name"
	labelCreated     = label + ".created" // Unix seconds; one value for all containers of a stage
)

// stepClone is the step that fetches the sources. The runner adds it.
const stepClone = "clone"

// Variables returns the environment variables worth reading. None holds a secret.
func Variables() []string {
	return []string{
		"DRONE_REPO", "DRONE_BUILD_NUMBER", "DRONE_BUILD_EVENT", "DRONE_BUILD_LINK", "DRONE_STAGE_NUMBER",
		"DRONE_STAGE_MACHINE", "DRONE_STEP_NAME", "DRONE_BRANCH", "DRONE_REPO_BRANCH", "DRONE_TAG", "DRONE_COMMIT_SHA",
		"DRONE_DOCKER_NETWORK_ID",
	}
}

// Identify tells which stage of a Drone build a container belongs to. ok is true
// for every container that carries Drone's labels with a build number.
//
// A Drone server numbers builds for each repository. A run that has no server
// (drone exec) has neither host nor repository; the second in which its
// containers were described stands for them in the key then.
//
// No label and no variable tells a service from a step: both have the role build
// here, and none is marked as running alongside. Group is the stage's network,
// which is known when the container was inspected.
func Identify(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	if c.Pod != nil {
		return identifyPod(c)
	}
	l := c.Labels
	if l[label] != "true" || !ci.IsDecimal(l[labelBuild]) {
		return id, false
	}
	id.Build = newBuild(l, c.Env)
	id.Stage = l[labelStep]
	id.Role = cimeter.RoleBuild
	if id.Stage == stepClone {
		id.Role = cimeter.RoleHelper
	}
	id.Group = ci.Network(c, IsName)
	if id.Group == "" && IsName(c.Env["DRONE_DOCKER_NETWORK_ID"]) {
		id.Group = c.Env["DRONE_DOCKER_NETWORK_ID"]
	}
	id.Doubt = doubt(c)
	return id, true
}

// newBuild maps the labels of a stage, which are annotations of a pod, and its
// variables.
func newBuild(l, env map[string]string) cimeter.Build {
	b := cimeter.Build{
		Key:           key(l),
		CI:            CI,
		Server:        strings.ToLower(l[labelHost]),
		Project:       l[labelRepo],
		Number:        l[labelBuild],
		Name:          l[labelStage],
		Ref:           env["DRONE_BRANCH"],
		DefaultBranch: env["DRONE_REPO_BRANCH"],
		SHA:           env["DRONE_COMMIT_SHA"],
		Event:         env["DRONE_BUILD_EVENT"],
		URL:           ci.PageOf(env["DRONE_BUILD_LINK"]),
		Runner:        cimeter.Runner{Name: env["DRONE_STAGE_MACHINE"]},
	}
	if tag := env["DRONE_TAG"]; tag != "" {
		b.Ref = tag
	}
	return b
}

func key(l map[string]string) string {
	host, repo := strings.ToLower(l[labelHost]), l[labelRepo]
	if host == "" {
		host = ci.Local
	}
	if repo == "" {
		repo = l[labelCreated]
	}
	return Key(host, repo, l[labelBuild], l[labelStageNumber])
}

// Key returns the key of a stage: host is the server's, with its port where it has
// one, in lower case; repo is a path such as org/app.
func Key(host, repo, build, stage string) string {
	return cimeter.BuildKey(CI, host, repo, build, stage)
}

// IsName reports whether s is a name that the runner gives a container or a
// network: drone- and 20 random letters and digits.
func IsName(s string) bool {
	random, ok := strings.CutPrefix(s, "drone-")
	if !ok || len(random) != 20 {
		return false
	}
	for i := range len(random) {
		b := random[i]
		if (b < '0' || b > '9') && (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') {
			return false
		}
	}
	return true
}

func doubt(c *cimeter.Container) string {
	l := c.Labels
	switch {
	case !IsName(c.Name):
		return "name: the labels are a Drone runner's, the name " + ci.Quote(c.Name) + " is not"
	case l[labelStep] == "":
		return "step: a Drone runner's container names its step, this one does not"
	}
	return differs("label", l, c.Env)
}

// differs compares what labels or annotations and variables say.
func differs(where string, l, env map[string]string) string {
	return ci.FirstDoubt(
		ci.Disagree("repository", where, l[labelRepo], "variable DRONE_REPO", env["DRONE_REPO"]),
		ci.Disagree("build number", where, l[labelBuild], "variable DRONE_BUILD_NUMBER", env["DRONE_BUILD_NUMBER"]),
		ci.Disagree("stage number", where, l[labelStageNumber], "variable DRONE_STAGE_NUMBER", env["DRONE_STAGE_NUMBER"]),
		ci.Disagree("step", where, l[labelStep], "variable DRONE_STEP_NAME", env["DRONE_STEP_NAME"]),
	)
}
