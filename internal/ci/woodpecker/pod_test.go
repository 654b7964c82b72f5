package woodpecker_test

import (
	"testing"

	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/woodpecker"
)

// What is told of each container of a pod is in the golden files beside the pods.
func TestIdentify_pods(t *testing.T) {
	citest.GoldenPods(t, "testdata/pods", woodpecker.Variables(), woodpecker.Identify)
}

func TestIdentify_podsForged(t *testing.T) {
	const name = "wp-01234567-89ab-cdef-0123-456789abcdef"
	citest.Forged(t, "testdata/pods/step.pod.json", name, woodpecker.Variables(), woodpecker.Identify, []citest.Forgery{
		{Name: "another system's variables", Env: map[string]string{"CI_SYSTEM_NAME": "other"}},
		{Name: "a pod of somebody's", Pod: "web"},
	})
	citest.Forged(t, "testdata/pods/v2.pod.json", "wp-11234567-89ab-cdef-0123-456789abcdef", woodpecker.Variables(), woodpecker.Identify, []citest.Forgery{
		{Name: "another system's variables", Env: map[string]string{"CI_SYSTEM_NAME": "other"}},
	})
}

// A pod's own container has no variables: its build is told by another one's.
func TestIdentify_sandbox(t *testing.T) {
	c := citest.Container(t, "testdata/pods/step.pod.json", "wp-01234567-89ab-cdef-0123-456789abcdef", nil)
	c.Sandbox, c.Env, c.Labels = true, nil, nil
	if id, ok := woodpecker.Identify(c); !ok || !id.Later || id.Doubt != "" {
		t.Errorf("%v %+v: want one to ask for later", ok, id)
	}
}
