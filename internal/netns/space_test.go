package netns_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/netns"
)

// The tests run in a network namespace of their own, which stands for the
// machine's: nothing of theirs outlives the process, and no interface of the
// machine gets into their way.
const (
	roleEnv  = "NETNS_TEST_ROLE"
	roleHost = "host" // the test process in its own namespace
	roleNone = "none" // no namespace could be made
	roleHold = "hold" // a process in a container's namespace
	roleRead = "read" // a reader without any capability
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case roleHold:
		hold()
		return
	case roleRead:
		readOnce(os.Args[1])
		return
	case "":
		role := roleHost
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			role = roleNone
		}
		err := syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), roleEnv+"="+role))
		fmt.Fprintln(os.Stderr, "exec test in its own namespace:", err)
		os.Exit(1)
	}
	quiet()
	os.Exit(m.Run())
}

// quiet keeps the kernel of this namespace from sending on its own account.
func quiet() {
	for _, c := range []string{"all", "default"} {
		os.WriteFile("/proc/sys/net/ipv6/conf/"+c+"/disable_ipv6", []byte("1"), 0)
	}
}

// need says why a test that makes namespaces cannot run.
func need(t testing.TB) {
	t.Helper()
	var missing []string
	if os.Getenv(roleEnv) == roleNone {
		missing = append(missing, "CAP_SYS_ADMIN (run as root)")
	}
	for _, tool := range []struct{ name, of string }{{name: "ip", of: "iproute2"}, {name: "nsenter", of: "util-linux"}} {
		if _, err := exec.LookPath(tool.name); err != nil {
			missing = append(missing, fmt.Sprintf("%s (install %s)", tool.name, tool.of))
		}
	}
	if missing != nil {
		msg := "to make network namespaces it needs " + strings.Join(missing, ", ")
		if os.Getenv("CI") == "true" {
			t.Fatal(msg)
		}
		t.Skip(msg)
	}
}

// hold answers "udp ADDRESS COUNT SIZE" lines until its input ends.
func hold() {
	quiet()
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var address string
		var count, size int
		if _, err := fmt.Sscanf(in.Text(), "udp %s %d %d", &address, &count, &size); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(send(address, count, size))
	}
}

func send(address string, count, size int) error {
	c, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	for range count {
		if _, err := c.Write(make([]byte, size)); err != nil {
			return err
		}
	}
	return nil
}

// frames is what count datagrams of size bytes are on the link: Ethernet, IPv4
// and UDP headers.
func frames(count, size int) uint64 { return uint64(count * (14 + 20 + 8 + size)) }

// space is a process that stands for a container.
type space struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	done bool
}

// container starts a process in a new network namespace.
func container(t testing.TB) *space {
	t.Helper()
	need(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	return start(t, cmd)
}

// join starts another process in the namespace of s.
func (s *space) join() *space {
	s.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	return start(s.t, exec.Command("nsenter", "-t", strconv.Itoa(s.pid()), "-n", exe))
}

func start(t testing.TB, cmd *exec.Cmd) *space {
	t.Helper()
	s := &space{t: t, cmd: cmd}
	cmd.Env = append(os.Environ(), roleEnv+"="+roleHold)
	cmd.Stderr = os.Stderr
	var err error
	if s.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	if !s.out.Scan() || s.out.Text() != "ready" {
		t.Fatalf("process did not start: %q, %v", s.out.Text(), s.out.Err())
	}
	return s
}

func (s *space) pid() int { return s.cmd.Process.Pid }

func (s *space) stop() {
	if s.done {
		return
	}
	s.done = true
	s.in.Close()
	s.cmd.Wait()
}

// send makes the container send datagrams.
func (s *space) send(address string, count, size int) {
	s.t.Helper()
	fmt.Fprintf(s.in, "udp %s %d %d\n", address, count, size)
	if !s.out.Scan() || s.out.Text() != "<nil>" {
		s.t.Fatalf("send to %s: %q, %v", address, s.out.Text(), s.out.Err())
	}
}

// pin keeps the namespace alive when its processes are gone, as the runtime's
// bind mount does.
func (s *space) pin() {
	s.t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", s.pid()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { f.Close() })
}

// ip runs ip in the container's namespace.
func (s *space) ip(args ...string) {
	s.t.Helper()
	run(s.t, "nsenter", append([]string{"-t", strconv.Itoa(s.pid()), "-n", "ip"}, args...)...)
}

// veth gives the container an uplink to the machine's namespace: network
// 10.<n>.0.0/24, machine 1, container 2. Nobody is 9, to whom both can send
// without an answer.
func (s *space) veth(n int, host, inner string) {
	s.t.Helper()
	ip(s.t, "link", "add", host, "type", "veth", "peer", "name", inner, "netns", strconv.Itoa(s.pid()))
	s.t.Cleanup(func() { exec.Command("ip", "link", "del", host).Run() })
	net := fmt.Sprintf("10.%d.0.", n)
	ip(s.t, "link", "set", host, "up")
	ip(s.t, "addr", "add", net+"1/24", "dev", host)
	ip(s.t, "neigh", "add", net+"9", "lladdr", "02:00:00:00:00:09", "dev", host, "nud", "permanent")
	s.ip("link", "set", inner, "up")
	s.ip("addr", "add", net+"2/24", "dev", inner)
	s.ip("neigh", "add", net+"9", "lladdr", "02:00:00:00:00:09", "dev", inner, "nud", "permanent")
}

func ip(t testing.TB, args ...string) {
	t.Helper()
	run(t, "ip", args...)
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

func reader(t testing.TB) *netns.Reader {
	t.Helper()
	r, err := netns.Open(netns.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func attach(t testing.TB, r *netns.Reader, s *space) *netns.Handle {
	t.Helper()
	h, err := r.Attach(s.pid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	if err := r.Refresh(); err != nil { // finds where it is counted
		t.Fatal(err)
	}
	return h
}

// traffic is what a handle says.
type traffic struct{ receive, transmit uint64 }

func (a traffic) less(b traffic) traffic {
	return traffic{receive: a.receive - b.receive, transmit: a.transmit - b.transmit}
}

func of(t testing.TB, s *cimeter.Sample) traffic {
	t.Helper()
	receive, ok := s.Counter(cimeter.NetworkReceiveBytes)
	transmit, ok2 := s.Counter(cimeter.NetworkTransmitBytes)
	if !ok || !ok2 {
		t.Fatal("sample has no network counters")
	}
	return traffic{receive: receive, transmit: transmit}
}

// now refreshes and reads.
func now(t testing.TB, r *netns.Reader, h *netns.Handle) traffic {
	t.Helper()
	if err := r.Refresh(); err != nil {
		t.Fatal(err)
	}
	var s cimeter.Sample
	if err := h.Read(&s); err != nil {
		t.Fatal(err)
	}
	return of(t, &s)
}

func want(t testing.TB, what string, got, want traffic) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// readOnce is the reader without capabilities: it attaches to a process and
// prints how and what it reads.
func readOnce(pid string) {
	n, _ := strconv.Atoi(pid)
	r, err := netns.Open(netns.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	h, err := r.Attach(n)
	if err != nil {
		fmt.Println(err)
		return
	}
	var s cimeter.Sample
	if err := errors.Join(r.Refresh(), h.Read(&s)); err != nil {
		fmt.Println(err)
		return
	}
	receive, _ := s.Counter(cimeter.NetworkReceiveBytes)
	transmit, _ := s.Counter(cimeter.NetworkTransmitBytes)
	_, err = os.Stat("/proc/" + pid + "/ns/net")
	fmt.Println(h.Source(), receive, transmit, "namespace readable:", err == nil)
}
