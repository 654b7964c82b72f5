package testdocker

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// CRI is a running containerd that makes pods, as on a node of Kubernetes: with a
// network namespace, a folder and a parent cgroup of its own.
type CRI struct {
	Daemon
	crictl  string
	path    string // PATH of the runtime
	bridged bool   // pods can have a network of their own
}

// PodImage is the image of pods and containers: as [Image].
const PodImage = "localhost/cimeter-test:1"

// StartCRI starts a containerd, loads the image and stops it all when tb ends. It
// fails tb when anything goes wrong. crictl is that program's path. Of the options it
// knows Files, Links and Programs.
func StartCRI(tb testing.TB, crictl string, opts Options) *CRI {
	tb.Helper()
	if os.Geteuid() != 0 {
		unable(tb, "containerd needs root, this is user %d", os.Geteuid())
	}
	for _, name := range []string{"containerd", "ctr", "runc", "ip", "nsenter", "busybox"} {
		if _, err := exec.LookPath(name); err != nil {
			unable(tb, "%s is not installed (make test installs it)", name)
		}
	}
	Sweep(tb)
	name := fmt.Sprintf("cimeter-test-%d-%d", os.Getpid(), serial.Add(1))
	c := &CRI{Daemon: Daemon{tb: tb, dir: filepath.Join(os.TempDir(), name), parent: "/" + name, netns: name}, crictl: crictl, path: os.Getenv("PATH")}
	for _, p := range opts.Programs {
		c.path = filepath.Dir(p) + string(filepath.ListSeparator) + c.path
	}
	_, err := os.Stat("/usr/lib/cni/bridge")
	c.bridged = err == nil
	for _, sub := range []string{"", "net.d", "image"} {
		if err := os.MkdirAll(filepath.Join(c.dir, sub), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Cleanup(c.stop)
	if err := writeOwner(c.dir, c.parent, c.netns); err != nil {
		tb.Fatal(err)
	}
	if err := addNetns(c.netns); err != nil {
		unable(tb, "a network namespace cannot be made: %v", err)
	}
	if err := errors.Join(c.configure(), c.start(), c.load(opts.Files, opts.Links)); err != nil {
		tb.Fatal(err)
	}
	return c
}

func (c *CRI) socket() string { return filepath.Join(c.dir, "c.sock") }

// Host is the runtime's address, as --cri takes it.
func (c *CRI) Host() string { return "unix://" + c.socket() }

// configure writes the files of containerd, of its network, and of crictl.
func (c *CRI) configure() error {
	files := map[string]string{
		// Root need not have CAP_SYS_RESOURCE, without which no score falls below 0.
		"config.toml": `version = 2
root = "DIR/root"
state = "DIR/state"
[grpc]
  address = "DIR/c.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "DIR/opt"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "` + PodImage + `"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "DIR/net.d"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
`,
		"net.d/10-test.conflist": `{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "bridge", "bridge": "cni-test", "isGateway": true, "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": "DIR/ipam", "ranges": [[{"subnet": "10.231.0.0/16", "gateway": "` + bridgeAddress + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`,
		"crictl.yaml": "runtime-endpoint: unix://DIR/c.sock\nimage-endpoint: unix://DIR/c.sock\ntimeout: 180\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(strings.ReplaceAll(text, "DIR", c.dir)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (c *CRI) start() error {
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of containerd: %w", err)
	}
	defer log.Close()
	cmd := c.Command("containerd", "--config", filepath.Join(c.dir, "config.toml"), "--log-level", "warn")
	cmd.Env = append(os.Environ(), "PATH="+c.path)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the test is not one of the daemon
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting containerd: %w", err)
	}
	c.cmd, c.done = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(c.done)
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(startTimeout); ; {
		_, err := c.Crictl("version")
		if err == nil {
			return nil
		}
		select {
		case <-c.done:
			return fmt.Errorf("containerd ended at its start: %s", c.logTail())
		case <-tick.C:
		}
		if time.Now().After(end) {
			return fmt.Errorf("containerd does not answer: %w: %s", err, c.logTail())
		}
	}
}

// Restart kills containerd with SIGKILL and starts it again. Pods live on.
func (c *CRI) Restart() {
	c.tb.Helper()
	c.KillRuntime()
	c.StartAgain()
}

// KillRuntime kills containerd with SIGKILL. Pods live on.
func (c *CRI) KillRuntime() {
	c.tb.Helper()
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.tb.Fatalf("killing containerd: %v", err)
	}
	<-c.done
}

// StartAgain starts containerd after KillRuntime.
func (c *CRI) StartAgain() {
	c.tb.Helper()
	if err := c.start(); err != nil {
		c.tb.Fatal(err)
	}
}

// load makes the image from a tar that is put together here: an archive as
// "docker save" makes it.
func (c *CRI) load(files, links map[string]string) error {
	var layer bytes.Buffer
	if err := writeImage(&layer, files, links); err != nil {
		return fmt.Errorf("making the image: %w", err)
	}
	config := fmt.Sprintf(`{"architecture":"amd64","os":"linux","config":{"Entrypoint":["/bin/sleep","1000000"],`+
		`"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},"rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`,
		sha256.Sum256(layer.Bytes()))
	path := filepath.Join(c.dir, "image", "image.tar")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	t := tar.NewWriter(f)
	for _, e := range []struct {
		name string
		b    []byte
	}{
		{"layer.tar", layer.Bytes()}, {"config.json", []byte(config)},
		{"manifest.json", []byte(`[{"Config":"config.json","RepoTags":["` + PodImage + `"],"Layers":["layer.tar"]}]`)},
	} {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: 0o644, Size: int64(len(e.b))}); err != nil {
			return err
		}
		if _, err := t.Write(e.b); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return command("ctr", "-a", c.socket(), "-n", "k8s.io", "images", "import", path)
}

// Crictl runs crictl and returns what it prints.
func (c *CRI) Crictl(args ...string) (string, error) {
	cmd := exec.Command(c.crictl, append([]string{"--config", filepath.Join(c.dir, "crictl.yaml")}, args...)...)
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("crictl %q: %w: %s", args, err, bytes.TrimSpace(failed.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// PodSpec says what a pod is to be like.
type PodSpec struct {
	Name, Namespace, UID string
	Labels, Annotations  map[string]string
	// Class is the class of its quality of service: "" (guaranteed), burstable or
	// besteffort.
	Class string
	// HostNetwork lets it have the network of the runtime. It has no other where
	// the machine has no bridge.
	HostNetwork bool
}

// Pod is a pod that runs.
type Pod struct {
	PodSpec
	ID     string // of its sandbox
	Cgroup string // path
	c      *CRI
	config map[string]any
}

// RunPod makes a pod's cgroup and sandbox as the kubelet does.
func (c *CRI) RunPod(p PodSpec) (*Pod, error) {
	parent := filepath.Join(c.parent, "kubepods", p.Class, "pod"+p.UID)
	if err := c.makeCgroups(parent); err != nil {
		return nil, err
	}
	linux := map[string]any{"cgroup_parent": parent}
	if p.HostNetwork || !c.bridged {
		linux["security_context"] = map[string]any{"namespace_options": map[string]any{"network": 2}}
	}
	pod := &Pod{PodSpec: p, Cgroup: parent, c: c, config: map[string]any{
		"metadata": map[string]any{"name": p.Name, "namespace": p.Namespace, "uid": p.UID, "attempt": 0},
		"labels": with(p.Labels, map[string]string{
			"io.kubernetes.pod.name": p.Name, "io.kubernetes.pod.namespace": p.Namespace, "io.kubernetes.pod.uid": p.UID,
		}),
		"annotations": p.Annotations, "log_directory": c.dir, "linux": linux,
	}}
	config, err := c.write("pod-"+p.UID+".json", pod.config)
	if err != nil {
		return nil, err
	}
	pod.ID, err = c.Crictl("runp", config)
	return pod, err
}

// makeCgroups makes a cgroup and those above it.
func (c *CRI) makeCgroups(path string) error {
	at := ""
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		at += "/" + part
		if err := MakeCgroup(at); err != nil {
			return err
		}
	}
	return nil
}

// ContainerSpec says what a container of a pod is to be like.
type ContainerSpec struct {
	Name   string
	Cmd    []string
	Env    map[string]string
	Labels map[string]string
	Mounts map[string]string // path in the container to path of this machine
	// What the kubelet makes of the pod's requests and limits; 0 is none.
	CPUShares, CPUQuota, MemoryLimit int64
}

// Create makes a container and returns its id.
func (p *Pod) Create(s ContainerSpec) (id string, err error) {
	env := []map[string]string{}
	for k, v := range s.Env {
		env = append(env, map[string]string{"key": k, "value": v})
	}
	mounts := []map[string]any{}
	for at, from := range s.Mounts {
		mounts = append(mounts, map[string]any{"container_path": at, "host_path": from})
	}
	resources := map[string]any{"cpu_period": 100000, "cpu_shares": s.CPUShares, "cpu_quota": s.CPUQuota, "memory_limit_in_bytes": s.MemoryLimit}
	config, err := p.c.write("container-"+p.UID+"-"+s.Name+".json", map[string]any{
		"metadata": map[string]any{"name": s.Name, "attempt": 0}, "image": map[string]any{"image": PodImage},
		"command": s.Cmd[:1], "args": s.Cmd[1:], "envs": env, "mounts": mounts, "linux": map[string]any{"resources": resources},
		"labels": with(s.Labels, map[string]string{
			"io.kubernetes.pod.name": p.Name, "io.kubernetes.pod.namespace": p.Namespace, "io.kubernetes.pod.uid": p.UID,
			"io.kubernetes.container.name": s.Name,
		}),
	})
	if err != nil {
		return "", err
	}
	return p.c.Crictl("create", "--no-pull", p.ID, config, filepath.Join(p.c.dir, "pod-"+p.UID+".json"))
}

// Start starts a container.
func (c *CRI) Start(id string) error {
	_, err := c.Crictl("start", id)
	return err
}

// Wait waits until a container has ended and returns its exit code.
func (c *CRI) Wait(id string) (int, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(startTimeout); ; <-tick.C {
		out, err := c.Crictl("inspect", id)
		if err != nil {
			return 0, err
		}
		var said struct {
			Status struct {
				State    string `json:"state"`
				ExitCode int    `json:"exitCode"`
			} `json:"status"`
		}
		if err := json.Unmarshal([]byte(out), &said); err != nil {
			return 0, err
		}
		if said.Status.State == "CONTAINER_EXITED" {
			return said.Status.ExitCode, nil
		}
		if time.Now().After(end) {
			return 0, fmt.Errorf("container %.12s is %s after %v", id, said.Status.State, startTimeout)
		}
	}
}

// Run makes a container, starts it and waits for its end.
func (p *Pod) Run(s ContainerSpec) error {
	id, err := p.Create(s)
	if err == nil {
		err = p.c.Start(id)
	}
	if err != nil {
		return err
	}
	code, err := p.c.Wait(id)
	if err == nil && code != 0 {
		return fmt.Errorf("container %s of pod %s: exit code %d", s.Name, p.Name, code)
	}
	return err
}

// CPU is the CPU time that the pod has used, containers that are gone included.
func (p *Pod) CPU() (time.Duration, error) { return CgroupCPU(p.Cgroup) }

// End stops the pod and removes it. Its cgroup is left: it has the CPU time of all that
// the pod was.
func (p *Pod) End() error {
	_, err := p.c.Crictl("rmp", "-f", p.ID)
	return err
}

// RemoveCgroup removes the cgroup of a pod that was ended.
func (p *Pod) RemoveCgroup() error { return removeCgroup(p.Cgroup) }

// Remove stops the pod and removes it and its cgroup, as the kubelet does.
func (p *Pod) Remove() error {
	if err := p.End(); err != nil {
		return err
	}
	return p.RemoveCgroup()
}

func (c *CRI) write(name string, v any) (path string, err error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	path = filepath.Join(c.dir, name)
	return path, os.WriteFile(path, b, 0o644)
}

func with(a, b map[string]string) map[string]string {
	all := make(map[string]string, len(a)+len(b))
	for _, m := range []map[string]string{a, b} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}
