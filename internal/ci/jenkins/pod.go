package jenkins

import (
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// The labels and annotations of the Kubernetes plugin (PodTemplateBuilder,
// PodTemplateStepExecution, KubernetesCloud). Only pods of the pipeline's podTemplate
// have the annotations of a build; pods of a cloud's own templates may serve several.
const (
	podController = "kubernetes.jenkins.io/controller" // the address of Jenkins as a label can hold it
	podLabel      = "jenkins/label"
	podOld        = "jenkins" // slave
	podBuildURL   = "buildUrl"
	podRunURL     = "runUrl"
)

// containerAgent is the container of the agent itself, which the plugin puts into
// each pod that has none of that name.
const containerAgent = "jnlp"

// Identify tells which build a container of an agent's pod belongs to. ok is true
// for every one in a pod with the plugin's labels.
//
// A pod that names no build stands for one of its own. A build may have several pods,
// so the pod cannot be its group: Group is the namespace, which a pipeline can leave
// only where its cloud lets it.
//
// A container of a pod that the pipeline chose is a stage of the container's name:
// what container('x') runs is in it. Agent and the rest live as long as the pod.
func Identify(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	p := c.Pod
	if p == nil || p.UID == "" || p.Labels[podLabel] == "" && p.Labels[podController] == "" {
		return id, false
	}
	address := p.Annotations[podBuildURL]
	job, number, known := ParseURL(address)
	server := ci.ServerOf(address)
	id.Build = cimeter.Build{CI: CI, Server: server, Runner: cimeter.Runner{Name: p.Name}}
	id.Group = "namespace:" + p.Namespace
	if known && server != "" {
		b := &id.Build
		b.Key, b.Project, b.Number, b.Name, b.URL = Key(server, job, number), job, number, job, ci.PageOf(address)
		id.Doubt = podDoubt(p, job, number)
	} else {
		id.Build.Key, id.Group = ci.PodKey(CI, p), p.UID
	}
	id.Role, id.Stage = cimeter.RoleBuild, c.PodContainer()
	if id.Stage == containerAgent {
		id.Role = cimeter.RoleHelper
	}
	if id.Stage == "" {
		id.Stage = ci.StageJob
	}
	return id, true
}

func podDoubt(p *cimeter.Pod, job, number string) string {
	run := p.Annotations[podRunURL]
	toldJob, toldNumber, ok := ParseURL("/" + strings.TrimLeft(run, "/"))
	if run != "" && !ok {
		return "annotation " + podRunURL + ": " + ci.Quote(run) + " is the address of no build"
	}
	return ci.FirstDoubt(
		ci.Disagree("job", "annotation "+podBuildURL, job, "annotation "+podRunURL, toldJob),
		ci.Disagree("build number", "annotation "+podBuildURL, number, "annotation "+podRunURL, toldNumber),
	)
}
