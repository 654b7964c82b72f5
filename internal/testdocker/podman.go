package testdocker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
)

// podmanConfig has runc run containers in cgroups made by podman itself, within the
// limits that an ordinary root may set.
const podmanConfig = `[containers]
default_ulimits = ["nofile=20000:20000","nproc=30000:30000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
`

// podmanGateway is the address of podman's own bridge in its network namespace.
const podmanGateway = "10.88.0.1"

// StartPodman is Start for podman's service, which speaks the Docker Engine's
// language. Its containers are below the daemon's parent cgroup only when they are
// told so. Kill and Restart are not for it.
func StartPodman(tb testing.TB, opts Options) *Daemon {
	tb.Helper()
	if os.Geteuid() != 0 {
		unable(tb, "podman's service needs root here, this is user %d", os.Geteuid())
	}
	for _, name := range []string{"podman", "runc", "ip", "nsenter", "busybox"} {
		if _, err := exec.LookPath(name); err != nil {
			unable(tb, "%s is not installed (make test installs it)", name)
		}
	}
	Sweep(tb)
	name := fmt.Sprintf("cimeter-test-%d-%d", os.Getpid(), serial.Add(1))
	d := &Daemon{tb: tb, dir: filepath.Join(os.TempDir(), name), parent: "/" + name, netns: name, gateway: podmanGateway}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(d.stopPodman)
	d.strays = entries(tb)
	if err := writeOwner(d.dir, d.parent, d.netns); err != nil {
		tb.Fatal(err)
	}
	if err := addNetns(d.netns); err != nil {
		unable(tb, "a network namespace cannot be made: %v", err)
	}
	if err := os.WriteFile(d.podmanConfig(), []byte(podmanConfig), 0o644); err != nil {
		tb.Fatal(err)
	}
	log, err := os.Create(d.logFile())
	if err != nil {
		tb.Fatal(err)
	}
	defer log.Close()
	cmd := d.Podman("system", "service", "-t", "0", d.Host())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting podman's service: %v", err)
	}
	d.cmd, d.done = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(d.done)
	}()
	if d.client, err = client.New(client.WithHost(d.Host())); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := d.waitReady(ctx); err != nil {
		tb.Fatal(err)
	}
	if err := d.loadPodman(opts.Files, opts.Links); err != nil {
		tb.Fatal(err)
	}
	return d
}

// Podman is a command of podman on the storage of the daemon.
func (d *Daemon) Podman(args ...string) *exec.Cmd {
	cmd := d.Command("podman", append([]string{
		"--root", filepath.Join(d.dir, "root"), "--runroot", filepath.Join(d.dir, "run"), "--tmpdir", filepath.Join(d.dir, "tmp"), "--log-level", "warn",
	}, args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+d.podmanConfig())
	return cmd
}

func (d *Daemon) podmanConfig() string { return filepath.Join(d.dir, "containers.conf") }

// loadPodman imports Image by podman's own command: its service gives an imported
// image no tag.
func (d *Daemon) loadPodman(files, links map[string]string) error {
	path := filepath.Join(d.dir, "image.tar")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = writeImage(f, files, links)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("making the image: %w", err)
	}
	cmd := d.Podman("import", "--change", "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", path, "docker.io/library/"+Image)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("importing the image: %w: %s", err, out)
	}
	return os.Remove(path)
}

// stopPodman takes everything away.
func (d *Daemon) stopPodman() {
	if d.client != nil {
		d.client.Close()
	}
	if d.cmd != nil {
		if d.tb.Failed() {
			d.tb.Logf("end of podman's log:\n%s", d.logTail())
		}
		out, err := d.Podman("rm", "--all", "--force", "--time", "0").CombinedOutput()
		if err != nil {
			d.tb.Logf("removing podman's containers: %v: %s", err, out)
		}
		if err := d.cmd.Process.Signal(syscall.SIGTERM); err == nil {
			select {
			case <-d.done:
			case <-time.After(startTimeout):
				_ = d.cmd.Process.Kill() // it had its time
				<-d.done
			}
		}
	}
	if err := endProcesses(d.dir, "podman", "conmon"); err != nil {
		d.tb.Error(err)
	}
	if err := removeAll(d.dir, d.parent, d.netns); err != nil {
		d.tb.Error(err)
	}
	removeStrays(d.tb, d.strays)
}

// cgroupRoot is where the hierarchies are mounted.
const cgroupRoot = "/sys/fs/cgroup"

// entries lists what lies where the hierarchies are mounted.
func entries(tb testing.TB) map[string]bool {
	tb.Helper()
	all, err := os.ReadDir(cgroupRoot)
	if err != nil {
		tb.Fatal(err)
	}
	names := make(map[string]bool)
	for _, e := range all {
		names[e.Name()] = true
	}
	return names
}

// removeStrays removes the plain folders and links that podman makes there for
// hierarchies of v1 that this machine does not have.
func removeStrays(tb testing.TB, before map[string]bool) {
	tb.Helper()
	var fs unix.Statfs_t
	if unix.Statfs(cgroupRoot, &fs) != nil || fs.Type != unix.TMPFS_MAGIC {
		return // v2: what lies there are cgroups
	}
	var root, st syscall.Stat_t
	if err := syscall.Lstat(cgroupRoot, &root); err != nil {
		tb.Error(err)
		return
	}
	for name := range entries(tb) {
		path := filepath.Join(cgroupRoot, name)
		if before[name] || syscall.Lstat(path, &st) != nil || st.Dev != root.Dev {
			continue // a hierarchy is a file system of its own
		}
		if err := os.RemoveAll(path); err != nil {
			tb.Error(err)
		}
	}
}
