package testdocker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// Rootless is podman of a user that is not root. On cgroup v1 it gives its containers no
// cgroup of their own; on v2 they have one below CgroupParent, which is the user's, when
// they are told so. They have the networks none and host.
type Rootless struct {
	*Daemon
	uid       int
	delegated bool // it has a cgroup of v2
}

// firstUser is more than any user of this machine has. Each test process has a user of
// its own, whose processes are all podman's.
const firstUser = 3_000_000

// StartRootless is StartPodman for a user without any right. Of a Daemon's methods those
// that ask the engine work.
func StartRootless(tb testing.TB, files map[string]string) *Rootless {
	tb.Helper()
	if os.Geteuid() != 0 {
		unable(tb, "becoming another user needs root, this is user %d", os.Geteuid())
	}
	for _, name := range []string{"podman", "runc", "ip", "nsenter", "setpriv", "busybox"} {
		if _, err := exec.LookPath(name); err != nil {
			unable(tb, "%s is not installed (make test installs it)", name)
		}
	}
	Sweep(tb)
	name := fmt.Sprintf("cimeter-test-%d-%d", os.Getpid(), serial.Add(1))
	r := &Rootless{
		Daemon: &Daemon{tb: tb, dir: filepath.Join(os.TempDir(), name), parent: "/" + name, netns: name},
		uid:    firstUser + os.Getpid(),
	}
	if err := os.MkdirAll(filepath.Join(r.dir, "user"), 0o700); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.stopRootless)
	if err := writeOwner(r.dir, r.parent, r.netns); err != nil {
		tb.Fatal(err)
	}
	if err := addNetns(r.netns); err != nil {
		unable(tb, "a network namespace cannot be made: %v", err)
	}
	if err := os.WriteFile(r.podmanConfig(), []byte(podmanConfig), 0o644); err != nil {
		tb.Fatal(err)
	}
	for _, dir := range []string{r.dir, filepath.Join(r.dir, "user")} {
		if err := os.Chown(dir, r.uid, r.uid); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.Chmod(r.dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := r.delegate(); err != nil {
		tb.Fatal(err)
	}
	if err := r.importImage(files); err != nil {
		tb.Fatal(err)
	}
	log, err := os.Create(r.logFile())
	if err != nil {
		tb.Fatal(err)
	}
	defer log.Close()
	cmd := r.Podman("system", "service", "-t", "0", r.Host())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting a user's podman: %v", err)
	}
	r.cmd, r.done = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(r.done)
	}()
	if r.client, err = client.New(client.WithHost(r.Host())); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := r.waitReady(ctx); err != nil {
		tb.Fatal(err)
	}
	return r
}

// delegate gives a cgroup of v2 to the user, as systemd does for a user's service
// (Delegate=yes): one below it for podman, another for containers.
func (r *Rootless) delegate() error {
	if v2, err := V2(); err != nil || !v2 {
		return err
	}
	r.delegated = true
	for _, path := range []string{r.parent, r.parent + "/podman", r.CgroupParent()} {
		if err := MakeCgroup(path); err != nil {
			return err
		}
		dir := filepath.Join(cgroupRoot, path)
		for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
			if err := os.Chown(filepath.Join(dir, name), r.uid, r.uid); err != nil {
				return err
			}
		}
		if path != r.parent {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu +memory +io +pids"), 0); err != nil {
			return err
		}
	}
	return nil
}

// CgroupParent is what containers are to be told for a cgroup of their own.
func (r *Rootless) CgroupParent() string { return r.parent + "/containers" }

// Podman is a command of the user's podman.
func (r *Rootless) Podman(args ...string) *exec.Cmd {
	id, home := strconv.Itoa(r.uid), filepath.Join(r.dir, "user")
	enter := ":"
	if r.delegated {
		enter = "echo 0 >" + filepath.Join(cgroupRoot, r.parent, "podman", "cgroup.procs")
	}
	return r.Command("sh", append([]string{
		"-c", enter + ` && exec setpriv "$@"`, "sh", "--reuid", id, "--regid", id, "--clear-groups", "env", "-i", "-C", home,
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_RUNTIME_DIR=" + home, "TMPDIR=" + home, "CONTAINERS_CONF=" + r.podmanConfig(),
		"podman", "--storage-driver", "vfs", "--log-level", "warn",
	}, args...)...)
}

func (r *Rootless) importImage(files map[string]string) error {
	path := filepath.Join(r.dir, "image.tar")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = writeImage(f, files, nil)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("making the image: %w", err)
	}
	cmd := r.Podman("import", "--change", "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", path, "docker.io/library/"+Image)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("importing the image: %w: %s", err, out)
	}
	return os.Remove(path)
}

// stopRootless takes everything away: the service, the containers, and the process that
// holds the user's namespaces.
func (r *Rootless) stopRootless() {
	if r.client != nil {
		r.client.Close()
	}
	if r.tb.Failed() {
		r.tb.Logf("end of podman's log:\n%s", r.logTail())
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		pids := processesOf(r.uid)
		if len(pids) == 0 {
			break
		}
		if time.Now().After(deadline) {
			r.tb.Errorf("processes %v of user %d are still there", pids, r.uid)
			break
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone meanwhile
		}
	}
	if r.done != nil {
		<-r.done
	}
	if err := removeAll(r.dir, r.parent, r.netns); err != nil {
		r.tb.Error(err)
	}
}

// processesOf lists the processes of a user that are no zombies.
func processesOf(uid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if err != nil || strings.Contains(string(b), "\nState:\tZ") {
			continue
		}
		_, rest, _ := strings.Cut(string(b), "\nUid:\t")
		if first, _, _ := strings.Cut(rest, "\t"); first == strconv.Itoa(uid) {
			pids = append(pids, pid)
		}
	}
	return pids
}
