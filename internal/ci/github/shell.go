package github

import (
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// ShellVariables returns the environment variables worth reading of the
// processes of a job that runs on a host. None holds a secret.
func ShellVariables() []string {
	return append(ci.ActionsVariables(), "RUNNER_TRACKING_ID", "GITEA_ACTIONS", "FORGEJO_ACTIONS")
}

// OfProcess tells by the variables of a process which job it belongs to: one that
// the runner (actions/runner) started for a step. The stage is the step's id; a
// hook has none.
func OfProcess(env map[string]string) (id cimeter.Identity, ok bool) {
	b := ci.Actions(env)
	if env["GITHUB_ACTIONS"] != "true" || env["GITEA_ACTIONS"] != "" || env["FORGEJO_ACTIONS"] != "" ||
		b.Server == "" || b.Project == "" || !ci.IsDecimal(b.Pipeline) {
		return id, false
	}
	b.CI, b.Number = CI, env["GITHUB_RUN_NUMBER"]
	b.Key = Key(b.Server, b.Project, b.Pipeline, b.Attempt, b.Runner.Name, b.Name)
	b.URL = ci.PageOf(strings.TrimRight(env["GITHUB_SERVER_URL"], "/") + "/" + b.Project + "/actions/runs/" + b.Pipeline)
	id.Build, id.Role, id.Stage = b, cimeter.RoleBuild, env["GITHUB_ACTION"]
	if id.Stage == "" {
		id.Stage = "hook"
	}
	return id, true
}
