package github

import (
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// The labels of Actions Runner Controller (controllers/actions.github.com), of its
// predecessor (controllers/actions.summerwind.net), and of the container hooks
// (runner-container-hooks packages/k8s).
const (
	podEphemeral = "actions-ephemeral-runner" // True
	podOld       = "actions-runner"
	podRunner    = "runner-pod" // in pods that the hooks make: the name of the runner's
)

// The containers of runner pods and of those that the hooks make.
const (
	containerRunner = "runner"
	containerJob    = "job"
	containerDind   = "dind"
)

// Ephemeral is what the status of an EphemeralRunner tells of the job that its
// runner has.
type Ephemeral struct {
	ConfigURL  string // of the scale set: https://github.com/ORG
	Repository string // OWNER/NAME
	RunID      string // decimal
	Job        string // as the API shows it
	Ref        string // of the workflow: OWNER/NAME/.github/workflows/ci.yml@refs/heads/main
}

// Known reports whether the runner has got a job.
func (e Ephemeral) Known() bool {
	return strings.Count(e.Repository, "/") == 1 && ci.IsDecimal(e.RunID) && e.RunID != "0" && ci.ServerOf(e.ConfigURL) != ""
}

// Pods returns an Identifier for pods of Actions Runner Controller. job returns
// what is known of the job of a runner, by its namespace and name, and whether there
// is anybody to ask for it; nil: nobody. It is called wherever the identifier is, and
// must not wait.
//
// Labels tell the scale set, and neither repository nor run. So without somebody to
// ask the runner stands for the build, with the pods that the container hooks made
// for it; with somebody, such a container is nobody's until its runner has got a job.
//
// Group is the runner: namespace and name. A job that may make pods, as the
// container hooks must, can put one to any runner of its namespace.
func Pods(job func(namespace, runner string) (e Ephemeral, asked bool)) ci.Identifier {
	return func(c *cimeter.Container) (id cimeter.Identity, ok bool) {
		runner, ok := runnerOf(c.Pod)
		if !ok {
			return id, false
		}
		id.Build = cimeter.Build{CI: CI, Name: c.Env["GITHUB_JOB"], Runner: cimeter.Runner{Name: runner}}
		id.Build.Key = cimeter.BuildKey(CI, ci.Local, c.Pod.Namespace, runner)
		id.Group = "runner:" + c.Pod.Namespace + "/" + runner
		if job != nil {
			e, asked := job(c.Pod.Namespace, runner)
			if id.Later = asked && !e.Known(); !id.Later && asked {
				e.fill(&id.Build)
			}
		}
		podRole(c, &id)
		id.Doubt = podDoubt(c.Pod, runner)
		return id, true
	}
}

// fill tells a build what the status of its runner says.
func (e Ephemeral) fill(b *cimeter.Build) {
	b.Server, b.Project, b.Pipeline, b.Name = ci.ServerOf(e.ConfigURL), e.Repository, e.RunID, e.Job
	b.Key = Key(b.Server, b.Project, b.Pipeline, 0, b.Runner.Name, e.Job)
	b.URL = ci.PageOf("https://" + b.Server + "/" + e.Repository + "/actions/runs/" + e.RunID)
	if _, ref, ok := strings.Cut(e.Ref, "@"); ok {
		for _, prefix := range [...]string{"refs/heads/", "refs/tags/"} {
			ref = strings.TrimPrefix(ref, prefix)
		}
		b.Ref = ref
	}
}

// runnerOf returns the name of the runner whose pod it is, or for whose job the
// container hooks made it.
func runnerOf(p *cimeter.Pod) (name string, ok bool) {
	if p == nil || p.UID == "" || p.Name == "" {
		return "", false
	}
	if name, ok = p.Labels[podRunner]; ok {
		return name, name != ""
	}
	if _, old := p.Labels[podOld]; old {
		return p.Name, true
	}
	return p.Name, p.Labels[podEphemeral] == "True"
}

func podRole(c *cimeter.Container, id *cimeter.Identity) {
	_, hook := c.Pod.Labels[podRunner]
	switch name := c.PodContainer(); {
	case hook && name == containerJob:
		id.Role, id.Stage = cimeter.RoleBuild, ci.StageJob
	case !hook && name == containerRunner: // it waits for a job
		id.Role, id.Stage, id.Alongside, id.Inside, id.Next = cimeter.RoleBuild, cimeter.StageWaiting, true, true, ci.StageJob
	case strings.HasPrefix(name, "init-"), name == "fs-init":
		id.Role, id.Stage = cimeter.RoleCache, "prepare"
	case name == containerDind:
		id.Role, id.Stage, id.Alongside = cimeter.RoleService, "service:"+containerDind, true
	default:
		id.Role, id.Stage, id.Alongside = cimeter.RoleService, ci.PodStage(c), true
	}
}

// OwnProgram reports whether a command line is that of a process that a runner's
// container has without a job: the listener and the shells that keep it running. The
// worker, which there is for a job, is none.
func OwnProgram(cmdline []byte) bool {
	program, args, _ := strings.Cut(string(cmdline[:min(len(cmdline), maxCmdline)]), "\x00")
	switch program[strings.LastIndexByte(program, '/')+1:] {
	case "Runner.Listener", "dumb-init", "tini", "sleep", "":
		return true
	case "sh", "bash":
		script, _, _ := strings.Cut(args, "\x00")
		switch script[strings.LastIndexByte(script, '/')+1:] {
		case "", "run.sh", "run-helper.sh", "-c", "entrypoint.sh", "startup.sh":
			return true
		}
	}
	return false
}

// maxCmdline is how much of a command line is looked at: a program and its first
// argument.
const maxCmdline = 512

// podDoubt compares the name of a pod that the hooks made with its label. They cut
// the runner's name where the whole is longer than 63 characters.
func podDoubt(p *cimeter.Pod, runner string) string {
	if _, hook := p.Labels[podRunner]; !hook {
		return ""
	}
	i := strings.LastIndex(p.Name, "-step-")
	if i < 0 {
		i = strings.LastIndex(p.Name, "-workflow")
	}
	if i < 0 || !strings.HasPrefix(runner, p.Name[:i]) || len(p.Name) < maxPodName && p.Name[:i] != runner {
		return "name: label " + podRunner + " says " + ci.Quote(runner) + ", the pod's name is " + ci.Quote(p.Name)
	}
	return ""
}

// maxPodName is the length at which the hooks cut names.
const maxPodName = 63
