package ci

import (
	"strconv"

	"github.com/cimeter/cimeter"
)

// ActionsVariables returns the variables that GitHub Actions and the runners that
// follow it (Gitea, Forgejo, act) give to the containers of docker actions. Job and
// service containers have few of them: their steps get theirs on docker exec. None
// holds a secret.
func ActionsVariables() []string {
	return []string{
		"GITHUB_ACTIONS", "GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT", "GITHUB_RUN_NUMBER",
		"GITHUB_JOB", "GITHUB_ACTION", "GITHUB_REF_NAME", "GITHUB_SHA", "GITHUB_EVENT_NAME", "RUNNER_NAME", "RUNNER_TOOL_CACHE",
	}
}

// Actions returns what those variables say of a build.
func Actions(env map[string]string) cimeter.Build {
	b := cimeter.Build{
		Server:   ServerOf(env["GITHUB_SERVER_URL"]),
		Project:  env["GITHUB_REPOSITORY"],
		Name:     env["GITHUB_JOB"],
		Pipeline: env["GITHUB_RUN_ID"],
		Ref:      env["GITHUB_REF_NAME"],
		SHA:      env["GITHUB_SHA"],
		Event:    env["GITHUB_EVENT_NAME"],
		Runner:   cimeter.Runner{Name: env["RUNNER_NAME"]},
	}
	if n, err := strconv.Atoi(env["GITHUB_RUN_ATTEMPT"]); err == nil && n > 0 {
		b.Attempt = n
	}
	return b
}

// StageJob is the stage of a job container of an Actions runner: every run step
// of the job is executed in it, so they are one stage.
const StageJob = "job"

// ActionsStage returns role and stage of a container of an Actions job by its
// environment: a docker action is a step of its own and named by GITHUB_ACTION. job
// is false for a service, whose stage its image names.
func ActionsStage(c *cimeter.Container, job bool) (r cimeter.Role, stage string, alongside bool) {
	switch {
	case c.Env["GITHUB_ACTION"] != "":
		return cimeter.RoleBuild, c.Env["GITHUB_ACTION"], false
	case job:
		return cimeter.RoleBuild, StageJob, false
	}
	return cimeter.RoleService, "service:" + ImageName(c.Image), true
}
