package e2e_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/moby/moby/api/types/build"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// withoutResources is a runtime for machines whose root lacks CAP_SYS_RESOURCE: a
// privileged container is refused there, as it asks for all capabilities.
const withoutResources = `#!/bin/sh
prev=
for a; do
	case $prev in
	--bundle | -b) f=$a/config.json ;;
	--process | -p) f=$a ;;
	*) f= ;;
	esac
	[ -n "$f" ] && [ -f "$f" ] && sed -i 's/"CAP_SYS_RESOURCE",//g; s/,"CAP_SYS_RESOURCE"//g' "$f"
	prev=$a
done
exec runc "$@"
`

// newPrivileged starts a machine that has privileged containers.
func newPrivileged(t *testing.T) *machine {
	t.Helper()
	runtime := filepath.Join(t.TempDir(), "runtime")
	if err := os.WriteFile(runtime, []byte(withoutResources), 0o755); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, "--add-runtime", "limited="+runtime, "--default-runtime", "limited")
	// The image of Docker in Docker is this machine's own /usr, mounted, and what
	// that needs around it.
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "usr/bin"}, {Typeflag: tar.TypeSymlink, Name: "sbin", Linkname: "usr/sbin"},
		{Typeflag: tar.TypeSymlink, Name: "lib", Linkname: "usr/lib"}, {Typeflag: tar.TypeSymlink, Name: "lib64", Linkname: "usr/lib64"},
		{Typeflag: tar.TypeDir, Name: "usr/"}, {Typeflag: tar.TypeDir, Name: "etc/alternatives/"}, {Typeflag: tar.TypeDir, Name: "tmp/"},
		{Typeflag: tar.TypeDir, Name: "run/"}, {Typeflag: tar.TypeDir, Name: "var/lib/docker/"}, {Typeflag: tar.TypeDir, Name: "root/"},
		{Typeflag: tar.TypeDir, Name: "proc/"}, {Typeflag: tar.TypeDir, Name: "sys/"}, {Typeflag: tar.TypeDir, Name: "dev/"},
		{Typeflag: tar.TypeSymlink, Name: "etc/alternatives/iptables", Linkname: "/usr/sbin/iptables-nft"},
		{Typeflag: tar.TypeSymlink, Name: "etc/alternatives/ip6tables", Linkname: "/usr/sbin/ip6tables-nft"},
	} {
		h.Mode = 0o755
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\ndocker:x:999:\n"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := m.Client().ImageImport(t.Context(), client.ImageImportSource{Source: &image, SourceName: "-"}, "docker", client.ImageImportOptions{Tag: "dind"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestDockerNested runs the bodies that need privileged containers.
func TestDockerNested(t *testing.T) {
	m := newPrivileged(t)
	for _, c := range []struct {
		name string
		body func(*testing.T, *machine)
	}{
		{"Dind", dind},
		{"Socket", mountedSocket},
		{"Builder", sharedBuilder},
	} {
		t.Run(c.name, func(t *testing.T) { c.body(t, m) })
	}
}

// dindScript is what the image docker:dind begins with: on cgroup v2 its own
// processes go to a cgroup below, so that others can be made.
const dindScript = `set -e
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
	mkdir -p /sys/fs/cgroup/init
	while read -r p; do echo "$p" >/sys/fs/cgroup/init/cgroup.procs || :; done </sys/fs/cgroup/cgroup.procs
	sed -e 's/ / +/g' -e 's/^/+/' </sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control
fi
exec dockerd -H unix:///inside/docker.sock --bip 10.233.0.1/24 --storage-driver overlay2 --log-level warn
`

// startDind begins a container of a Drone stage with a Docker Engine in it, and
// returns its id and the engine.
func startDind(t *testing.T, m *machine, s *droneStage, parent string) (string, *testdocker.Daemon) {
	t.Helper()
	dir := filepath.Join(m.Folder(), "dind")
	for _, d := range []string{"lib", "inside"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	labels := s.labels()
	labels["io.drone.step.name"], labels["io.drone.step.number"] = "dind", "1"
	r, err := m.Client().ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Name: "drone-" + s.Random + "001",
		Config: &container.Config{Image: "docker:dind", Labels: labels, Cmd: []string{"/usr/bin/sh", "-c", dindScript},
			Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}},
		HostConfig: &container.HostConfig{
			Privileged: true, Resources: container.Resources{CgroupParent: parent},
			Binds: append(m.binds(), "/usr:/usr:ro", filepath.Join(dir, "lib")+":/var/lib/docker", filepath.Join(dir, "inside")+":/inside"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Begin(t.Context(), r.ID); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "inside", "docker.sock")
	awaitSocket(t, m, r.ID, socket)
	return r.ID, testdocker.Connect(t, socket, map[string]string{"/usr/bin/burn": burnProgram(t)})
}

// awaitSocket waits until the engine in a container has made its socket.
func awaitSocket(t *testing.T, m *machine, id, socket string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !exists(socket); <-tick.C {
		c, err := m.Client().ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Container.State.Running && time.Now().Before(deadline) {
			continue
		}
		logs, err := m.Client().ContainerLogs(t.Context(), id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "30"})
		if err != nil {
			t.Fatal(err)
		}
		defer logs.Close()
		said, _ := io.ReadAll(logs) // what there is
		t.Fatalf("the engine in the container has no socket (running: %v, exit %d): %q", c.Container.State.Running, c.Container.State.ExitCode, said)
	}
}

// dind runs containers and a build inside a container of a build: all that they
// use is that build's, by the kernel's own account of the outer container's
// parent, and each is shown as a part of it.
func dind(t *testing.T, m *machine) {
	a := startAgent(t, m, agentConfig(nil))
	a.watchCounters()
	parent := m.CgroupParent() + "/dind"
	s := &droneStage{Number: 31, Slug: "acme/dind", Random: "pt4306jSfhaW8L19g"}
	id, inner := startDind(t, m, s, parent)
	type nested struct {
		id    string
		truth truth
	}
	var all []nested
	run := func(name string, memory int64, steps ...string) {
		t.Helper()
		n, err := inner.Create(t.Context(), testdocker.Spec{Name: name, Binds: []string{"/truth:/truth"}, Env: m.env(name), Cmd: append([]string{"burn"}, steps...), Memory: memory})
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := inner.Play(t.Context(), n, ""); err != nil || exit.Code != 0 && memory == 0 {
			t.Fatalf("exit %d: %s: %v", exit.Code, exit.Output, err)
		}
		if err := inner.Remove(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		all = append(all, nested{id: n, truth: m.truth(t, name)})
	}
	run("inner-cpu", 0, "cpu=0.5", "mem=67108864", "sleep=0.2")
	run("inner-net", 0, "cpu=0.1", "send=3000000:"+m.sink, "sleep=0.2")
	run("inner-oom", 32<<20, "cpu=0.1", "sleep=0.2", "oom")
	steps := buildInside(t, inner.Client())
	if err := m.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	want, err := testdocker.CgroupCPU(parent)
	if err != nil {
		t.Fatal(err)
	}
	r := a.await(s.Key())
	t.Logf("%d parts, %.3f s of CPU, the parent kept %v", len(r.Parts), r.Usage.CPUSeconds.Total.Value, want)
	checkCPU(t, r.Key, r.Usage.CPUSeconds.Total, want)
	checkSum(t, &r)
	if len(r.Stages) != 1 || r.Stages[0].Name != "dind" {
		t.Errorf("stages %q, want dind alone", stageNames(&r))
	}
	if got := a.metric("cimeter_builds_total", `project="acme/dind"`); got != 1 {
		t.Errorf("%v builds, want one: what is nested is none", got)
	}
	for _, n := range all {
		p := partOf(t, &r, n.id)
		cpu := time.Duration(p.CPUSeconds.Value * float64(time.Second))
		if cpu < time.Duration(n.truth.CPU) || p.Kind != cimeter.PartContainer || p.Within != id || !p.Counted || p.Stage != "dind" {
			t.Errorf("part %+v, want %v of CPU at least, nested in %s", p, time.Duration(n.truth.CPU), id)
		}
	}
	if p := partOf(t, &r, all[0].id); p.MemoryPeakBytes.Value < 64<<20 || r.Usage.MemoryBytes == nil || r.Usage.MemoryBytes.Peak.Value < p.MemoryPeakBytes.Value {
		t.Errorf("peak %v of a part that touched 64 MiB, of all %+v", p.MemoryPeakBytes, r.Usage.MemoryBytes)
	}
	if p := partOf(t, &r, all[2].id); p.OOMKills != cimeter.Some(uint64(1)) || r.Usage.OOMKillsNested != cimeter.Some(uint64(1)) || r.Usage.OOMKills.Value != 0 {
		t.Errorf("killed %v, nested %v, own %v, want one that is nested", p.OOMKills, r.Usage.OOMKillsNested, r.Usage.OOMKills)
	}
	// What the nested container sent crossed its own bridge, and then the uplink: it
	// is counted there, once.
	if n := r.Usage.NetworkBytes; n == nil || n.Transmit < 3_000_000 || n.Transmit > 4_000_000 {
		t.Errorf("network %+v (%q), want the 3 MB that were sent, once", n, r.Usage.NotMetered)
	}
	if steps > 0 {
		i := slices.IndexFunc(r.Parts, func(p cimeter.Part) bool { return p.Kind == cimeter.PartBuildStep && p.CPUSeconds.Value > 0.15 })
		if i < 0 {
			t.Errorf("parts %+v, want a build step with 0.2 s of CPU", r.Parts)
		}
	}
}

// buildInside has an engine build an image by its BuildKit, with one RUN, and
// returns how many of those ran.
func buildInside(t *testing.T, c *client.Client) int {
	t.Helper()
	file := "FROM " + testdocker.Image + "\nRUN burn cpu=0.2 sleep=1.5\n"
	var source bytes.Buffer
	w := tar.NewWriter(&source)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "Dockerfile", Mode: 0o644, Size: int64(len(file))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, file); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := c.ImageBuild(ctx, &source, client.ImageBuildOptions{Version: build.BuilderBuildKit, NoCache: true, NetworkMode: "none", Tags: []string{fmt.Sprint("built:", time.Now().UnixNano())}})
	if err != nil {
		t.Fatalf("building an image: %v", err)
	}
	defer r.Body.Close()
	out, err := io.ReadAll(r.Body)
	if err != nil || bytes.Contains(out, []byte("errorDetail")) {
		t.Fatalf("building an image: %v: %s", err, out)
	}
	return 1
}

// mountedSocket has a build with the engine's socket make a container and build an
// image beside its own container.
func mountedSocket(t *testing.T, m *machine) {
	a := startAgent(t, m, agentConfig(nil))
	s := &droneStage{Number: 32, Slug: "acme/socket", Random: "ROWCTbx4pAgK4xRX3"}
	labels := s.labels()
	labels["io.drone.step.name"], labels["io.drone.step.number"] = "tests", "1"
	socket := filepath.Join(m.Folder(), "docker.sock")
	// A program named as the client of the engine runs meanwhile.
	id, err := m.Create(t.Context(), testdocker.Spec{
		Name: "drone-" + s.Random + "001", Labels: labels, Binds: append(m.binds(), socket+":/var/run/docker.sock"),
		Cmd: []string{"sh", "-c", "cp /usr/bin/burn /tmp/docker && /tmp/docker run -- mark=/truth/socket-up await=/truth/socket-go"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Begin(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := m.awaitFile(t.Context(), "socket-up"); err != nil {
		t.Fatal(err)
	}
	a.eventually("the build is known", func() error {
		if a.metric("cimeter_builds_running", `project="acme/socket"`) != 1 {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	sibling, err := m.Create(t.Context(), testdocker.Spec{Name: "sibling", Binds: m.binds(), Env: m.env("sibling"), Cmd: []string{"burn", "cpu=0.3", "sleep=0.3"}})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := m.Play(t.Context(), sibling, ""); err != nil || exit.Code != 0 {
		t.Fatalf("exit %d: %s: %v", exit.Code, exit.Output, err)
	}
	buildInside(t, m.Client())
	// Another job with a client of its own: who asks is not to be told any more.
	s2 := &droneStage{Number: 33, Slug: "acme/socket", Random: "ROWCTbx4pAgK4xRX4"}
	labels2 := s2.labels()
	labels2["io.drone.step.name"], labels2["io.drone.step.number"] = "tests", "1"
	other, err := m.Create(t.Context(), testdocker.Spec{
		Name: "drone-" + s2.Random + "001", Labels: labels2, Binds: append(m.binds(), socket+":/var/run/docker.sock"),
		Cmd: []string{"sh", "-c", "cp /usr/bin/burn /tmp/docker && /tmp/docker build -- mark=/truth/socket-up-2 await=/truth/socket-go"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Begin(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := m.awaitFile(t.Context(), "socket-up-2"); err != nil {
		t.Fatal(err)
	}
	a.eventually("both builds are known", func() error {
		if a.metric("cimeter_builds_running", `project="acme/socket"`) != 2 {
			return fmt.Errorf("they are not")
		}
		return nil
	})
	buildInside(t, m.Client())
	m.mark(t, "socket-go")
	for _, c := range []string{id, other} {
		if exit, err := m.Wait(t.Context(), c); err != nil || exit.Code != 0 {
			t.Fatalf("exit %d: %v", exit.Code, err)
		}
	}
	for _, c := range []string{id, sibling, other} {
		if err := m.Remove(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	r := a.await(s.Key())
	t.Logf("parts %+v", r.Parts)
	p := partOf(t, &r, sibling)
	if truth := m.truth(t, "sibling"); p.CPUSeconds.Value < time.Duration(truth.CPU).Seconds() || p.Counted || p.Attribution != cimeter.AttributedClient || p.Confidence != cimeter.Likely {
		t.Errorf("part %+v, want %v of CPU, attributed by the client that ran", p, time.Duration(truth.CPU))
	}
	if i := slices.IndexFunc(r.Parts, func(p cimeter.Part) bool { return p.Kind == cimeter.PartBuildStep }); i < 0 || len(r.Parts) != 2 || r.Parts[i].Counted ||
		r.Parts[i].CPUSeconds.Value < 0.15 || r.Parts[i].Attribution != cimeter.AttributedClient {
		t.Errorf("parts %+v, want one build step with 0.2 s of CPU beside the build, by the client that ran", r.Parts)
	}
	if got := a.besides(cimeter.Unattributed); got < 0.15 {
		t.Errorf("%v s unattributed, want the 0.2 s of the step that two may have asked for", got)
	}
	if r := a.await(s2.Key()); len(r.Parts) > 0 {
		t.Errorf("the other has parts %+v", r.Parts)
	}
	if cpu := r.Usage.CPUSeconds.Total.Value; cpu > 0.3 {
		t.Errorf("%v s of CPU, want the build's own alone", cpu)
	}
}
