package prow_test

import (
	"testing"

	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/prow"
)

// What is told of each container of a pod is in the golden files beside the pods.
func TestIdentify_pods(t *testing.T) {
	citest.GoldenPods(t, "testdata/pods", prow.Variables(), prow.Identify)
}

func TestIdentify_podsForged(t *testing.T) {
	const other = "5c2f5f9e-5a55-4b0e-9c52-000000000000"
	citest.Forged(t, "testdata/pods/presubmit.pod.json", "test", prow.Variables(), prow.Identify, []citest.Forgery{
		{Name: "another job", Labels: map[string]string{"prow.k8s.io/id": other}},
		{Name: "another job's variable", Env: map[string]string{"PROW_JOB_ID": other}},
		{Name: "a pod of somebody's", Pod: "web"},
	})
}
