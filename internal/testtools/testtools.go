// Package testtools builds the programs of others that tests run against, and
// starts them.
//
// It owns a folder of binaries in the user's cache, each built once by the Go
// tool at the version that stands here and kept from one run of the tests to
// the next. Two tests that want the same tool at once build it once. Only tests
// import it; the binary never holds it. Start with [Path], or [Start] for a
// program that runs for the length of a test. Everything is safe for concurrent
// use.
package testtools

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Tool names a program that tests run.
type Tool string

// The tools.
const (
	StatsdExporter Tool = "statsd_exporter"
	// Consul is the last one of a free licence.
	Consul Tool = "consul"
	// Prometheus is a new one with consul_sd, which Debian's lacks. It has no
	// other discovery beside http, file and static.
	Prometheus   Tool = "prometheus"
	NodeExporter Tool = "node_exporter"
	// VictoriaMetrics is the single-node program.
	VictoriaMetrics Tool = "victoria-metrics"
	// OTLPReceiver is the OpenTelemetry collector's own receiver, which says what
	// it was sent.
	OTLPReceiver Tool = "otlpreceiver"
	// Gitea is the newest that the module proxy serves; it is compiled with C.
	Gitea Tool = "gitea"
	Helm  Tool = "helm"
	// CycloneDX lists the modules of a Go program.
	CycloneDX Tool = "cyclonedx-gomod"
	// Etcd is what KubeAPIServer keeps its objects in. Debian's is too old for its
	// watches.
	Etcd          Tool = "etcd"
	KubeAPIServer Tool = "kube-apiserver"
	// CAdvisor is made of cAdvisor's own packages: the module proxy does not serve
	// its program. A benchmark compares with it.
	CAdvisor Tool = "cadvisor"
	// Crictl makes pods as the kubelet does.
	Crictl Tool = "crictl"
	// Containerd is one that streams what happens to containers, which Debian's does
	// not; ContainerdShim is what it starts for each pod.
	Containerd     Tool = "containerd"
	ContainerdShim Tool = "containerd-shim-runc-v2"
	// Buildkitd and Buildctl are BuildKit's daemon and its client.
	Buildkitd Tool = "buildkitd"
	Buildctl  Tool = "buildctl"
	// CRIServer is a runtime made of the kubelet's own interface.
	CRIServer Tool = "criserver"
)

// recipe says how a tool is made.
type recipe struct {
	pkg     string // its package
	version string // of its module: "go install pkg@version"
	// module is a folder below this one with a go.mod of its own, for a tool that
	// needs build tags, replacements, or code of ours. "" installs pkg@version.
	module  string
	tags    string
	ldflags string
}

// recipes are all tools. A new one is a constant above and a row here.
func recipes() map[Tool]recipe {
	return map[Tool]recipe{
		StatsdExporter: {pkg: "github.com/prometheus/statsd_exporter", version: "v0.31.0"},
		Consul:         {pkg: "github.com/hashicorp/consul", module: "consul", ldflags: "-s -w"},
		Prometheus:     {pkg: "github.com/prometheus/prometheus/cmd/prometheus", module: "prometheus", tags: "remove_all_sd,enable_consul_sd,netgo", ldflags: "-s -w"},
		NodeExporter:   {pkg: "github.com/prometheus/node_exporter", version: "v1.12.1"},

		VictoriaMetrics: {pkg: "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics", version: "v1.151.0"},
		OTLPReceiver:    {pkg: "github.com/cimeter/cimeter/internal/testtools/otlpreceiver", module: "otlpreceiver", ldflags: "-s -w"},
		Gitea:           {pkg: "code.gitea.io/gitea", module: "gitea", tags: "sqlite sqlite_unlock_notify", ldflags: "-s -w"},

		Helm:      {pkg: "helm.sh/helm/v3/cmd/helm", version: "v3.22.0", ldflags: "-s -w"},
		CycloneDX: {pkg: "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod", version: "v1.10.0"},

		CRIServer: {pkg: "github.com/cimeter/cimeter/internal/testtools/criserver", module: "criserver", ldflags: "-s -w"},

		Crictl: {pkg: "sigs.k8s.io/cri-tools/cmd/crictl", version: "v1.37.0", ldflags: "-s -w"},

		Containerd: {
			pkg: "github.com/containerd/containerd/v2/cmd/containerd", version: "v2.4.2", ldflags: "-s -w",
			tags: "no_btrfs,no_devmapper,no_zfs,no_tracing",
		},
		ContainerdShim: {pkg: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", version: "v2.4.2", ldflags: "-s -w"},

		Buildkitd: {pkg: "github.com/moby/buildkit/cmd/buildkitd", module: "buildkit", ldflags: "-s -w"},
		Buildctl:  {pkg: "github.com/moby/buildkit/cmd/buildctl", module: "buildkit", ldflags: "-s -w"},

		CAdvisor: {pkg: "github.com/cimeter/cimeter/internal/testtools/cadvisor", module: "cadvisor", ldflags: "-s -w"},

		Etcd: {pkg: "go.etcd.io/etcd/server/v3", module: "etcd", ldflags: "-s -w"},
		KubeAPIServer: {pkg: "k8s.io/kubernetes/cmd/kube-apiserver", module: "kube-apiserver", ldflags: "-s -w" +
			" -X k8s.io/component-base/version.gitVersion=v1.34.4 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"},
	}
}

// cgo is 1 for a tool that is compiled with C: SQLite is.
func (r recipe) cgo() string {
	if r.module == "gitea" {
		return "1"
	}
	return "0"
}

// buildTime is the longest that one tool may take: the largest of them takes six
// minutes on a quiet machine of two cores.
const buildTime = 25 * time.Minute

// Path returns the path of a tool's binary, and builds it where the cache has
// none. The test fails when it cannot be built.
func Path(t testing.TB, tool Tool) string {
	t.Helper()
	r, ok := recipes()[tool]
	if !ok {
		t.Fatalf("tool %s: no recipe: want one in internal/testtools", tool)
	}
	bin, err := build(t.Context(), tool, r)
	if err != nil {
		t.Fatalf("tool %s: %v", tool, err)
	}
	return bin
}

func build(ctx context.Context, tool Tool, r recipe) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	source := ""
	if r.module != "" {
		if source, err = moduleFolder(ctx, r.module); err != nil {
			return "", err
		}
	}
	sum, err := digest(r, source)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "cimeter-tools", string(tool)+"-"+sum)
	bin := filepath.Join(folder, string(tool))
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(folder, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(bin); err == nil { // another test was quicker
		return bin, nil
	}
	scratch, err := os.MkdirTemp(folder, "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	if err := compile(ctx, r, source, scratch); err != nil {
		return "", err
	}
	return bin, os.Rename(filepath.Join(scratch, binary(r.pkg)), bin)
}

// compile makes the binary in scratch.
func compile(ctx context.Context, r recipe, source, scratch string) error {
	args := []string{"-trimpath"}
	if r.tags != "" {
		args = append(args, "-tags", r.tags)
	}
	if r.ldflags != "" {
		args = append(args, "-ldflags", r.ldflags)
	}
	if r.module == "" {
		args = append(append([]string{"install"}, args...), r.pkg+"@"+r.version)
	} else {
		args = append(append([]string{"build"}, args...), "-o", filepath.Join(scratch, binary(r.pkg)), r.pkg)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = scratch
	if source != "" {
		cmd.Dir = source
	}
	cmd.Env = append(os.Environ(), "GOBIN="+scratch, "GOWORK=off", "GOFLAGS=-buildvcs=false", "CGO_ENABLED="+r.cgo())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// binary is what go install calls the program of a package: the last part of
// its path that is not a version.
func binary(pkg string) string {
	name := path.Base(pkg)
	if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
		name = path.Base(path.Dir(pkg))
	}
	return name
}

// moduleFolder is where the module of a tool lies, wherever the test runs.
func moduleFolder(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cimeter/cimeter").Output()
	if err != nil {
		return "", fmt.Errorf("find the module's folder: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "internal", "testtools", name), nil
}

// digest changes when anything does that the binary is made of.
func digest(r recipe, source string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%+v %s %s/%s\n", r, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if source != "" {
		err := filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			fmt.Fprintf(h, "%s %d\n", d.Name(), len(b))
			h.Write(b)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:6]), nil
}

// lock waits until this process has the file for itself. The kernel gives it
// back when the process dies.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
