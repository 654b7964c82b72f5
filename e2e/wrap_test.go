package e2e_test

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inject makes one system call of the running agent fail, as strace's inject=
// describes it, until the returned function is called.
func (a *agent) inject(call, fault string) (end func()) {
	a.t.Helper()
	path, err := exec.LookPath("strace")
	if err != nil {
		unable(a.t, "strace is not installed (make test installs it)")
	}
	cmd := exec.Command(path, "-f", "-o", "/dev/null", "-e", "trace="+call, "-e", "inject="+call+":"+fault, "-p", itoa(a.cmd.Process.Pid))
	out, err := cmd.StderrPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	var said strings.Builder
	s := bufio.NewScanner(out)
	for s.Scan() && !strings.Contains(s.Text(), " attached") {
		said.WriteString(s.Text() + "\n")
	}
	if !strings.Contains(s.Text(), " attached") {
		_ = cmd.Wait() // what it said is told
		unable(a.t, "strace may not trace the agent: %s", said.String())
	}
	go io.Copy(io.Discard, out)
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Signal(syscall.SIGTERM) // it lets go of the agent
		late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait() // ended by a signal
	}
	a.t.Cleanup(end)
	return end
}

// require skips the test, or fails it in CI, without these programs.
func require(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			unable(t, "%s is not installed (make test installs it)", p)
		}
	}
}
