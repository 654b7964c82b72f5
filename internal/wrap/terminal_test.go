package wrap_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// openTerminal returns both ends of a pseudo-terminal (pts(4)).
func openTerminal(t *testing.T) (control, terminal *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		need(t, false, "pseudo-terminals: "+err.Error())
	}
	t.Cleanup(func() { control.Close() })
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return control, terminal
}

func TestRun_Terminal(t *testing.T) {
	control, terminal := openTerminal(t)
	exe := self(t)
	cmd, file := prepare(t, "sh", "-c", "unset "+asProgram+"; exec "+exe+" helper-terminal")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	terminal.Close()
	out := bufio.NewScanner(control)
	next := func() string {
		out.Scan()
		return strings.TrimSpace(out.Text())
	}
	if got := next(); got != "terminal true" {
		t.Fatalf("the command says %q of its input, want a terminal", got)
	}
	if _, err := control.Write([]byte{3}); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	if got := strings.TrimPrefix(next(), "^C"); got != "interrupt" {
		t.Errorf("after Ctrl-C the command got %q, want interrupt", got)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if r := readReport(t, file).Record; r.Result != "success" {
		t.Errorf("result %s, want the run to outlive Ctrl-C", r.Result)
	}
}

// TestRun_JobControl has a shell with job control stop the command by Ctrl-Z
// and bring it back: it must see the job stop, and the command must go on.
func TestRun_JobControl(t *testing.T) {
	control, terminal := openTerminal(t)
	cmd, file := prepare(t, "sh", "-c", "echo ready; read line; exit $line")
	sh := exec.Command("sh", "-c", `set -m; "$@"; echo "stopped $(($? - 128))"; fg >/dev/null; echo "ended $?"`, "sh")
	sh.Args = append(sh.Args, cmd.Path)
	sh.Args = append(sh.Args, cmd.Args[1:]...)
	sh.Env = cmd.Env
	sh.Stdin, sh.Stdout, sh.Stderr = terminal, terminal, terminal
	sh.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	terminal.Close()
	out := bufio.NewScanner(control)
	until := func(want string) {
		t.Helper()
		var seen []string
		for out.Scan() {
			if strings.Contains(out.Text(), want) {
				return
			}
			seen = append(seen, out.Text())
		}
		t.Fatalf("the terminal shows %q, want %q", seen, want)
	}
	until("ready")
	if _, err := control.Write([]byte{26}); err != nil { // Ctrl-Z
		t.Fatal(err)
	}
	until(fmt.Sprintf("stopped %d", syscall.SIGTSTP))
	if _, err := control.WriteString("6\n"); err != nil {
		t.Fatal(err)
	}
	until("ended 6")
	if err := sh.Wait(); err != nil {
		t.Error(err)
	}
	if r := readReport(t, file).Record; r.Stages[0].ExitCode != cimeter.Some(6) || !r.Complete {
		t.Errorf("exit code %v, complete %v", r.Stages[0].ExitCode, r.Complete)
	}
}
