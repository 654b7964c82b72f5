package argo_test

import (
	"testing"

	"github.com/cimeter/cimeter/internal/ci/argo"
	"github.com/cimeter/cimeter/internal/ci/citest"
)

// What is told of each container of a pod is in the golden files beside the pods.
func TestIdentify_pods(t *testing.T) {
	citest.GoldenPods(t, "testdata/pods", nil, argo.Identify)
}

// Workflows of one kind are one project, and steps of loops one name, though each
// has a name of its own.
func TestIdentify_names(t *testing.T) {
	for _, tt := range []struct{ workflow, node, project, name string }{
		{"nightly-7kq2x", "nightly-7kq2x.build(0:linux)", "argo/nightly", "build"},
		{"nightly-7kq2x", "nightly-7kq2x[0].build", "argo/nightly", "[0].build"},
		{"nightly-x86aa", "nightly-x86aa", "argo/nightly-x86aa", "main"},
		{"release", "release.a.b(3)", "argo/release", "a.b"},
		{"release", "", "argo/release", "main"},
	} {
		c := citest.Container(t, "testdata/pods/dag.pod.json", "main", nil)
		c.Pod.Labels["workflows.argoproj.io/workflow"], c.Pod.Annotations["workflows.argoproj.io/node-name"] = tt.workflow, tt.node
		if id, ok := argo.Identify(c); !ok || id.Build.Project != tt.project || id.Build.Name != tt.name {
			t.Errorf("%s of %s: project %q, name %q, want %q, %q", tt.node, tt.workflow, id.Build.Project, id.Build.Name, tt.project, tt.name)
		}
	}
}
