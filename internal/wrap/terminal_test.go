package wrap_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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
