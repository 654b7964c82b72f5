package bench_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait for something that must come.
const patience = 2 * time.Minute

// process is a program that runs beside the containers.
type process struct {
	b     *testing.B
	cmd   *exec.Cmd
	lines chan string // of its output, as they come
	done  chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// start starts cmd, whose standard error, or output, is followed.
func start(b *testing.B, cmd *exec.Cmd, follow func() (io.ReadCloser, error)) *process {
	b.Helper()
	out, err := follow()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatalf("starting %s: %v", cmd.Path, err)
	}
	// Far more lines than any part of the benchmark leaves unread.
	p := &process{b: b, cmd: cmd, lines: make(chan string, 10_000), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer close(p.lines)
		s := bufio.NewScanner(out)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			p.mu.Lock()
			p.log.WriteString(s.Text() + "\n")
			p.mu.Unlock()
			select {
			case p.lines <- s.Text():
			default: // nobody reads them
			}
		}
		_ = cmd.Wait() // how it ended is its exit code
	}()
	b.Cleanup(func() {
		_ = cmd.Process.Kill() // ended already, or no more needed
		<-p.done
	})
	return p
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// next waits for a line that matches and returns its first group.
func (p *process) next(re *regexp.Regexp) string {
	p.b.Helper()
	timeout := time.After(patience)
	for {
		select {
		case l, ok := <-p.lines:
			if !ok {
				p.b.Fatalf("%s ended:\n%s", p.cmd.Path, p.text())
			}
			if m := re.FindStringSubmatch(l); m != nil {
				return m[len(m)-1]
			}
		case <-timeout:
			p.b.Fatalf("%s does not say %v:\n%s", p.cmd.Path, re, p.text())
		}
	}
}

func (p *process) signal(s syscall.Signal) {
	p.b.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.b.Fatalf("sending %v to %s: %v", s, p.cmd.Path, err)
	}
}

// end ends it by a signal and waits until it is gone.
func (p *process) end(s syscall.Signal) {
	p.b.Helper()
	p.signal(s)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.b.Fatalf("%s does not end after %v", p.cmd.Path, s)
	}
}

// cpu is the CPU time of a process with all its threads, those that ended
// included: user and system time as in /proc/PID/stat, in nanoseconds instead
// of ticks (clock_getcpuclockid(3)).
func cpu(tb testing.TB, pid int) time.Duration {
	tb.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		tb.Fatalf("reading the CPU time of process %d: %v", pid, err)
	}
	return time.Duration(t.Nano())
}

func (p *process) cpu() time.Duration {
	p.b.Helper()
	return cpu(p.b, p.cmd.Process.Pid)
}

// status is a number of /proc/PID/status; sizes are in KiB.
func (p *process) status(key string) int {
	p.b.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.b.Fatal(err)
	}
	for l := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(l, key+":"); ok {
			n, err := strconv.Atoi(strings.Fields(v)[0])
			if err != nil {
				p.b.Fatalf("%s of process %d: %v", key, p.cmd.Process.Pid, err)
			}
			return n
		}
	}
	p.b.Fatalf("process %d has no %s", p.cmd.Process.Pid, key)
	return 0
}

// agent is a process of `cimeter agent` beside a daemon.
type agent struct {
	*process
	address string
	client  *http.Client

	metering, ready time.Duration // CPU time from its start until it said so
}

var (
	listening = regexp.MustCompile(`msg="?listening"?.*\baddress="?([0-9.:\[\]a-f]+)`)
	metering  = regexp.MustCompile(`msg="?metering"?`)
)

// start starts an agent inside the daemon's network namespace and waits until
// it is ready. Its cgroup root is the one above the daemon's parent cgroup: what
// other containers the machine has is not to be measured.
func (s *suite) start(b *testing.B, program string) *agent {
	b.Helper()
	dir := b.TempDir()
	root, config := filepath.Join(dir, "cgroup"), filepath.Join(dir, "cimeter.yml")
	if err := os.WriteFile(config, []byte("agent:\n  grace: 3s\n  cgroup_root: "+root+"\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	script, err := mounts(s.root, root)
	if err != nil {
		b.Fatal(err)
	}
	d := s.d
	// The mounts are in a namespace of the agent's own, which goes with it.
	cmd := d.Command("unshare", "--mount", "sh", "-ec", script+`exec "$@"`, "sh",
		program, "agent", "--listen", "127.0.0.1:0", "--docker", d.Host(), "--data", filepath.Join(dir, "data"), "--config", config)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GOTRACEBACK=all"}
	a := &agent{
		process: start(b, cmd, cmd.StderrPipe),
		client:  &http.Client{Transport: &http.Transport{DialContext: d.Dial}, Timeout: patience},
	}
	a.address = a.next(listening)
	a.next(metering)
	a.metering = a.cpu()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		used := a.cpu() // before it is asked again
		if _, err := a.get("/readyz"); err == nil {
			a.ready = used
			return a
		} else if time.Now().After(deadline) {
			b.Fatalf("the agent is not ready: %v\n%s", err, a.text())
		}
	}
}

func (a *agent) get(path string) ([]byte, error) {
	resp, err := a.client.Get("http://" + a.address + path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, resp.Status, body)
	}
	return body, err
}

// metrics is a scrape.
func (a *agent) metrics() string {
	a.b.Helper()
	body, err := a.get("/metrics")
	if err != nil {
		a.b.Fatal(err)
	}
	return string(body)
}

// value is the sum of a metric's series in a scrape.
func value(tb testing.TB, scrape, name string) float64 {
	tb.Helper()
	sum, found := 0.0, false
	for l := range strings.Lines(scrape) {
		rest, ok := strings.CutPrefix(l, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(l[strings.LastIndexByte(l, ' '):]), 64)
		if err != nil {
			tb.Fatalf("series %q: %v", l, err)
		}
		sum += v
		found = true
	}
	if !found {
		tb.Fatalf("no series of %s", name)
	}
	return sum
}

var goroutine = regexp.MustCompile(`(?m)^goroutine \d+ .*\[`)

// goroutines ends the agent with a dump and counts what was in it.
func (a *agent) goroutines() int {
	a.b.Helper()
	a.end(syscall.SIGQUIT)
	return len(goroutine.FindAllString(a.text(), -1))
}

// startFloor starts the floor over nine files of each container.
func startFloor(b *testing.B, program string, files []string) *process {
	b.Helper()
	cmd := exec.Command(program)
	cmd.Stdin = strings.NewReader(strings.Join(files, "\n") + "\n")
	cmd.Stderr = os.Stderr
	return start(b, cmd, cmd.StdoutPipe)
}

var floorLine = regexp.MustCompile(`^(\d+ \d+) \d+$`)

// floorRounds asks the floor for its rounds and the CPU time of those.
func floorRounds(p *process) (rounds int, used time.Duration) {
	p.b.Helper()
	p.signal(syscall.SIGUSR1)
	if _, err := fmt.Sscan(p.next(floorLine), &rounds, &used); err != nil {
		p.b.Fatal(err)
	}
	return rounds, used
}

// children lists the processes whose parent is pid and whose name is comm.
func children(tb testing.TB, pid int, comm string) []int {
	tb.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		tb.Fatal(err)
	}
	var all []int
	for _, s := range stats {
		b, err := os.ReadFile(s)
		if err != nil {
			continue // ended meanwhile
		}
		// 12 (name) S 1 ... (proc(5))
		head, rest, ok := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if !ok || len(f) < 2 || f[1] != strconv.Itoa(pid) || !strings.HasSuffix(head, "("+comm) {
			continue
		}
		child, err := strconv.Atoi(strings.Fields(head)[0])
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, child)
	}
	slices.Sort(all)
	return all
}
