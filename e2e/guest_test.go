package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/testtools"
)

// guestTime is what the guest's run is given: it is about six times slower
// than this machine, and is made first where it is not in the cache.
const guestTime = 20 * time.Minute

// guestTests are the tests that run on a cgroup v2 kernel as well: the live
// ones of the adapters, and bodies of this package.
var guestTests = []struct{ dir, run, skip string }{
	{"internal/cgroup", "^TestLive", "^$"},
	{"internal/watch", ".", "^$"},
	{"internal/netns", ".", "^$"},
	{"internal/process", ".", "^TestTree|^TestFS_AppendCmdline$"}, // held to times; wants a shell with long command lines
	{"internal/wrap", "^TestRun_(Counts|Stages|StagesSumUp|OOM)$", "^$"},
	{"e2e", "^(TestAgentParts|TestAgentMovedBefore|TestAgentOOMGroup|TestAgentRunInside)$", "^$"},
	{"e2e", "^TestAgentSlices$/^(ci|user)", "^$"},
	{"e2e", "^(TestClockSet|TestAgentMissedEnd|TestAgentLittleMemory|TestAgentStarved)$", "^$"},
	{"e2e", guestPods(), "^$"},
	{"e2e", "^TestPodmanRootless$", "^$"},
	{"e2e", "^TestDocker$/^(" + guestBodies() + ")$", "^$"},
}

// guestBodies are the bodies on Docker that the guest runs: each takes a minute
// or two there, so those that are v2's own matter by default, and all of them
// where CIMETER_TEST_GUEST says all.
func guestBodies() string {
	if os.Getenv("CIMETER_TEST_GUEST") == "all" {
		return "GitLabOld|GitLabNew|Drone|Woodpecker|ShortLived|HostNetwork|OOM|Throttled|AgentKilled|NoCapability"
	}
	return "GitLabNew|Drone"
}

// TestInGuest runs guestTests inside the emulated machine of scripts/guest.sh,
// with Docker Engine on cgroup v2.
func TestInGuest(t *testing.T) {
	if testing.Short() {
		t.Skip("an emulated machine is not for -short")
	}
	t.Parallel() // beside TestInstall and a few more, one at a time on two CPUs, when what wants this machine for itself is done
	for _, name := range []string{"qemu-system-x86_64", "debootstrap", "busybox", "cpio", "mkfs.ext4"} {
		if _, err := exec.LookPath(name); err != nil {
			unable(t, "%s is not installed (make test installs it)", name)
		}
	}
	if os.Geteuid() != 0 {
		unable(t, "making the guest needs root, this is user %d", os.Geteuid())
	}
	if end, ok := t.Deadline(); ok && time.Until(end) < guestTime {
		unable(t, "%v are left, the guest may need %v: give go test a -timeout of an hour, as make test does", time.Until(end).Round(time.Second), guestTime)
	}
	dir := t.TempDir()
	var run strings.Builder
	run.WriteString("export CI=true CIMETER_TEST_SLOW=1 " + binFolder + "=/mnt/bin\nstatus=0\n")
	for _, p := range guestTests {
		pkg := strings.ReplaceAll(p.dir, "/", "-")
		to := filepath.Join(dir, pkg)
		if !exists(to) {
			if err := packTests(to, p.dir); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintf(&run, "echo '=== PACKAGE %s'\n(cd /mnt/%s && ./run.test -test.v -test.timeout 0 -test.run '%s' -test.skip '%s') || status=1\n", p.dir, pkg, p.run, p.skip)
	}
	run.WriteString("exit $status\n")
	if err := os.WriteFile(filepath.Join(dir, "run"), []byte(run.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, pkg := range map[string]string{"burn": "./e2e/burn", "cimeter": "./cmd/cimeter"} {
		if err := buildProgram(filepath.Join(bin, name), pkg); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []testtools.Tool{testtools.Crictl, testtools.Containerd, testtools.ContainerdShim} {
		if err := copyProgram(filepath.Join(bin, string(tool)), testtools.Path(t, tool)); err != nil {
			t.Fatal(err)
		}
	}
	out, err := runGuest(t.Context(), dir)
	passed, failed := bytes.Count(out, []byte("--- PASS: ")), bytes.Count(out, []byte("--- FAIL: "))
	t.Logf("in the guest %d tests passed, %d failed", passed, failed)
	if err != nil || failed > 0 || passed == 0 {
		t.Errorf("the guest's run: %v\n%s", err, out)
	}
}

// guestPods are the bodies on Kubernetes runtimes that the guest runs: on the newer
// containerd, as nodes with cgroup v2 have it, by default.
func guestPods() string {
	if os.Getenv("CIMETER_TEST_GUEST") == "all" {
		return "^TestCRI(Streamed)?$/^(ShortLived|GitLab|AgentAway|RuntimeAway)$"
	}
	return "^TestCRIStreamed$/^ShortLived$"
}

// toolProgram is the path of a program of others: in the guest one that was brought
// along.
func toolProgram(t *testing.T, tool testtools.Tool) string {
	t.Helper()
	if dir := os.Getenv(binFolder); dir != "" {
		return filepath.Join(dir, string(tool))
	}
	return testtools.Path(t, tool)
}

func copyProgram(to, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// packTests puts the test program of a package and its data into a folder.
func packTests(to, pkg string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := buildTest(filepath.Join(to, "run.test"), "./"+pkg); err != nil {
		return err
	}
	from := filepath.Join("..", pkg, "testdata")
	if !exists(from) {
		return nil
	}
	if err := os.CopyFS(filepath.Join(to, "testdata"), os.DirFS(from)); err != nil {
		return err
	}
	return copyModes(from, filepath.Join(to, "testdata"))
}

// runGuest runs what is in dir inside the guest and returns what it printed.
func runGuest(ctx context.Context, dir string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, guestTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "../scripts/guest.sh", "run", dir)
	cmd.Env = append(os.Environ(), fmt.Sprintf("GUEST_TIMEOUT=%d", int((guestTime-time.Minute).Seconds())))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // qemu too
	var errout bytes.Buffer
	cmd.Stderr = &errout
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("guest.sh: %w: %s", err, errout.Bytes())
	}
	return out, nil
}

// unable ends a test that this machine cannot run; in CI that is a failure.
func unable(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("cannot run here: "+format, args...)
	}
	t.Skipf("cannot run here: "+format, args...)
}

// buildTest builds the static test program of a package.
func buildTest(path, pkg string) error {
	cmd := exec.Command("go", "test", "-c", "-trimpath", "-o", path, pkg)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the tests of %s: %w\n%s", pkg, err, out)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// copyModes gives the files of a copied tree the modes of the original, which
// os.CopyFS widens.
func copyModes(from, to string) error {
	return filepath.WalkDir(from, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil || info.Mode()&os.ModeSymlink != 0 {
			return err
		}
		return os.Chmod(filepath.Join(to, rel), info.Mode().Perm())
	})
}
