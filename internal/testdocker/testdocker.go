// Package testdocker gives a test a Docker Engine of its own: a real dockerd
// with its own network namespace, data folder and parent cgroup, an image made
// on the spot (nothing is pulled), and a client to it.
//
// It owns what it starts and takes all of it away again: containers, mounts,
// cgroup folders in every hierarchy, the network namespace, the folder. What a
// killed test run left behind is swept when the next one starts.
//
// It is imported by tests only. It needs root, dockerd, iptables, ip and
// nsenter; where one is missing the test is skipped with the reason, or fails
// when CI is set in the environment. Entry point: [Start]. A [Daemon] may be
// used by several goroutines, but Kill, Restart, Pause and Resume by one only.
package testdocker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// Options says what a daemon is to be like. The zero value will do.
type Options struct {
	// CgroupParent is the parent cgroup of all containers; "" makes one up
	// ("/cimeter-test-<pid>-<n>"). A given one is removed at the end as well.
	CgroupParent string
	// Args are further arguments of dockerd, such as --live-restore.
	Args []string
	// Files are put into the image besides busybox: absolute path in the image
	// to a file of this machine. All are executable.
	Files map[string]string
	// Links are symbolic links of the image: path to target.
	Links map[string]string
	// Folder is where the daemon keeps its data; "" is a new folder in
	// os.TempDir. It must not lie on an overlay or a tmpfs without room.
	Folder string
	// Programs are paths of programs that are run in place of the machine's of the
	// same names: containerd and its shim.
	Programs []string
}

// Daemon is a running dockerd.
type Daemon struct {
	tb      testing.TB
	dir     string
	parent  string
	netns   string
	gateway string          // of its bridge; "" is that of dockerd
	strays  map[string]bool // podman: what lay beside the hierarchies before
	args    []string
	client  *client.Client
	cmd     *exec.Cmd
	done    chan struct{} // closed when cmd has ended
}

// startTimeout bounds every wait for dockerd; an emulated machine needs 20 s.
const startTimeout = 3 * time.Minute

var serial atomic.Int64 // numbers the daemons of this process, for their names

// Start starts a daemon, loads the image and stops it all when tb ends. It
// fails tb when anything goes wrong.
func Start(tb testing.TB, opts Options) *Daemon {
	tb.Helper()
	Require(tb)
	Sweep(tb)
	name := fmt.Sprintf("cimeter-test-%d-%d", os.Getpid(), serial.Add(1))
	base := opts.Folder
	if base == "" {
		base = os.TempDir()
	}
	d := &Daemon{
		tb:     tb,
		dir:    filepath.Join(base, name),
		parent: opts.CgroupParent,
		netns:  name,
		args:   opts.Args,
	}
	if d.parent == "" {
		d.parent = "/" + name
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		tb.Fatalf("making the daemon's folder: %v", err)
	}
	tb.Cleanup(d.stop)
	if err := writeOwner(d.dir, d.parent, d.netns); err != nil {
		tb.Fatal(err)
	}
	if err := addNetns(d.netns); err != nil {
		unable(tb, "a network namespace cannot be made: %v", err)
	}
	c, err := client.New(client.WithHost(d.Host()))
	if err != nil {
		tb.Fatalf("making a docker client: %v", err)
	}
	d.client = c
	if err := d.start(); err != nil {
		tb.Fatal(err)
	}
	if err := d.importImage(opts.Files, opts.Links); err != nil {
		tb.Fatal(err)
	}
	return d
}

// Require skips tb, or fails it in CI, when this machine cannot run a daemon.
func Require(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		unable(tb, "a docker daemon needs root, this is user %d", os.Geteuid())
	}
	for _, name := range []string{"dockerd", "containerd", "iptables", "ip", "nsenter", "busybox"} {
		if _, err := exec.LookPath(name); err != nil {
			unable(tb, "%s is not installed (make test installs it)", name)
		}
	}
}

// unable ends tb: this machine cannot run it. In CI that is a failure.
func unable(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv("CI") != "" {
		tb.Fatalf("cannot run here: "+format, args...)
	}
	tb.Skipf("cannot run here: "+format, args...)
}

// start starts dockerd and waits until it answers.
func (d *Daemon) start() error {
	log, err := os.OpenFile(d.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of dockerd: %w", err)
	}
	defer log.Close()
	args := []string{
		"--data-root", filepath.Join(d.dir, "root"), "--exec-root", filepath.Join(d.dir, "exec"),
		"--host", d.Host(), "--pidfile", d.pidFile(), "--cgroup-parent", d.parent,
		"--bip", bridgeAddress + "/16", "--storage-driver", "overlay2", "--log-level", "warn",
	}
	cmd := d.Command("dockerd", append(args, d.args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the test is not one of the daemon
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting dockerd: %w", err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(done)
	}()
	d.cmd, d.done = cmd, done

	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return d.waitReady(ctx)
}

// waitReady waits until the daemon answers.
func (d *Daemon) waitReady(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := d.client.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-d.done:
			return fmt.Errorf("dockerd ended at its start: %s", d.logTail())
		case <-ctx.Done():
			return fmt.Errorf("dockerd does not answer: %w: %s", ctx.Err(), d.logTail())
		}
	}
}

// Host is the daemon's address, as the -H flag takes it.
func (d *Daemon) Host() string { return "unix://" + filepath.Join(d.dir, "docker.sock") }

// Folder is the daemon's own folder. It is removed at the end.
func (d *Daemon) Folder() string { return d.dir }

// CgroupParent is the path of the parent cgroup, from the root of a hierarchy.
func (d *Daemon) CgroupParent() string { return d.parent }

// Client is a client of the daemon.
func (d *Daemon) Client() *client.Client { return d.client }

// Pid is the process id of dockerd.
func (d *Daemon) Pid() int { return d.cmd.Process.Pid }

// Log is what dockerd has logged so far.
func (d *Daemon) Log() string {
	b, err := os.ReadFile(d.logFile())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (d *Daemon) logFile() string { return filepath.Join(d.dir, "dockerd.log") }
func (d *Daemon) pidFile() string { return filepath.Join(d.dir, "docker.pid") }

// logTail is the end of the daemon's log, for messages.
func (d *Daemon) logTail() string {
	s := d.Log()
	if len(s) > 2000 {
		s = s[len(s)-2000:]
	}
	return s
}

// Kill kills dockerd, and the containerd that it started, with SIGKILL. Its
// containers live on.
func (d *Daemon) Kill() {
	d.tb.Helper()
	if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.tb.Fatalf("killing dockerd: %v", err)
	}
	<-d.done
	if err := endProcesses(d.dir, "dockerd", "containerd"); err != nil {
		d.tb.Fatal(err)
	}
}

// Terminate ends dockerd with SIGTERM: without --live-restore its containers
// end with it.
func (d *Daemon) Terminate() {
	d.tb.Helper()
	if err := d.terminate(); err != nil {
		d.tb.Fatal(err)
	}
}

func (d *Daemon) terminate() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending dockerd: %w", err)
	}
	select {
	case <-d.done:
		return nil
	case <-time.After(startTimeout):
		return fmt.Errorf("dockerd did not end within %v of SIGTERM", startTimeout)
	}
}

// Restart starts dockerd again after Kill or Terminate and waits until it
// answers.
func (d *Daemon) Restart() {
	d.tb.Helper()
	select {
	case <-d.done:
	default:
		d.Terminate()
	}
	// Left by a killed daemon. Where process 1 reaps nothing, a zombie keeps
	// the pid alive and the new daemon would wait for it.
	_ = os.Remove(d.pidFile())
	_ = os.Remove(filepath.Join(d.dir, "exec", "containerd", "containerd.pid"))
	if err := d.start(); err != nil {
		d.tb.Fatal(err)
	}
}

// Pause stops dockerd with SIGSTOP: it is there but answers nothing.
func (d *Daemon) Pause() { d.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (d *Daemon) Resume() { d.signal(syscall.SIGCONT) }

func (d *Daemon) signal(s syscall.Signal) {
	d.tb.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.tb.Fatalf("sending %v to dockerd: %v", s, err)
	}
}

// stop takes everything away. It runs once, at the end of the test.
func (d *Daemon) stop() {
	if d.client != nil {
		d.client.Close()
	}
	if d.cmd != nil {
		_ = d.cmd.Process.Signal(syscall.SIGCONT) // it may be paused
		if d.tb.Failed() {
			d.tb.Logf("end of the daemon's log:\n%s", d.logTail())
		}
		_ = killCgroup(d.parent) // containers first: then dockerd has nothing to wait for
		if err := d.terminate(); err != nil {
			d.tb.Error(err)
			_ = d.cmd.Process.Kill() // the error is told already
			<-d.done
		}
	}
	if err := removeAll(d.dir, d.parent, d.netns); err != nil {
		d.tb.Error(err)
	}
}

// writeOwner notes in dir what belongs to the daemon there and which process
// started it, for Sweep.
func writeOwner(dir, parent, netns string) error {
	start, err := startTime(os.Getpid())
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d %s\n%s\n%s\n", os.Getpid(), start, parent, netns)
	if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the owner of %s: %w", dir, err)
	}
	return nil
}

const ownerFile = "owner"

// startTime is field 22 of /proc/PID/stat: with the pid it names a process.
func startTime(pid int) (string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", fmt.Errorf("reading the start time of process %d: %w", pid, err)
	}
	_, rest, ok := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 20 {
		return "", fmt.Errorf("reading the start time of process %d: %q is not a stat line", pid, b)
	}
	return f[19], nil
}
