// Package prow tells which ProwJob a container belongs to. It is pure; [Identify] is
// its entry point.
package prow

import (
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// CI is the kind of CI system in builds of this package.
const CI = "prow"

// The labels of pkg/kube/prowjob.go. Job and context stand in annotations of the same
// name too, where they are not cut.
const (
	labelProw    = "created-by-prow"
	labelID      = "prow.k8s.io/id"
	labelBuildID = "prow.k8s.io/build-id"
	labelType    = "prow.k8s.io/type"
	labelJob     = "prow.k8s.io/job"
	labelOrg     = "prow.k8s.io/refs.org"
	labelRepo    = "prow.k8s.io/refs.repo"
	labelBase    = "prow.k8s.io/refs.base_ref"
)

// The containers of pkg/pod-utils/decorate/podspec.go.
const (
	containerTest    = "test"
	containerSidecar = "sidecar"
	containerClone   = "clonerefs"
)

// Identify tells which job a container belongs to. A job is one pod, named by the
// job's id: Group is the pod's UID.
//
// The sidecar, which uploads log and artifacts, runs alongside.
func Identify(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	p := c.Pod
	if p == nil || p.UID == "" || p.Labels[labelProw] != "true" || !ci.IsUUID(p.Labels[labelID]) {
		return id, false
	}
	l := p.Labels
	job := p.Annotations[labelJob]
	if job == "" {
		job = l[labelJob]
	}
	id.Build = cimeter.Build{
		Key: cimeter.BuildKey(CI, ci.Local, l[labelID]), CI: CI, Project: project(l[labelOrg], l[labelRepo]),
		Number: l[labelBuildID], Name: job, Ref: l[labelBase], Event: l[labelType],
	}
	if id.Build.Project == "" { // a periodic job of no repository
		id.Build.Project = job
	}
	id.Group = p.UID
	switch name := c.PodContainer(); name {
	case containerTest, "":
		id.Role, id.Stage = cimeter.RoleBuild, containerTest
	case containerClone:
		id.Role, id.Stage = cimeter.RoleHelper, containerClone
	case "initupload", "place-entrypoint":
		id.Role, id.Stage = cimeter.RoleCache, "prepare"
	case containerSidecar:
		id.Role, id.Stage, id.Alongside = cimeter.RoleHelper, containerSidecar, true
	default: // of a job with several, or that decorates itself
		id.Role, id.Stage = cimeter.RoleBuild, name
	}
	id.Doubt = ci.FirstDoubt(
		ci.Disagree("job", "label", l[labelID], "the pod's name", p.Name),
		ci.Disagree("job", "label", l[labelID], "variable PROW_JOB_ID", c.Env["PROW_JOB_ID"]),
	)
	return id, true
}

// Variables returns the environment variables worth reading. None holds a secret.
func Variables() []string { return []string{"PROW_JOB_ID"} }

// project joins organisation and repository. Gerrit's have a scheme and slashes.
func project(org, repo string) string {
	if org == "" || repo == "" {
		return ""
	}
	return strings.TrimPrefix(strings.TrimPrefix(org, "https://"), "http://") + "/" + repo
}
