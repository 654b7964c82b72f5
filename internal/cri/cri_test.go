package cri_test

import (
	"os"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/cri"
	"github.com/cimeter/cimeter/internal/testdocker"
	"github.com/cimeter/cimeter/internal/testtools"
)

func TestReal(t *testing.T) {
	c := testdocker.StartCRI(t, testtools.Path(t, testtools.Crictl), testdocker.Options{})
	t.Log("up")
	cl, err := cri.Open(cri.Options{Socket: c.Host(), Variables: []string{"CI_JOB_ID"}})
	if err != nil {
		t.Fatal(err)
	}
	v, err := cl.Version(t.Context())
	t.Log(v, err)
	p, err := c.RunPod(testdocker.PodSpec{Name: "runner-x", Namespace: "ci", UID: "11111111-2222-3333-4444-555555555555", Class: "burstable", Labels: map[string]string{"pod": "x"}, Annotations: map[string]string{"job.runner.gitlab.com/id": "7"}})
	if err != nil {
		t.Fatal(err)
	}
	id, err := p.Create(testdocker.ContainerSpec{Name: "build", Cmd: []string{"sleep", "100"}, Env: map[string]string{"CI_JOB_ID": "7", "X": "secret"}, CPUShares: 512, MemoryLimit: 1 << 28})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(id); err != nil {
		t.Fatal(err)
	}
	l, err := cl.List(t.Context())
	for _, k := range l {
		t.Logf("%+v pod %+v", k, k.Pod)
	}
	k, err := cl.Inspect(t.Context(), id)
	t.Logf("%+v pod %+v %v", k, k.Pod, err)
	b, err := os.ReadFile("/sys/fs/cgroup/memory" + p.Cgroup + "/" + id + "/memory.limit_in_bytes")
	t.Logf("limit %s %v", b, err)
	start := time.Now()
	err = p.Remove()
	t.Log("removed", time.Since(start), err)
}
