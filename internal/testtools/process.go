package testtools

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a program that runs until its test ends, or Kill.
type Process struct {
	cmd  *exec.Cmd
	out  output
	done chan struct{} // closed when it has ended
	dir  string
}

// output keeps the end of what a program says.
type output struct {
	mu sync.Mutex
	b  []byte
}

const maxOutput = 256 << 10

// Write implements [io.Writer].
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b = append(o.b, p...)
	if over := len(o.b) - maxOutput; over > 0 {
		o.b = o.b[over:]
	}
	return len(p), nil
}

// Start runs a tool in a folder of its own. It is killed when the test ends;
// what it said is shown when the test has failed.
func Start(t testing.TB, tool Tool, args ...string) *Process {
	t.Helper()
	return Run(t, Path(t, tool), args...)
}

// Run is Start for a program that is on the machine already.
func Run(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	p := &Process{cmd: exec.Command(program, args...), done: make(chan struct{}), dir: t.TempDir()}
	p.cmd.Dir = p.dir
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := StartTied(p.cmd); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	go func() { p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", program, p.Output())
		}
	})
	return p
}

// StartTied starts a command that is killed when this process ends, however that
// is. The kernel does so when the thread ends that started the command (prctl(2),
// PR_SET_PDEATHSIG), and Go ends threads: so one is kept for it until it has ended.
func StartTied(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err != nil {
			started <- err
			return
		}
		pid := cmd.Process.Pid
		started <- nil
		// Whoever waits for the command takes its status; here it is only looked at.
		for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
	}()
	return <-started
}

// Kill ends the program at once, as kill -9 does, and waits until it is gone.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// PID is the program's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Output is what the program has said so far, on both outputs.
func (p *Process) Output() string {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return string(bytes.Clone(p.out.b))
}

// Ports returns the ports that the program listens at, in the order of its
// descriptors, and waits until there are that many. network is tcp or udp: so a
// program may be told port 0, and no test has a fixed one.
func (p *Process) Ports(t testing.TB, network string, n int) []int {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		ports := ports(p.PID(), network)
		if len(ports) >= n {
			return ports
		}
		select {
		case <-p.done:
			t.Fatalf("%s ended before it listened:\n%s", p.cmd.Path, p.Output())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatalf("%s listens at %d %s ports: want %d:\n%s", p.cmd.Path, len(ports), network, n, p.Output())
		}
	}
}

func ports(pid int, network string) []int {
	listening := map[string]int{} // by inode
	for _, file := range []string{network, network + "6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, file))
		if err != nil {
			continue
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			// sl local_address rem_address st ... inode; 0A is LISTEN, 07 an unconnected UDP socket
			c := strings.Fields(s.Text())
			if len(c) < 10 || c[3] != map[string]string{"tcp": "0A", "udp": "07"}[network] {
				continue
			}
			port, err := strconv.ParseUint(c[1][strings.LastIndexByte(c[1], ':')+1:], 16, 16)
			if err == nil {
				listening["socket:["+c[9]+"]"] = int(port)
			}
		}
		f.Close()
	}
	var ports []int
	for fd := range 256 {
		link, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "fd", strconv.Itoa(fd)))
		if err != nil {
			continue
		}
		if port, ok := listening[link]; ok {
			ports = append(ports, port)
		}
	}
	return ports
}
