package drone_test

import (
	"testing"

	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/drone"
)

// What is told of each container of a pod is in the golden files beside the pods.
func TestIdentify_pods(t *testing.T) {
	citest.GoldenPods(t, "testdata/pods", drone.Variables(), drone.Identify)
}

func TestIdentify_podsForged(t *testing.T) {
	citest.Forged(t, "testdata/pods/running.pod.json", "drone-bbbbbbbbbbbbbbbbbbbb", drone.Variables(), drone.Identify, []citest.Forgery{
		{Name: "another build", Annotations: map[string]string{"io.drone.build.number": "41"}},
		{Name: "another build, label too", Annotations: map[string]string{"io.drone.build.number": "41"}, Labels: map[string]string{"io.drone.build.number": "41"}},
		{Name: "another repository", Annotations: map[string]string{"io.drone.repo.slug": "octo/other"}},
		{Name: "another stage", Annotations: map[string]string{"io.drone.stage.number": "1"}},
		{Name: "a pod of somebody's", Pod: "web"},
	})
}
