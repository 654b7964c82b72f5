package gitlab

import (
	"bytes"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// The labels and annotations of executors/kubernetes/kubernetes.go. Runners before
// 15.9 set podLabel alone, those before 17.9 no other label. A user may not set
// labels below runner.gitlab.com; annotations he may where config.toml allows it.
const (
	podLabel      = "pod"
	podDomain     = "runner.gitlab.com/"
	podName       = "job." + podDomain + "pod"
	podPause      = podDomain + "pause-pod" // of the autoscaler: no job runs in it
	podJobID      = "job." + podDomain + "id"
	podJobURL     = "job." + podDomain + "url"
	podJobName    = "job." + podDomain + "name"
	podJobSHA     = "job." + podDomain + "sha"
	podJobRef     = "job." + podDomain + "ref"
	podProjectID  = "project." + podDomain + "id" // a label and an annotation
	podManager    = "manager." + podDomain + "name"
	podShortToken = "manager." + podDomain + "id-short"
)

// The containers of a job's pod. Services are svc-<n> or have their alias.
const (
	containerBuild  = "build"
	containerHelper = "helper"
	prefixInit      = "init-"
)

// identifyPod is Identify for a container of the Kubernetes executor: one pod for
// each job. Group is the pod's UID.
//
// The build and the helper container live as long as the job; [StageInPod] tells
// the stages in them.
func identifyPod(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	p := c.Pod
	l, a := p.Labels, p.Annotations
	job, unique := a[podJobID], l[podName]
	if unique == "" {
		unique = l[podLabel]
	}
	name, nameOK := parsePodName(p.Name, unique)
	if l[podPause] != "" || !ci.IsDecimal(job) && (job != "" || !nameOK) || p.UID == "" {
		return id, false
	}
	page, pageOK := ParseJobURL(a[podJobURL])
	token := l[podShortToken]
	if token == "" {
		token = name.token
	}
	id.Build = cimeter.Build{
		CI:            CI,
		Server:        page.Server,
		Project:       project(page.Project, c.Env["CI_PROJECT_PATH"]),
		Number:        job,
		Name:          first(a[podJobName], c.Env["CI_JOB_NAME"]),
		Pipeline:      c.Env["CI_PIPELINE_ID"],
		PipelineStage: c.Env["CI_JOB_STAGE"],
		Ref:           a[podJobRef],
		DefaultBranch: c.Env["CI_DEFAULT_BRANCH"],
		SHA:           a[podJobSHA],
		Event:         c.Env["CI_PIPELINE_SOURCE"],
		Runner:        cimeter.Runner{ShortToken: token, Name: first(c.Env["CI_RUNNER_DESCRIPTION"], l[podManager])},
	}
	if pageOK {
		id.Build.URL = ci.PageOf(a[podJobURL])
	}
	switch {
	case job == "": // before 15.9: the variables of some of its containers tell more
		id.Build.Key = ci.PodKey(CI, p)
		id.Build.Number = decimal(c.Env["CI_JOB_ID"])
		id.Build.Server = ci.ServerOf(c.Env["CI_SERVER_URL"])
	default:
		id.Build.Key = key(page.Server, token, job)
	}
	podRole(c, &id)
	id.Group = p.UID
	id.Doubt = podDoubt(c, name, nameOK, page.Job)
	return id, true
}

func podRole(c *cimeter.Container, id *cimeter.Identity) {
	switch name := c.PodContainer(); {
	case name == containerBuild:
		id.Role, id.Stage, id.Alongside, id.Inside = cimeter.RoleBuild, cimeter.StageWaiting, true, true
		id.Next = StageScript // where no script has a path: FF_USE_LEGACY_KUBERNETES_EXECUTION_STRATEGY
	case name == containerHelper:
		id.Role, id.Stage, id.Alongside, id.Inside = cimeter.RoleHelper, cimeter.StageWaiting, true, true
	case strings.HasPrefix(name, prefixInit):
		id.Role, id.Stage = cimeter.RoleCache, StagePrepareExecutor
	default:
		id.Role, id.Stage, id.Alongside = cimeter.RoleService, ci.PodStage(c), true
	}
}

// parsePodName reads the name of a job's pod by the label that holds its unique
// part: <unique>-<8 random>, or in older runners <unique><5 random>.
//
//	runner-<token>-project-<id>-concurrent-<n>
func parsePodName(pod, unique string) (n containerName, ok bool) {
	random, ok := strings.CutPrefix(pod, unique)
	if !ok || unique == "" || random == "" || len(random) > 16 {
		return containerName{}, false
	}
	return parseName(unique + "-" + strings.TrimPrefix(random, "-"))
}

func podDoubt(c *cimeter.Container, name containerName, nameOK bool, urlJob string) string {
	l, a := c.Pod.Labels, c.Pod.Annotations
	if !nameOK {
		return "name: the annotations are a GitLab runner's, the pod's name " + ci.Quote(c.Pod.Name) + " is not"
	}
	return ci.FirstDoubt(
		ci.Disagree("job id", "annotation", a[podJobID], "annotation "+podJobURL, urlJob),
		ci.Disagree("project id", "label", l[podProjectID], "annotation", a[podProjectID]),
		ci.Disagree("project id", "annotation", a[podProjectID], "the pod's name", name.project),
		ci.Disagree("project id", "label", l[podProjectID], "the pod's name", name.project),
		ci.Disagree("runner token", "label", cleanName(l[podShortToken]), "the pod's name", name.token),
		ci.Disagree("job id", "annotation", a[podJobID], "variable CI_JOB_ID", c.Env["CI_JOB_ID"]),
		ci.Disagree("project id", "the pod's name", name.project, "variable CI_PROJECT_ID", c.Env["CI_PROJECT_ID"]),
	)
}

// StageInPod tells the stage that a container of a job's pod is in by the command
// line of one of its processes: by the path of the stage's script
//
//	/scripts-<project id>-<job id>/<stage>
//
// or, in the helper, by what the runner starts for a stage. A stage that does not
// run in such a container, or is of another job, is none. own: the process is the
// runner's, and is there between stages too.
func StageInPod(id *cimeter.Identity, cmdline []byte) (stage string, own bool) {
	stage, job, ok := scriptOf(cmdline)
	if ok && id.Build.Number != "" && job != id.Build.Number {
		return "", true
	}
	if !ok {
		if stage, ok = StageOfCommand(cmdline); !ok {
			return "", ownProgram(cmdline)
		}
	}
	if r, known := roleOf(stage); !known || r != id.Role {
		return "", ownProgram(cmdline)
	}
	return stage, true
}

// ownProgram reports whether a command line is that of the shell that waits for
// scripts, of what it waits with, or of the runner's helper. A shell of the script's
// own looks the same: the commands that it runs do not.
func ownProgram(cmdline []byte) bool {
	program, _, _ := bytes.Cut(cmdline, []byte{0})
	switch string(program[bytes.LastIndexByte(program, '/')+1:]) {
	case "", "sh", "bash", "ash", "dash", "busybox", "pwsh", "gitlab-runner-helper", "gitlab-runner-build", "dumb-init", "tini", "sleep":
		return true
	}
	return false
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func decimal(s string) string {
	if ci.IsDecimal(s) {
		return s
	}
	return ""
}
