// Package tekton tells which TaskRun of Tekton a container belongs to, and when its
// step really begins. It is pure; [Identify] is its entry point.
//
// A build of cimeter is a TaskRun, which is one pod; its pipeline is the PipelineRun.
package tekton

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// CI is the kind of CI system in builds of this package.
const CI = "tekton"

// The labels of pkg/apis/pipeline/register.go.
const (
	labelTaskRun      = "tekton.dev/taskRun"
	labelTask         = "tekton.dev/task"
	labelPipeline     = "tekton.dev/pipeline"
	labelPipelineRun  = "tekton.dev/pipelineRun"
	labelPipelineTask = "tekton.dev/pipelineTask"
)

// The containers of pkg/pod/pod.go.
const (
	prefixStep    = "step-"
	prefixSidecar = "sidecar-"
)

// Identify tells which TaskRun a container belongs to. Group is the pod's UID, and
// stands in the key: neither the cluster's name nor anything else tells two runs of
// one name apart. Project is the namespace and the pipeline, or the task.
//
// All steps' containers start with the pod, and an entry point holds each until its
// turn: the step begins with the first process that is not it ([OwnProgram]).
func Identify(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	p := c.Pod
	if p == nil || p.UID == "" || p.Labels[labelTaskRun] == "" {
		return id, false
	}
	l := p.Labels
	name := first(l[labelPipelineTask], l[labelTask], l[labelTaskRun])
	id.Build = cimeter.Build{
		Key:      cimeter.BuildKey(CI, ci.Local, p.Namespace, l[labelTaskRun], p.UID),
		CI:       CI,
		Project:  p.Namespace + "/" + first(l[labelPipeline], l[labelTask], name),
		Number:   l[labelTaskRun],
		Name:     name,
		Attempt:  attempt(p.Name, l[labelTaskRun]),
		Pipeline: l[labelPipelineRun],
	}
	id.Group = p.UID
	switch name := c.PodContainer(); {
	case strings.HasPrefix(name, prefixStep):
		id.Role, id.Stage, id.Alongside, id.Inside, id.Next = cimeter.RoleBuild, cimeter.StageWaiting, true, true, name[len(prefixStep):]
	case strings.HasPrefix(name, prefixSidecar):
		id.Role, id.Stage, id.Alongside = cimeter.RoleService, "service:"+name[len(prefixSidecar):], true
	default: // prepare, place-scripts, working-dir-initializer
		id.Role, id.Stage = cimeter.RoleCache, "prepare"
	}
	if id.Inside && id.Next == "" {
		id.Next = "step"
	}
	return id, true
}

// attempt reads the name of a TaskRun's pod: <taskrun>-pod, and -retry<n> at the end
// of a repeated one's. 0 is not known: a long name is cut.
func attempt(pod, taskRun string) int {
	rest, ok := strings.CutPrefix(pod, taskRun+"-pod")
	if !ok {
		return 0
	}
	if rest == "" {
		return 1
	}
	n, err := strconv.Atoi(strings.TrimPrefix(rest, "-retry"))
	if err != nil || n < 1 || n > 1000 || rest == strconv.Itoa(n) {
		return 0
	}
	return n + 1
}

// OwnProgram reports whether a command line is that of the entry point, which waits
// in a step's container for the steps before.
func OwnProgram(cmdline []byte) bool {
	program, _, _ := bytes.Cut(cmdline, []byte{0})
	switch string(program) {
	case "/tekton/bin/entrypoint", "/tekton/tools/entrypoint", "/ko-app/entrypoint", "":
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
