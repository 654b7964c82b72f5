package drone

import (
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// placeholder is the image that every container of a pod has until the turn of its
// step comes (drone-runner-kube engine/compiler). The step's own takes its place
// then, in a container of its own.
const placeholder = "drone/placeholder"

// The labels of a pod whose value is exact: the others are slugs.
const labelEvent = label + ".build.event"

// stageUnknown is the stage of a step whose name is not known.
const stageUnknown = "step"

// identifyPod is Identify for a container of the Kubernetes runner: one pod for
// each stage. Group is the pod's UID.
//
// The pod's annotations hold what the labels of the Docker runner do, but for the
// step: a variable does. A container whose variables are not known is in the stage
// step.
func identifyPod(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	p, a := c.Pod, c.Pod.Annotations
	if p.Labels[label] != "true" || !ci.IsDecimal(a[labelBuild]) || p.UID == "" {
		return id, false
	}
	id.Build = newBuild(a, c.Env)
	if id.Build.Event == "" {
		id.Build.Event = p.Labels[labelEvent]
	}
	id.Group = p.UID
	id.Role, id.Stage = cimeter.RoleBuild, c.Env["DRONE_STEP_NAME"]
	switch {
	case isPlaceholder(c.Image):
		id.Role, id.Stage, id.Alongside = cimeter.RoleWait, cimeter.StageWaiting, true
	case id.Stage == "":
		id.Stage = stageUnknown
	case id.Stage == stepClone:
		id.Role = cimeter.RoleHelper
	}
	id.Doubt = podDoubt(c)
	return id, true
}

func isPlaceholder(image string) bool {
	name, _, _ := strings.Cut(image, ":")
	return name == placeholder || strings.HasSuffix(name, "/"+placeholder)
}

func podDoubt(c *cimeter.Container) string {
	p, a := c.Pod, c.Pod.Annotations
	if !isPodName(p.Name) {
		return "name: labels and annotations are a Drone runner's, the pod's name " + ci.Quote(p.Name) + " is not"
	}
	return ci.FirstDoubt(
		ci.Disagree("build number", "annotation", a[labelBuild], "label", p.Labels[labelBuild]),
		differs("annotation", a, c.Env),
	)
}

// isPodName reports whether s is a name that the runner gives a pod: that of the
// Docker runner's networks in lower case.
func isPodName(s string) bool { return IsName(s) && s == strings.ToLower(s) }
