package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/terminal"
)

// onTerminal is a command on a pseudo-terminal (pts(4)).
type onTerminal struct {
	t       *testing.T
	control *os.File
	tty     *os.File // kept open, so that its state can be looked at
	cmd     *exec.Cmd
	before  *unix.Termios

	mu    sync.Mutex
	shown string
}

// terminalOf makes a pseudo-terminal of 80 by 24.
func terminalOf(t *testing.T) *onTerminal {
	t.Helper()
	p := &onTerminal{t: t}
	var err error
	if p.control, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatalf("want pseudo-terminals (mount devpts): %v", err)
	}
	t.Cleanup(func() { p.control.Close() })
	control := int(p.control.Fd())
	if err := unix.IoctlSetPointerInt(control, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(control, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if p.tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.tty.Close() })
	p.resize(80, 24)
	p.before = p.termios()
	return p
}

// start starts a command there, with the environment that is given and a terminal
// that knows all.
func (p *onTerminal) start(env []string, args ...string) *onTerminal {
	p.t.Helper()
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "NO_COLOR=") || strings.HasPrefix(kv, "COLUMNS=") }),
		append([]string{"TERM=xterm", "LC_ALL=C.UTF-8"}, env...)...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.tty, p.tty, p.tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := p.control.Read(b)
			if err != nil {
				return
			}
			p.mu.Lock()
			p.shown += string(b[:n])
			p.mu.Unlock()
		}
	}()
	return p
}

func startTop(t *testing.T, env ...string) *onTerminal {
	t.Helper()
	server := httptest.NewServer(httpapi.New(httpapi.Options{Running: runs}))
	t.Cleanup(server.Close)
	return terminalOf(t).start(env, "cimeter", "top", "--server", server.URL, "--interval", "250ms")
}

func (p *onTerminal) termios() *unix.Termios {
	p.t.Helper()
	s, err := unix.IoctlGetTermios(int(p.tty.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p *onTerminal) resize(columns, rows uint16) {
	p.t.Helper()
	if err := unix.IoctlSetWinsize(int(p.control.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *onTerminal) press(keys string) {
	p.t.Helper()
	if _, err := p.control.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// see waits until what was written from now on, or since the last see, holds
// want, and forgets what came before its end.
func (p *onTerminal) see(want string) (before string) {
	p.t.Helper()
	deadline := time.After(time.Minute)
	for {
		p.mu.Lock()
		before, after, found := strings.Cut(p.shown, want)
		if found {
			p.shown = after
		}
		p.mu.Unlock()
		if found {
			return before
		}
		select {
		case <-deadline:
			p.t.Fatalf("want %q in %q", want, before[max(0, len(before)-4000):])
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// ended waits for the end and holds that the terminal is as it was.
func (p *onTerminal) ended(code int) {
	p.t.Helper()
	p.see(terminal.Restore)
	_ = p.cmd.Wait()
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d: want %d", got, code)
	}
	if after := p.termios(); *after != *p.before {
		p.t.Errorf("the terminal is left as %+v: want %+v", after, p.before)
	}
}

// printed is what a command prints that ends by itself, a line each.
func (p *onTerminal) printed(env []string, args ...string) []string {
	p.t.Helper()
	p.start(env, append([]string{"sh", "-c", `"$@"; echo "it ended with $?"`, "sh"}, args...)...)
	out := p.see("it ended with 0\r\n")
	_ = p.cmd.Wait()
	return strings.Split(strings.TrimSuffix(out, "\r\n"), "\r\n")
}

func TestTop_Terminal(t *testing.T) {
	p := startTop(t)
	if before := p.see(terminal.Begin); before != "" {
		t.Errorf("before the alternate screen: %q", before)
	}
	p.see("1 running, 0.")                  // a rate: at least two readings
	p.see("build\\x1b[2J")                  // the name does not get at the screen
	p.see("\x1b[1m\x1b[31m    !100\x1b[0m") // near the limit
	if s := p.termios(); s.Lflag&(unix.ICANON|unix.ECHO) != 0 {
		t.Errorf("local modes %#x: want neither lines nor echo", s.Lflag)
	}
	p.resize(120, 40)
	p.see("DISK MIB/S"[1:]) // the first letter is underlined
	p.see("\x1b[J")
	if frame := p.see("\x1b[J"); strings.Count(frame, "\r\n") != 39 || strings.Contains(frame, "F\x1b[24m CORES") {
		t.Errorf("want 40 lines, and what 120 columns have room for: %q", frame)
	}
	p.resize(150, 10)
	p.see("F\x1b[24m CORES")
	p.see("\x1b[J")
	frame := p.see("\x1b[J")
	if n := strings.Count(frame, "\r\n"); n != 9 {
		t.Errorf("%d lines: want those of the new size, 10", n+1)
	}
	p.press("\r\r\r") // marks, then detail, then back
	p.see("Esc or Enter goes back")
	p.press("?")
	p.see("any key goes back")
	p.press(" ")
	p.press("/nothing such\r")
	p.see("None of 1 running builds matches")
	p.press("q")
	p.ended(0)
}

func TestTop_Signals(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGHUP: 129, syscall.SIGINT: 130} {
		p := startTop(t, "NO_COLOR=1")
		p.see("1 running")
		frame := p.see("!100")
		if strings.Contains(frame, "\x1b[31m") {
			t.Error("colour though NO_COLOR is set")
		}
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		p.ended(code)
	}
	p := startTop(t)
	p.see("1 running")
	p.press("\x03")
	p.ended(0)
}

// Whoever stopped it used the terminal; it takes it again.
func TestTop_Continued(t *testing.T) {
	p := startTop(t)
	p.see("1 running")
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetTermios(int(p.tty.Fd()), unix.TCSETS, p.before); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.see(terminal.Begin)
	p.see("1 running")
	if s := p.termios(); s.Lflag&unix.ICANON != 0 {
		t.Error("not in raw mode after it went on")
	}
	p.press("q")
	p.ended(0)
}

// A terminal that obeys no escapes gets the table once, and so does one that asks for
// it: no line is wider than that terminal.
func TestTop_Dumb(t *testing.T) {
	fake := httptest.NewServer(httpapi.New(httpapi.Options{Running: runs}))
	defer fake.Close()
	for what, c := range map[string]struct {
		env  string
		args []string
	}{
		"dumb": {"TERM=dumb", nil}, "none": {"TERM=", nil}, "once": {"TERM=xterm", []string{"--once"}}, "colour": {"TERM=dumb", []string{"--color=never"}},
	} {
		lines := terminalOf(t).printed([]string{c.env}, append([]string{"cimeter", "top", "--server", fake.URL, "--interval", "250ms"}, c.args...)...)
		if len(lines) != 2 || !strings.HasSuffix(lines[0], "MEM MIB") {
			t.Errorf("%s: %q", what, lines)
		}
		for _, l := range lines {
			if strings.Contains(l, "\x1b") || display.Width(l) > 80 {
				t.Errorf("%s: %q: want 80 columns without escapes", what, l)
			}
		}
	}
}

// The queue has the keys of top.
func TestQueue_Terminal(t *testing.T) {
	fake := queueServer()
	defer fake.Close()
	p := terminalOf(t).start([]string{"NO_COLOR=1"}, "cimeter", "queue", "--server", fake.URL, "--interval", "250ms")
	p.see(terminal.Begin)
	p.see("gitlab.example.com  away 2 m 00 s, showing the last state; 2 waiting")
	p.see("lint\\x1b[2J") // the name does not get at the screen
	p.resize(120, 40)
	p.see("\x1b[24mGS") // TAGS
	p.see("\x1b[J")
	if frame := p.see("\x1b[J"); strings.Count(frame, "\r\n") != 39 || strings.Contains(frame, "\x1b[31m") {
		t.Errorf("want 40 lines without colour: %q", frame)
	}
	p.press("?")
	p.see("w waits for, or is on")
	p.press("xjj\r") // back, marks the first, the second, its detail
	p.see("gitlab/gitlab.example.com/2")
	p.see("Esc or Enter goes back")
	p.press("\x1b")
	p.see("? keys")
	p.press("/q")
	p.see("None of 3 builds matches")
	p.see("filter: q_")
	p.press("\x1b ")
	p.see("paused ")
	p.press("q")
	p.ended(0)
}

// Lists of what is over are as wide as the terminal too; in 80 columns a build is named
// by what its key ends with, by which it is found.
func TestBuilds_Terminal(t *testing.T) {
	fake := httptest.NewServer(httpapi.New(httpapi.Options{Store: fakeRecords()}))
	defer fake.Close()
	for columns, want := range map[uint16][]string{
		60: {"ENDED            RESULT     TIME S     CPU S PEAK MIB NAME", "2026-05-04 14:02 success     253.5    392.20   3072.0 build"},
		80: {"ENDED            RESULT     TIME S     CPU S PEAK MIB NAME         BUILD", "2026-05-04 14:02 success     253.5    392.20   3072.0 build-and-t~ 4242"},
		120: {"ENDED            RESULT     TIME S     CPU S  CORES PEAK MIB PROJECT              NAME         BUILD",
			"2026-05-04 14:02 success     253.5    392.20   1.55   3072.0 group/app            build-and-t~ gitlab.example.com/4242"},
	} {
		p := terminalOf(t)
		p.resize(columns, 24)
		lines := p.printed([]string{"COLUMNS=200"}, "cimeter", "builds", "--server", fake.URL)
		if len(lines) != 4 {
			t.Errorf("%d columns: %d lines: want 4", columns, len(lines))
		}
		for i, l := range lines {
			if display.Width(l) > int(columns) || strings.Contains(l, "\x1b") {
				t.Errorf("%d columns: %q", columns, l)
			}
			if got := strings.TrimRight(l, " "); i < len(want) && got != want[i] {
				t.Errorf("%d columns: got\n%q: want\n%q", columns, got, want[i])
			}
		}
	}
	latin := terminalOf(t).printed([]string{"LC_ALL=C"}, "cimeter", "compare", "--server", fake.URL, "drone/drone.example.com/group/app/7", "gitlab/gitlab.example.com/4242")
	for _, l := range latin {
		if strings.Contains(l, "\x1b") || display.Width(l) > 80 {
			t.Errorf("a comparison: %q: want 80 columns without escapes", l)
		}
	}
}
