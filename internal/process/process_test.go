package process_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/process"
)

func TestOpenPidfd(t *testing.T) {
	c := run(t)
	fd, err := process.OpenPidfd(c.pid())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if ended(t, fd, 0) {
		t.Error("readable while the process lives")
	}
	zombie(t, c)
	if !ended(t, fd, 0) {
		t.Error("not readable after the end")
	}
	c.end()
	if _, err := process.OpenPidfd(c.pid()); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("waited for: got %v, want gone", err)
	}
	if _, err := process.OpenPidfd(0); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("pid 0: got %v, want invalid", err)
	}
}

func TestFS_Stat(t *testing.T) {
	fs := process.Open("")
	c := run(t)
	do(t, c, "burn 60")
	s, err := fs.Stat(c.pid())
	if err != nil {
		t.Fatal(err)
	}
	if s.Pid != c.pid() || s.Parent != os.Getpid() || s.Comm != "exe" || s.Threads < 1 || s.ResidentBytes == 0 || s.StartTime == 0 {
		t.Errorf("got %+v", s)
	}
	if cpu := s.UserTime + s.SystemTime; cpu.Milliseconds() < 50 {
		t.Errorf("CPU time: got %v, want at least 50ms", cpu)
	}
	zombie(t, c)
	if s, err := fs.Stat(c.pid()); err != nil || s.State != 'Z' {
		t.Errorf("ended: got state %c, %v, want Z", s.State, err)
	}
	c.end()
	if _, err := fs.StartTime(c.pid()); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("waited for: got %v, want gone", err)
	}
}

func TestFS_AppendCmdline(t *testing.T) {
	fs := process.Open("")
	c := run(t)
	got, err := fs.AppendCmdline([]byte("kept:"), c.pid())
	if want := "kept:/proc/self/exe\x00child\x00xxx\x00\x00"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	cmd := exec.Command("sh", "-c", "echo; read x", strings.Repeat("y", 10_000))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	// Its command line is there a moment after exec succeeded: when it speaks.
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if got, err := fs.AppendCmdline(nil, cmd.Process.Pid); err != nil || len(got) != 4096 {
		t.Errorf("long: got %d bytes, %v, want 4096", len(got), err)
	}
	if got, err := fs.AppendCmdline([]byte("kept"), 1<<30); !errors.Is(err, cimeter.ErrGone) || string(got) != "kept" {
		t.Errorf("no such process: got %q, %v, want gone", got, err)
	}
}

func TestFS_Cgroup(t *testing.T) {
	got, err := process.Open("").Cgroup(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || string(got) != string(want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestFS_Environ(t *testing.T) {
	fs := process.Open("")
	const secret = "glrt-s3cr3t-of-the-runner"
	c := run(t, "CI=yes", "CI_JOB_TOKEN="+secret, "CI_JOB_ID=4242", "BIG="+strings.Repeat(secret, 4000))
	got, err := fs.Environ(c.pid(), []string{"CI_JOB_ID", "CI_JOB", "ABSENT"})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got["CI_JOB_ID"] != "4242" {
		t.Errorf("got %d variables, want CI_JOB_ID=4242 only", len(got))
	}
	if s := fmt.Sprint(got, err); strings.Contains(s, secret) {
		t.Error("a variable that is not allowed came out")
	}
	zombie(t, c)
	if got, err := fs.Environ(c.pid(), []string{"CI_JOB_ID"}); len(got) != 0 || err != nil && !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("ended: got %v, %v, want nothing or gone", got, err)
	}
	c.end()
	if _, err := fs.Environ(c.pid(), []string{"CI_JOB_ID"}); !errors.Is(err, cimeter.ErrGone) || strings.Contains(err.Error(), secret) {
		t.Errorf("waited for: got %v, want gone", err)
	}
}

// Of an environment over the bound the variable that is cut is left out, and is not
// told in part.
func TestFS_Environ_cut(t *testing.T) {
	const bound, most = 1 << 20, 127 << 10 // the kernel takes 128 KiB a variable
	var env []string
	left := bound - 1024 // the one that is cut begins before the bound, and ends behind it
	for _, own := range os.Environ() {
		left -= len(own) + 1
	}
	for i := 0; left > 0; i++ {
		n := min(left, most)
		left -= n + len("BIG_000=") + 1
		env = append(env, fmt.Sprintf("BIG_%03d=%s", i, strings.Repeat("x", n)))
	}
	env = append(env, "CI_JOB_ID="+strings.Repeat("4", 8192), "CI_JOB_NAME=behind")
	c := run(t, env...)
	got, err := process.Open("").Environ(c.pid(), []string{"BIG_000", "CI_JOB_ID", "CI_JOB_NAME"})
	if err != nil || len(got) != 1 || len(got["BIG_000"]) != most {
		t.Errorf("%d variables, CI_JOB_ID of %d bytes, %v: want BIG_000 alone", len(got), len(got["CI_JOB_ID"]), err)
	}
}

func TestFS_Environ_ofAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		msg := "needs root to run a program as another user"
		if os.Getenv("CI") == "true" {
			t.Fatal(msg)
		}
		t.Skip(msg)
	}
	const secret = "glrt-s3cr3t-of-the-runner"
	c := run(t, "CI=yes", "CI_JOB_TOKEN="+secret)
	cmd := exec.Command("/proc/self/exe", fmt.Sprint(c.pid()))
	cmd.Env = []string{roleEnv + "=" + roleRead}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := fmt.Sprintf("map[]|read environ of process %d: unauthorized (permission denied)", c.pid())
	if string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestFS_IO(t *testing.T) {
	fs := process.Open("")
	c := run(t)
	before, err := fs.IO(c.pid())
	if err != nil {
		t.Fatal(err)
	}
	do(t, c, fmt.Sprintf("write %s 100 4096", filepath.Join(t.TempDir(), "f")))
	after, err := fs.IO(c.pid())
	if err != nil {
		t.Fatal(err)
	}
	// Answers and the Go runtime's own wake-ups write too.
	if n := after.WriteCalls - before.WriteCalls; n < 100 || n > 150 {
		t.Errorf("write calls: got %d, want 100 and a few", n)
	}
	if n := after.WriteBytes - before.WriteBytes; n != 0 && n < 100*4096 { // 0 on a tmpfs
		t.Errorf("written: got %d bytes, want at least %d", n, 100*4096)
	}
}

func TestSelf(t *testing.T) {
	self, err := process.Open("").Self()
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	if resident, err := self.Resident(); err != nil || resident < 1<<20 || resident > 1<<30 {
		t.Errorf("resident: got %d bytes, %v, want some MiB", resident, err)
	}
	before, err := self.CPU()
	if err != nil {
		t.Fatal(err)
	}
	burn(30e6)
	if after, err := self.CPU(); err != nil || after-before < 30e6 {
		t.Errorf("CPU time: got %v, %v, want at least 30ms", after-before, err)
	}
	if n := testing.AllocsPerRun(20, func() { self.CPU(); self.Resident() }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	self.Close()
	if _, err := self.Resident(); err == nil {
		t.Error("no error after Close")
	}
}

func TestOwnCapabilities(t *testing.T) {
	got, err := process.OwnCapabilities()
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	var want uint64
	for line := range strings.Lines(string(status)) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			fmt.Sscanf(hex, "%x", &want)
		}
	}
	if uint64(got) != want {
		t.Errorf("got %x, want %x", uint64(got), want)
	}
}

func TestCapabilities_Names(t *testing.T) {
	c := process.SysPtrace | process.DACReadSearch | 1<<40 | 1<<63
	if got, want := c.Names(), []string{"DAC_READ_SEARCH", "SYS_PTRACE", "CHECKPOINT_RESTORE", "CAP63"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !c.Has(process.SysPtrace) || c.Has(process.SysPtrace|process.SysAdmin) {
		t.Error("wrong members")
	}
}
