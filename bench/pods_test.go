package bench_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/testdocker"
	"github.com/cimeter/cimeter/internal/testtools"
)

// podRules tell the builds of the pods.
const podRules = `  rules:
    - name: bench
      match:
        labels: {example.com/build: '^(?P<number>\d+)$', io.kubernetes.container.name: '^(?P<stage>.+)$'}
      set: {ci: bench}
`

// BenchmarkPods is BenchmarkProcesses with 300 pods in place of the containers: cgroups
// as the kubelet makes them, a sandbox with a network of its own in each, and a runtime
// that lists them by the kubelet's interface.
func BenchmarkPods(b *testing.B) {
	if testing.Short() {
		b.Skip("3,000 processes are not for -short")
	}
	p := buildPrograms(b)
	c := &crowd{b: b, root: makeRoot(b), rules: podRules}
	b.Cleanup(c.end)
	for _, path := range []string{"/kubepods", "/kubepods/besteffort"} {
		c.cgroup(c.root + path)
	}
	var all []pod
	for i := range podContainers {
		all = append(all, c.pod(i))
	}
	uplinks(b, all)
	c.engine = []string{"--cri", runtimeOf(b, all)}
	var t table
	for _, mode := range []string{"off", "auto"} {
		b.Run(mode, func(b *testing.B) { c.measure(b, &t, p.agent, mode, "pods "+mode) })
	}
	t.print(machineLoad())
}

// pod is what the runtime is told of one.
type pod struct {
	UID, Sandbox, Container, Cgroup string
	PID, SandboxPID                 int
	Labels                          map[string]string
}

// pod starts the sandbox and the container of a pod, ten processes in all beside the
// sandbox's own.
func (c *crowd) pod(i int) pod {
	c.b.Helper()
	p := pod{
		UID: fmt.Sprintf("%08x-0000-4000-8000-000000000000", i), Sandbox: fmt.Sprintf("%064x", 2*i+1), Container: fmt.Sprintf("%064x", 2*i+2),
		Labels: map[string]string{"example.com/build": fmt.Sprint(i)},
	}
	of := "/kubepods/besteffort/pod" + p.UID
	p.Cgroup = of + "/" + p.Container
	c.cgroup(c.root + of)
	sandbox := c.begin(c.b, join(c.cgroup(c.root+of+"/"+p.Sandbox))+"exec unshare --net sleep 100000")
	c.groups = append(c.groups, sandbox)
	p.SandboxPID = sandbox.Process.Pid
	c.networkOf(p.SandboxPID)
	container := c.begin(c.b, join(c.cgroup(c.root+p.Cgroup))+`exec nsenter --net --target "$0" /bin/sh -c "$1"`, fmt.Sprint(p.SandboxPID), crowded)
	c.groups = append(c.groups, container)
	p.PID = container.Process.Pid
	return p
}

// networkOf waits until a process is in a network of its own.
func (c *crowd) networkOf(pid int) {
	c.b.Helper()
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		c.b.Fatal(err)
	}
	for end := time.Now().Add(patience); ; wait(time.Millisecond) {
		switch its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); {
		case err != nil:
			c.b.Fatal(err)
		case its != own:
			return
		case time.Now().After(end):
			c.b.Fatalf("process %d has no network of its own after %v", pid, patience)
		}
	}
}

// uplinks gives each pod's network an interface whose other end is this machine's. They
// go with the networks.
func uplinks(b *testing.B, all []pod) {
	b.Helper()
	var batch strings.Builder
	for i, p := range all {
		fmt.Fprintf(&batch, "link add bp%d-%d type veth peer name eth0 netns %d\n", os.Getpid(), i, p.SandboxPID)
	}
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("ip -batch: %v: %s", err, out)
	}
}

// runtimeOf serves a runtime of pods and returns its address.
func runtimeOf(b *testing.B, all []pod) string {
	b.Helper()
	dir, err := os.MkdirTemp("", "cimeter-cri-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	text, err := json.Marshal(all)
	if err != nil {
		b.Fatal(err)
	}
	file, socket := filepath.Join(dir, "pods.json"), filepath.Join(dir, "s")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		b.Fatal(err)
	}
	testtools.Start(b, testtools.CRIServer, socket, "pods", file)
	for end := time.Now().Add(patience); ; wait(10 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return "unix://" + socket
		} else if time.Now().After(end) {
			b.Fatalf("the runtime does not listen after %v: %v", patience, err)
		}
	}
}

// cgroup makes a cgroup, removed with the crowd, and returns the files that a process
// joins it by.
func (c *crowd) cgroup(path string) (files []string) {
	c.b.Helper()
	if err := testdocker.MakeCgroup(path); err != nil {
		c.b.Fatal(err)
	}
	c.paths = append(c.paths, path)
	files, err := testdocker.CgroupProcs(path)
	if err != nil {
		c.b.Fatal(err)
	}
	return files
}

// join is the beginning of a script of a shell that joins a cgroup.
func join(files []string) string {
	return "for f in " + strings.Join(files, " ") + "; do echo $$ > $f; done\n"
}
