package wrap_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// inGroup starts the program under test as a script does: in the process group
// of a shell, which outlives SIGTERM.
func inGroup(t *testing.T, script string) (sh *exec.Cmd, out *bufio.Reader, stderr io.Reader, file string) {
	t.Helper()
	cmd, file := prepare(t, "sh", "-c", script)
	sh = exec.Command("sh", "-c", `trap : TERM; "$@"; exit $?`, "sh")
	sh.Args = append(sh.Args, cmd.Path)
	sh.Args = append(sh.Args, cmd.Args[1:]...)
	sh.Env, sh.SysProcAttr = cmd.Env, cmd.SysProcAttr
	in, err := sh.StdinPipe() // never written
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	stdout, err := sh.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if stderr, err = sh.StderrPipe(); err != nil {
		t.Fatal(err)
	}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	return sh, bufio.NewReader(stdout), stderr, file
}

// aside waits until the process pid is in a process group of its own.
func aside(t *testing.T, line string) (pid int) {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000_000 {
		group, err := syscall.Getpgid(pid)
		if err != nil {
			t.Fatal(err)
		}
		if group == pid {
			return pid
		}
	}
	t.Fatalf("process %d stays in the group of its command", pid)
	return 0
}

func TestRun_GroupSignalsReachTheCommandOnce(t *testing.T) {
	sh, out, _, file := inGroup(t, "n=0; trap 'n=$((n+1)); echo term' TERM; trap 'echo usr1' USR1; trap 'exit $n' USR2; echo $PPID; while :; do sleep 0.01; done")
	line, _ := out.ReadString('\n')
	run := aside(t, line)
	if err := syscall.Kill(-sh.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if line, err := out.ReadString('\n'); line != "term\n" {
		t.Fatalf("read %q, %v", line, err)
	}
	// Signals are passed on in their order: one too many comes before this one.
	if err := syscall.Kill(run, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	for line = ""; line != "usr1\n"; {
		var err error
		if line, err = out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(run, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	_ = sh.Wait()
	if c := sh.ProcessState.ExitCode(); c != 1 {
		t.Errorf("%v, want exit 1: SIGTERM once", sh.ProcessState)
	}
	if r := readReport(t, file).Record; r.Result != "failed" || !r.Complete {
		t.Errorf("result %s, complete %v", r.Result, r.Complete)
	}
}

func TestRun_OutlivesItsKilledGroup(t *testing.T) {
	sh, out, stderr, file := inGroup(t, "echo $PPID; read line")
	line, _ := out.ReadString('\n')
	aside(t, line)
	if err := syscall.Kill(-sh.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(stderr); err != nil { // ends with the program under test
		t.Error(err)
	}
	_ = sh.Wait()
	if rep := readReport(t, file); !rep.Status.Signaled() || rep.Status.Signal() != syscall.SIGKILL || rep.Record.StartedAt.IsZero() {
		t.Errorf("status %#x of %+v, want SIGKILL's", uint32(rep.Status), rep.Record.Build)
	}
}

// TestRun_KilledWithChildren holds that block IO is not made up from what wait4
// tells of a command that was killed before it waited for its own.
func TestRun_KilledWithChildren(t *testing.T) {
	f := filepath.Join(t.TempDir(), "f")
	cmd, file := prepare(t, "sh", "-c", "(dd if=/dev/zero of="+f+" bs=1000000 count=3 conv=fsync; echo done >&3; exec sleep 300) >/dev/null 2>&1 & read line <&3; echo $!; kill -KILL $$")
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	cmd.ExtraFiles = []*os.File{pipe}
	out, err := cmd.Output()
	if err == nil {
		t.Fatal("want that it was killed")
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(out))); err == nil {
		defer syscall.Kill(pid, syscall.SIGKILL)
	}
	rep := readReport(t, file)
	if b := rep.Record.Usage.IOBytes; rep.Left != 1 || b != nil && b.Write < 3_000_000 {
		t.Errorf("left %d, block IO %+v: want one, and all or nothing known", rep.Left, b)
	}
}
