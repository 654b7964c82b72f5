package tekton_test

import (
	"testing"

	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/tekton"
)

// What is told of each container of a pod is in the golden files beside the pods.
func TestIdentify_pods(t *testing.T) {
	citest.GoldenPods(t, "testdata/pods", nil, tekton.Identify)
}

// A repeated TaskRun has the same name and labels: its pod is another build, and an
// attempt.
func TestIdentify_attempt(t *testing.T) {
	for pod, want := range map[string]int{
		"alone-pod": 1, "alone-pod-retry1": 2, "alone-pod-retry12": 13, "alone-pod2": 0, "alone-pod-retry0": 0, "alone-pod-retryx": 0, "al0ne-pod": 0,
		"alone-pod-retry99999": 0,
	} {
		c := citest.Container(t, "testdata/pods/retry.pod.json", "step-run", nil)
		c.Pod.Name = pod
		if id, ok := tekton.Identify(c); !ok || id.Build.Attempt != want {
			t.Errorf("%s: attempt %d, want %d", pod, id.Build.Attempt, want)
		}
	}
}

func TestOwnProgram(t *testing.T) {
	for line, want := range map[string]bool{
		"/tekton/bin/entrypoint\x00-wait_file\x00/tekton/run/0/out\x00-post_file\x00/tekton/run/1/out\x00-entrypoint\x00go\x00--\x00test\x00": true,
		"/ko-app/entrypoint\x00init\x00": true,
		"/bin/sh\x00-c\x00make\x00":      false,
		"/usr/bin/entrypoint\x00":        false,
		"":                               true,
	} {
		if got := tekton.OwnProgram([]byte(line)); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}
