package buildkite

import (
	"bytes"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// The labels and annotations of agent-stack-k8s (internal/controller/config).
const (
	podJob      = "buildkite.com/job-uuid"
	podBuildURL = "buildkite.com/build-url"
	podJobURL   = "buildkite.com/job-url"
	podBranch   = "buildkite.com/build-branch"
	podPipeline = "buildkite.com/pipeline-slug"
	podStepKey  = "buildkite.com/step-key"
)

// The containers of a job's pod. Those of the job wait until the agent gives them
// their turn.
const (
	containerAgent    = "agent"
	containerCheckout = "checkout"
	containerCommand  = "container-" // and a number; the job's own may have other names
	prefixSidecar     = "sidecar-"
	prefixCheck       = "imagecheck-" // and copy-agent: before the job
	containerCopy     = "copy-agent"
)

// Identify tells which job a container of the agent stack belongs to: one pod for
// each job. Group is the pod's UID. A pod without the address of its build, as
// stacks before 2024 make them, stands for a build of its own.
func Identify(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	p := c.Pod
	if p == nil || p.UID == "" || !ci.IsUUID(p.Labels[podJob]) {
		return id, false
	}
	a, job := p.Annotations, p.Labels[podJob]
	page, ok := ParseURL(a[podBuildURL])
	if !ok {
		page, ok = ParseURL(a[podJobURL])
	}
	id.Build = cimeter.Build{
		Key: ci.PodKey(CI, p), CI: CI, Name: c.Env["BUILDKITE_LABEL"], Ref: a[podBranch], SHA: c.Env["BUILDKITE_COMMIT"],
		Event: c.Env["BUILDKITE_SOURCE"], Runner: cimeter.Runner{Name: c.Env["BUILDKITE_AGENT_NAME"]},
	}
	b := &id.Build
	if b.Name == "" {
		b.Name = a[podStepKey]
	}
	if ok {
		b.Key, b.Server, b.Project, b.Number = Key(page.Server, page.Project, page.Number, job), page.Server, page.Project, page.Number
		b.URL = ci.PageOf(a[podBuildURL])
	}
	id.Group = p.UID
	podRole(c, &id)
	told, _ := ParseURL(a[podJobURL])
	id.Doubt = ci.FirstDoubt(
		ci.Disagree("job", "label", job, "annotation "+podJobURL, told.Job),
		ci.Disagree("build", "annotation "+podBuildURL, page.Project+"/"+page.Number, "annotation "+podJobURL, strings.Trim(told.Project+"/"+told.Number, "/")),
		ci.Disagree("pipeline", "annotation "+podBuildURL, page.Project[strings.LastIndexByte(page.Project, '/')+1:], "annotation "+podPipeline, a[podPipeline]),
		ci.Disagree("job", "label", job, "variable BUILDKITE_JOB_ID", c.Env["BUILDKITE_JOB_ID"]),
	)
	return id, true
}

func podRole(c *cimeter.Container, id *cimeter.Identity) {
	name := c.PodContainer()
	switch {
	case name == containerAgent:
		id.Role, id.Stage, id.Alongside = cimeter.RoleHelper, containerAgent, true
		return
	case name == containerCopy, strings.HasPrefix(name, prefixCheck):
		id.Role, id.Stage = cimeter.RoleCache, "prepare"
		return
	case strings.HasPrefix(name, prefixSidecar):
		id.Role, id.Stage, id.Alongside = cimeter.RoleService, ci.PodStage(c), true
		return
	}
	id.Role, id.Stage, id.Alongside, id.Inside = cimeter.RoleBuild, cimeter.StageWaiting, true, true
	switch id.Next = name; {
	case name == containerCheckout:
		id.Role = cimeter.RoleHelper
	case name == containerCommand+"0", name == "":
		id.Next = "command" // what the hook of this phase is called; further ones have their container's name
	}
}

// OwnProgram reports whether a command line is that of the agent's own process in a
// container of a job, which waits for its turn before it runs anything else.
func OwnProgram(cmdline []byte) bool {
	program, _, _ := bytes.Cut(cmdline, []byte{0})
	switch string(program[bytes.LastIndexByte(program, '/')+1:]) {
	case "", "buildkite-agent", "tini", "tini-static", "kubernetes-bootstrap":
		return true
	}
	return false
}
