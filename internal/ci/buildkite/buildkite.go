// Package buildkite tells which Buildkite job a process or a pod of the agent stack
// for Kubernetes belongs to. It is pure; [Identify] and [OfProcess] are its entry
// points.
package buildkite

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// CI is the kind of CI system in builds of this package.
const CI = "buildkite"

// Key returns the key of a job: server is the host of Buildkite's address, project
// ORGANISATION/PIPELINE, number that of the build, job the job's UUID.
func Key(server, project, number, job string) string {
	return cimeter.BuildKey(CI, server, project, number, job)
}

// Variables returns the environment variables worth reading of a job's processes.
// None holds a secret.
func Variables() []string {
	return []string{
		"BUILDKITE", "BUILDKITE_JOB_ID", "BUILDKITE_BUILD_URL", "BUILDKITE_BUILD_NUMBER", "BUILDKITE_ORGANIZATION_SLUG",
		"BUILDKITE_PIPELINE_SLUG", "BUILDKITE_LABEL", "BUILDKITE_STEP_KEY", "BUILDKITE_BRANCH", "BUILDKITE_TAG", "BUILDKITE_COMMIT",
		"BUILDKITE_SOURCE", "BUILDKITE_RETRY_COUNT", "BUILDKITE_AGENT_ID", "BUILDKITE_AGENT_NAME", "BUILDKITE_HOOK_PHASE",
	}
}

// OfProcess tells by the variables of a process which job it belongs to. ok is false
// for one without a job's id and its build. The stage is the phase of a hook, where
// the process is one's.
func OfProcess(env map[string]string) (id cimeter.Identity, ok bool) {
	job, number := env["BUILDKITE_JOB_ID"], env["BUILDKITE_BUILD_NUMBER"]
	page, paged := ParseURL(env["BUILDKITE_BUILD_URL"])
	project := page.Project
	if !paged {
		project = env["BUILDKITE_ORGANIZATION_SLUG"] + "/" + env["BUILDKITE_PIPELINE_SLUG"]
		page.Server, page.Number = "buildkite.com", number
	}
	if !ci.IsUUID(job) || !ci.IsDecimal(page.Number) || len(project) < len("a/b") || strings.HasPrefix(project, "/") || strings.HasSuffix(project, "/") {
		return id, false
	}
	id.Build = cimeter.Build{
		Key: Key(page.Server, project, page.Number, job), CI: CI, Server: page.Server, Project: project, Number: page.Number,
		Name: env["BUILDKITE_LABEL"], Ref: env["BUILDKITE_BRANCH"], SHA: env["BUILDKITE_COMMIT"], Event: env["BUILDKITE_SOURCE"],
		Runner: cimeter.Runner{ID: env["BUILDKITE_AGENT_ID"], Name: env["BUILDKITE_AGENT_NAME"]},
	}
	b := &id.Build
	if paged {
		b.URL = ci.PageOf(env["BUILDKITE_BUILD_URL"])
	}
	if b.Name == "" {
		b.Name = env["BUILDKITE_STEP_KEY"]
	}
	if tag := env["BUILDKITE_TAG"]; tag != "" {
		b.Ref = tag
	}
	if n, err := strconv.Atoi(env["BUILDKITE_RETRY_COUNT"]); err == nil && n >= 0 && n < 1000 {
		b.Attempt = n + 1
	}
	id.Role, id.Stage, id.Group = cimeter.RoleBuild, env["BUILDKITE_HOOK_PHASE"], ""
	id.Doubt = ci.FirstDoubt(
		ci.Disagree("build number", "variable BUILDKITE_BUILD_URL", page.Number, "variable BUILDKITE_BUILD_NUMBER", number),
		ci.Disagree("pipeline", "variable BUILDKITE_BUILD_URL", project[strings.LastIndexByte(project, '/')+1:], "variable BUILDKITE_PIPELINE_SLUG", env["BUILDKITE_PIPELINE_SLUG"]),
	)
	return id, true
}

// Page is where a build is shown.
type Page struct {
	Server  string // host, and port where it is given, in lower case
	Project string // ORGANISATION/PIPELINE
	Number  string // of the build, decimal
	Job     string // UUID; "" where the address is the build's
}

// ParseURL reads the address of a build or of a job:
//
//	https://buildkite.com/ORGANISATION/PIPELINE/builds/17#0190c0de-...
func ParseURL(address string) (p Page, ok bool) {
	u, err := url.Parse(address)
	if err != nil || len(address) > maxURL {
		return Page{}, false
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) != 4 || parts[0] == "" || parts[1] == "" || parts[2] != "builds" || !ci.IsDecimal(parts[3]) {
		return Page{}, false
	}
	p = Page{Server: ci.ServerOf(address), Project: parts[0] + "/" + parts[1], Number: parts[3]}
	if ci.IsUUID(u.Fragment) {
		p.Job = u.Fragment
	}
	return p, p.Server != ""
}

// maxURL bounds an address in bytes.
const maxURL = 2048
