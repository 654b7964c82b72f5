package process_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter/internal/process"
)

// The test binary plays the processes that the tests look at.
const (
	roleEnv  = "PROCESS_TEST_ROLE"
	roleChld = "child"   // does what its input says
	roleRead = "environ" // another user's program that asks for an environment
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case roleChld:
		play(os.Stdin, os.Stdout)
	case roleRead:
		var pid int
		fmt.Sscan(os.Args[1], &pid)
		vars, err := process.Open("").Environ(pid, []string{"CI"})
		fmt.Printf("%v|%v", vars, err)
	default:
		os.Exit(m.Run())
	}
}

// play does a line of in after the other and answers each: "burn MILLISECONDS",
// "write PATH COUNT SIZE", "start" (a child of its own that plays what follows
// "tell"), "tell LINE", "wait" (ends the child and waits for it).
func play(in io.Reader, out io.Writer) {
	var kid *child
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		var err error
		switch verb {
		case "burn":
			var ms int64
			_, err = fmt.Sscan(rest, &ms)
			burn(time.Duration(ms) * time.Millisecond)
		case "write":
			var path string
			var count, size int
			if _, err = fmt.Sscan(rest, &path, &count, &size); err == nil {
				err = write(path, count, size)
			}
		case "start":
			kid, err = begin()
		case "tell":
			err = kid.tell(rest)
		case "wait":
			err = kid.end()
		}
		fmt.Fprintln(out, err)
	}
}

// burn uses CPU time, by the process's own account.
func burn(d time.Duration) {
	for end := used() + d; used() < end; {
	}
}

func used() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func write(path string, count, size int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for range count {
		if _, err := f.Write(make([]byte, size)); err != nil {
			return err
		}
	}
	return f.Sync()
}

type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func begin(env ...string) (*child, error) {
	cmd := exec.Command("/proc/self/exe", "child", strings.Repeat("x", 3), "")
	cmd.Env = append(append(os.Environ(), roleEnv+"="+roleChld), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return c, c.tell("") // it runs when it answers
}

// tell has c do a line and waits until it is done.
func (c *child) tell(line string) error {
	fmt.Fprintln(c.in, line)
	if !c.out.Scan() {
		return io.ErrUnexpectedEOF
	}
	if got := c.out.Text(); got != "<nil>" {
		return fmt.Errorf("child: %s: %s", line, got)
	}
	return nil
}

func (c *child) end() error {
	c.in.Close()
	return c.cmd.Wait()
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// run starts a child that ends with the test.
func run(t *testing.T, env ...string) *child {
	t.Helper()
	c, err := begin(env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			c.end()
		}
	})
	return c
}

func do(t *testing.T, c *child, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if err := c.tell(l); err != nil {
			t.Fatal(err)
		}
	}
}

// zombie ends c and leaves it to be waited for.
func zombie(t *testing.T, c *child) {
	t.Helper()
	c.in.Close()
	fd, err := process.OpenPidfd(c.pid())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if !ended(t, fd, -1) {
		t.Fatal("pidfd is not readable after the end")
	}
}

func ended(t *testing.T, pidfd, timeout int) bool {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, timeout)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
}
