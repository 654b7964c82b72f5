// Package argo tells which node of an Argo workflow a container belongs to. It is
// pure; [Identify] is its entry point.
//
// A build of cimeter is a node that has a pod; its pipeline is the workflow.
package argo

import (
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// CI is the kind of CI system in builds of this package.
const CI = "argo"

// The labels and annotations of workflow/common/common.go. Annotations are of
// versions from 3.0 on; node-id came later.
const (
	labelWorkflow = "workflows.argoproj.io/workflow"
	labelTemplate = "workflows.argoproj.io/workflow-template" // of workflows made from one
	labelCron     = "workflows.argoproj.io/cron-workflow"
	nodeName      = "workflows.argoproj.io/node-name" // WORKFLOW.step(0:item)
	nodeID        = "workflows.argoproj.io/node-id"
	mainOf        = "kubectl.kubernetes.io/default-container"
)

// The containers of workflow/common/common.go. Those of a containerSet and sidecars
// have names of the workflow's.
const (
	containerMain   = "main"
	containerWait   = "wait"
	containerInit   = "init"
	containerSuper  = "supervisor"
	prefixArtifacts = "artifact-plugin-"
)

// Identify tells which node a container belongs to. Group is the pod's UID, and
// stands in the key: a node that is tried again has the same id.
//
// The executor's containers are helpers: init fetches what the node takes, wait saves
// what it made and runs alongside. No label tells a sidecar from a container of a
// containerSet: what is not main has its own name, and runs alongside where the pod has
// a main container.
func Identify(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	p := c.Pod
	if p == nil || p.UID == "" || p.Labels[labelWorkflow] == "" {
		return id, false
	}
	workflow, node := p.Labels[labelWorkflow], p.Annotations[nodeID]
	if node == "" {
		node = p.Name
	}
	id.Build = cimeter.Build{
		Key:      cimeter.BuildKey(CI, ci.Local, p.Namespace, node, p.UID),
		CI:       CI,
		Project:  p.Namespace + "/" + family(p.Labels, workflow),
		Number:   node,
		Name:     name(p.Annotations[nodeName], workflow),
		Pipeline: workflow,
	}
	id.Group = p.UID
	switch name := c.PodContainer(); {
	case name == containerMain, name == "":
		id.Role, id.Stage = cimeter.RoleBuild, containerMain
	case name == containerInit:
		id.Role, id.Stage = cimeter.RoleHelper, containerInit
	case name == containerWait, name == containerSuper, strings.HasPrefix(name, prefixArtifacts):
		id.Role, id.Stage, id.Alongside = cimeter.RoleHelper, name, true
	case p.Annotations[mainOf] == containerMain:
		id.Role, id.Stage, id.Alongside = cimeter.RoleService, "service:"+name, true
	default:
		id.Role, id.Stage = cimeter.RoleBuild, name
	}
	return id, true
}

// family returns what the workflows of one kind have in common: their template, or
// what is left of the workflow's name without the random or the time at its end.
func family(labels map[string]string, workflow string) string {
	for _, l := range [...]string{labelCron, labelTemplate} {
		if labels[l] != "" {
			return labels[l]
		}
	}
	if i := strings.LastIndexByte(workflow, '-'); i > 0 && isRandom(workflow[i+1:]) {
		return workflow[:i]
	}
	return workflow
}

// isRandom reports whether s is what Kubernetes puts to the end of a generateName:
// five letters and digits without vowels and what looks like others.
func isRandom(s string) bool {
	return len(s) == 5 && strings.Trim(s, "bcdfghjklmnpqrstvwxz2456789") == ""
}

// name returns a node's name without the workflow's, and without the items and
// numbers of loops and retries: each would be a name of its own.
func name(node, workflow string) string {
	node = strings.TrimPrefix(strings.TrimPrefix(node, workflow), ".")
	if i := strings.IndexByte(node, '('); i >= 0 {
		node = node[:i]
	}
	if node == "" {
		return containerMain
	}
	return node
}
