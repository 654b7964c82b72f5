package woodpecker

import (
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// The labels of pipeline/backend/kubernetes/pod.go and pipeline/const.go. Before
// 2025 there is podStepOld alone.
const (
	podStepOld = "step"
	podStep    = "woodpecker-ci.org/step"
	podTask    = "woodpecker-ci.org/task-uuid" // of the workflow; since September 2025
	podPrefix  = "wp-"                         // and the step's uuid; services are named otherwise
)

// identifyPod is Identify for a container of the Kubernetes backend: one pod for
// each step, named after it, with one container of the same name.
//
// Labels are slugs; what a build needs is in the variables. A pod whose variables
// are not known stands for its task, or for itself. Group is the task, which all
// pods of a workflow have; before there was one, the namespace.
func identifyPod(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	p, e := c.Pod, c.Env
	step, labelled := p.Labels[podStep]
	ours := e["CI_SYSTEM_NAME"] == CI
	if !labelled && !(ours && p.Labels[podStepOld] != "") && !(p.Labels[podStepOld] != "" && isPodName(p.Name)) || p.UID == "" {
		return id, false
	}
	if e != nil && !ours {
		e = nil
	}
	id.Later = c.Sandbox // it has no variables
	task := p.Labels[podTask]
	id.Build = build(c, e, task)
	if id.Build.Project == "" && task == "" {
		id.Build.Key = ci.PodKey(CI, p)
	}
	for _, name := range [...]string{e["CI_STEP_NAME"], step, p.Labels[podStepOld]} {
		if step = name; step != "" {
			break
		}
	}
	id.Role, id.Stage, id.Alongside = role(e["CI_STEP_TYPE"], step)
	if id.Group = task; task == "" {
		id.Group = "namespace:" + p.Namespace
	}
	switch {
	case !c.Sandbox && c.PodContainer() != p.Name:
		id.Doubt = "container: a Woodpecker pod has one that is named like it, this one is " + ci.Quote(c.PodContainer()) + " in " + ci.Quote(p.Name)
	case c.Env != nil && !ours:
		id.Doubt = "variables: the labels are Woodpecker's, CI_SYSTEM_NAME is not woodpecker"
	}
	return id, true
}

// isPodName reports whether s is wp- and a UUID.
func isPodName(s string) bool {
	uuid, ok := strings.CutPrefix(s, podPrefix)
	return ok && ci.IsUUID(uuid)
}
