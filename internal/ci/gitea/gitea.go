// Package gitea tells which task a container of the Gitea runner or the Forgejo
// runner belongs to. Both descend from act and give their containers no labels; the
// name holds the task. It is pure; [Identify] is its entry point.
package gitea

import (
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// The kinds of CI system in builds of this package.
const (
	CI      = "gitea"
	Forgejo = "forgejo"
)

// Variables returns the environment variables worth reading. None holds a secret.
func Variables() []string {
	return append(ci.ActionsVariables(), "GITEA_ACTIONS", "FORGEJO_ACTIONS", "JOB_CONTAINER_NAME")
}

// Identify tells which task a container belongs to, by its name alone:
//
//	GITEA-ACTIONS-TASK-<id>-WORKFLOW-<name>-JOB-<name>, cut at 63, and -<64 hex>
//	GITEA-ACTIONS-TASK-<id>_WORKFLOW-<name>_JOB-<name>     (before the hash came)
//	FORGEJO-ACTIONS-TASK-<id>_WORKFLOW-<64 hex>_JOB-<name>
//
// The task's id is unique on a server. The server is known where a docker
// action's variables tell it; a key is made without it for all containers of a task,
// so two servers' runners on one machine can give two builds one key. Group then
// tells them apart: it is the network of the job, where the job has one of its own.
//
// A container without the variables that the runner gives its job containers is
// taken for a service. Nothing but the name is there to be contradicted, so Doubt
// is set only where a variable names another job container's task.
func Identify(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	n, ok := ParseName(c.Name)
	if !ok {
		return id, false
	}
	id.Build = ci.Actions(c.Env)
	id.Build.CI = n.CI
	id.Build.Key = Key(n.CI, n.Task)
	id.Build.Number = n.Task
	if id.Build.Name == "" {
		id.Build.Name = n.Job
	}
	id.Group = ci.Network(c, isNetwork)
	id.Role, id.Stage, id.Alongside = ci.ActionsStage(c, isJob(c, n))
	if id.Role != cimeter.RoleService && n.Step != "" {
		id.Stage = n.Step
	}
	if job, ok := ParseName(c.Env["JOB_CONTAINER_NAME"]); ok {
		id.Doubt = ci.Disagree("task", "name", n.Task, "variable JOB_CONTAINER_NAME", job.Task)
	}
	return id, true
}

// Key returns the key of a task of a kind of server, [CI] or [Forgejo].
func Key(kind, task string) string { return cimeter.BuildKey(kind, ci.Local, task) }

// Name is what the name of a container tells.
type Name struct {
	CI   string // gitea or forgejo
	Task string // id of the task, decimal
	Job  string // name of the job; "" when the name was cut before its end
	Step string // id of the step, of a docker action in names without a hash
	Hash bool   // the name ends in a hash: it is not Forgejo's job container
}

// ParseName reads the name of a container of the Gitea or the Forgejo runner.
func ParseName(s string) (n Name, ok bool) {
	rest, ok := strings.CutPrefix(s, "GITEA-ACTIONS-TASK-")
	n.CI = CI
	if !ok {
		if rest, ok = strings.CutPrefix(s, "FORGEJO-ACTIONS-TASK-"); !ok {
			return Name{}, false
		}
		n.CI = Forgejo
	}
	end := strings.IndexAny(rest, "-_")
	if end < 0 || !ci.IsDecimal(rest[:end]) {
		return Name{}, false
	}
	n.Task = rest[:end]
	separator := rest[end : end+1]
	cut := false
	if i := strings.LastIndexByte(s, '-'); ci.IsHex(s[i+1:], 64) {
		n.Hash = true
		cut = i >= maxReadable
		rest = strings.TrimSuffix(rest, s[i:])
	}
	if i := strings.Index(rest, separator+"JOB-"); i >= 0 && !cut {
		n.Job = rest[i+len(separator+"JOB-"):]
		if before, step, ok := strings.Cut(n.Job, separator+"STEP-"); ok {
			n.Job, n.Step = before, step
		}
		n.Job, _, _ = strings.Cut(n.Job, separator+"CALLED-BY-")
	}
	return n, true
}

// maxReadable is the length at which the runner cuts a name before it puts the
// hash to it.
const maxReadable = 63

// isJob reports whether the container is taken for a job's own or a docker
// action's, and not for a service.
func isJob(c *cimeter.Container, n Name) bool {
	switch {
	case c.Env == nil || n.CI == Forgejo && !n.Hash:
		return true
	}
	return c.Env["RUNNER_TOOL_CACHE"] != "" || c.Env["JOB_CONTAINER_NAME"] != ""
}

// isNetwork reports whether name is that of a job's network: Gitea's
// <job container>-<job id>-network, Forgejo's WORKFLOW-<random>.
func isNetwork(name string) bool {
	if strings.HasPrefix(name, "WORKFLOW-") {
		return true
	}
	_, ok := ParseName(name)
	return ok && strings.HasSuffix(name, "-network")
}
