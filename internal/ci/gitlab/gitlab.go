// Package gitlab knows GitLab Runner: which job a container of its docker
// or Kubernetes executor belongs to, which stage of the job runs in it, and how to ask a
// runner what its jobs are at.
//
// [Identify] maps a container's metadata to a job. [Stages] follows one job and
// names its segments. [StageOfCommand] and [AppendJobStates] read what a process
// and a runner say of a stage. All of these are pure. [JobList] alone does I/O: one
// HTTP request for each call. The package never stores a command line and reads
// no variable that [Variables] does not name.
//
// Facts are from the source of GitLab Runner 19.4 and a recorded run of 15.4. The
// executors docker+machine and docker-autoscaler make the same containers as
// docker does, so nothing here tells them apart.
package gitlab

import (
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// CI is the kind of CI system in builds of this package.
const CI = "gitlab"

// The labels of executors/docker/internal/labels/labels.go.
const (
	prefix         = "com.gitlab.gitlab-runner."
	labelManaged   = prefix + "managed"
	labelJobID     = prefix + "job.id"
	labelJobURL    = prefix + "job.url"
	labelJobRef    = prefix + "job.ref"
	labelJobSHA    = prefix + "job.sha"
	labelPipeline  = prefix + "pipeline.id"
	labelProjectID = prefix + "project.id"
	labelSlot      = prefix + "project.runner_id" // concurrent number within the project
	labelRunner    = prefix + "runner.id"         // the short token
	labelSystemID  = prefix + "runner.system_id"  // since 18.4
	labelType      = prefix + "type"
	labelService   = prefix + "service" // image of a service
)

// Variables returns the environment variables worth reading of a job's
// containers. None holds a secret.
func Variables() []string {
	return []string{
		"GITLAB_CI", "CI_JOB_ID", "CI_JOB_NAME", "CI_JOB_STAGE", "CI_PROJECT_ID", "CI_PROJECT_PATH",
		"CI_PIPELINE_ID", "CI_PIPELINE_SOURCE", "CI_DEFAULT_BRANCH", "CI_SERVER_URL", "CI_RUNNER_SHORT_TOKEN", "CI_RUNNER_DESCRIPTION",
	}
}

// Identify tells which GitLab job a container belongs to. ok is true for every
// container that carries the runner's labels with a job id, also when only an
// image or a user put them there: Doubt says so then. Of one in a pod, it is the
// pod's labels and annotations.
//
// What the runner makes is believed where labels and name agree. The
// variables of a job are its author's to overwrite, so they add what no label has
// (name, pipeline stage, event) and are otherwise only compared.
//
// Group is the name up to and with the 16 hex digits that the runner draws for
// each job (since 12.10). Cache containers are named after their volume, which
// outlives a job: their Group is "".
func Identify(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	if c.Pod != nil {
		return identifyPod(c)
	}
	l := c.Labels
	job := l[labelJobID]
	if l[labelManaged] != "true" || !ci.IsDecimal(job) {
		return id, false
	}
	page, pageOK := ParseJobURL(l[labelJobURL])
	server := page.Server
	if server == "" { // runners before 13.11
		server = ci.ServerOf(c.Env["CI_SERVER_URL"])
	}
	name, nameOK := parseName(c.Name)
	id.Build = cimeter.Build{
		Key:           key(server, l[labelRunner], job),
		CI:            CI,
		Server:        server,
		Project:       project(page.Project, c.Env["CI_PROJECT_PATH"]),
		Number:        job,
		Name:          c.Env["CI_JOB_NAME"],
		Pipeline:      l[labelPipeline],
		PipelineStage: c.Env["CI_JOB_STAGE"],
		Ref:           l[labelJobRef],
		DefaultBranch: c.Env["CI_DEFAULT_BRANCH"],
		SHA:           l[labelJobSHA],
		Event:         c.Env["CI_PIPELINE_SOURCE"],
		Runner: cimeter.Runner{
			ID:         l[labelSystemID],
			ShortToken: l[labelRunner],
			Name:       c.Env["CI_RUNNER_DESCRIPTION"],
		},
	}
	if pageOK {
		id.Build.URL = ci.PageOf(l[labelJobURL])
	}
	id.Role, id.Stage, id.Alongside = role(l[labelType], l[labelService], name.suffix)
	id.Group = name.group
	id.Doubt = doubt(c, name, nameOK, page.Job, id.Role)
	return id, true
}

// key is unique by server and job id: GitLab numbers jobs across an instance.
// Where the server is not known the runner's token stands for it.
func key(server, token, job string) string {
	if server == "" {
		return cimeter.BuildKey(CI, ci.Local, token, job)
	}
	return cimeter.BuildKey(CI, server, job)
}

// project returns the path of the project. The job's URL is the runner's own
// word, but may begin with the path under which the GitLab instance is served; the
// variable, where it is the end of the URL's path, tells how much of it is that.
func project(fromURL, fromEnv string) string {
	if fromURL == "" {
		return fromEnv
	}
	if n := len(fromURL) - len(fromEnv); fromEnv != "" && n > 0 && fromURL[n-1] == '/' && strings.EqualFold(fromURL[n:], fromEnv) {
		return fromEnv
	}
	return fromURL
}

// role maps the type label. The stages of build and helper containers are told
// by [Stages].
func role(typ, service, suffix string) (r cimeter.Role, stage string, alongside bool) {
	switch typ {
	case "build":
		return cimeter.RoleBuild, "", false
	case "predefined":
		return cimeter.RoleHelper, "", false
	case "service":
		if service == "" {
			service = strings.ReplaceAll(suffix, "__", "/")
			if i := strings.LastIndexByte(service, '-'); i >= 0 {
				service = service[:i]
			}
		}
		return cimeter.RoleService, "service:" + ci.ImageName(service), true
	case "wait":
		return cimeter.RoleWait, StagePrepareExecutor, false
	case "cache-init":
		return cimeter.RoleCache, StagePrepareExecutor, false
	}
	return "", "", false
}

// doubt compares what the labels say with the name and the environment.
func doubt(c *cimeter.Container, name containerName, nameOK bool, urlJob string, r cimeter.Role) string {
	l := c.Labels
	switch {
	case r == "":
		return "type: the labels say " + ci.Quote(l[labelType]) + ", which no container of a runner has"
	case !nameOK:
		return "name: the labels are a GitLab runner's, the name " + ci.Quote(c.Name) + " is not"
	case !suffixFits(r, name):
		return "type: the labels say " + ci.Quote(l[labelType]) + ", the name ends in " + ci.Quote(name.suffix)
	}
	return ci.FirstDoubt(
		ci.Disagree("job id", "label", l[labelJobID], "label job.url", urlJob),
		ci.Disagree("project id", "label", l[labelProjectID], "name", name.project),
		ci.Disagree("concurrent number", "label", l[labelSlot], "name", name.slot),
		ci.Disagree("runner token", "label", cleanName(l[labelRunner]), "name", name.token),
		ci.Disagree("job id", "label", l[labelJobID], "variable CI_JOB_ID", c.Env["CI_JOB_ID"]),
		ci.Disagree("project id", "label", l[labelProjectID], "variable CI_PROJECT_ID", c.Env["CI_PROJECT_ID"]),
		ci.Disagree("runner token", "label", l[labelRunner], "variable CI_RUNNER_SHORT_TOKEN", c.Env["CI_RUNNER_SHORT_TOKEN"]),
	)
}
