package process_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/process"
)

// grown is a forest whose runner is this test.
type grown struct {
	*process.Forest
	t       *testing.T
	born    []*process.Family
	ended   []*process.Family
	looks   []int
	orphan  func(pid int) *process.Family
	foreign bool // every process that is looked at from now on is in a container
}

// grow returns a forest that follows what this test starts.
func grow(t *testing.T) *grown {
	t.Helper()
	g := &grown{t: t, orphan: func(int) *process.Family { return nil }}
	own, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	f, err := process.Open("").NewForest(process.ForestOptions{
		Runner: func(comm []byte) process.RunnerKind {
			if string(comm) == strings.TrimSpace(string(own)) {
				return process.Runs
			}
			return process.NoRunner
		},
		Foreign: func([]byte) bool { return g.foreign },
		Born:    func(f *process.Family) { g.born = append(g.born, f) },
		Look:    func(_ *process.Family, pid int) { g.looks = append(g.looks, pid) },
		Orphan:  func(pid int) *process.Family { return g.orphan(pid) },
		Ended:   func(f *process.Family) { g.ended = append(g.ended, f) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	g.Forest = f
	f.Exec(os.Getpid(), process.Monotonic())
	if f.Runners() != 1 {
		t.Fatalf("%d runners, want this test", f.Runners())
	}
	return g
}

// first starts a child and tells the forest of it.
func (g *grown) first() (*child, *process.Family) {
	g.t.Helper()
	c := run(g.t)
	g.Fork(os.Getpid(), c.pid(), process.Monotonic())
	return c, g.born[len(g.born)-1]
}

// grandchild has c start a child, and tells the forest of it.
func (g *grown) grandchild(c *child, depth string) int {
	g.t.Helper()
	parent := c.pid()
	for range strings.Count(depth, "tell ") {
		parent = kid(g.t, parent)
	}
	do(g.t, c, depth+"start")
	pid := kid(g.t, parent)
	g.Fork(parent, pid, process.Monotonic())
	return pid
}

// kid returns the youngest child of a process.
func kid(t *testing.T, parent int) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	youngest, start := 0, uint64(0)
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		if s, err := process.Open("").Stat(pid); err == nil && s.Parent == parent && s.StartTime >= start {
			youngest, start = pid, s.StartTime
		}
	}
	if youngest == 0 {
		t.Fatalf("process %d has no child", parent)
	}
	return youngest
}

func cpuOf(f *process.Family) time.Duration {
	var s cimeter.Sample
	f.Set(&s)
	v, _ := s.Counter(cimeter.CPUTotal)
	return time.Duration(v)
}

// total is what c and all that it waited for used, by the kernel's account at its end.
func total(c *child) time.Duration {
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
}

// near fails unless got is at most less below want and not above it, but for what
// the kernel has rounded.
func near(t *testing.T, what string, got, want, less time.Duration) {
	t.Helper()
	if got < want-less || got > want+time.Millisecond {
		t.Errorf("%s: %v of CPU time, want %v less at most %v", what, got, want, less)
	}
}

// accountSteps is how much less a parent's account may show: it tells user and
// system time of its children in ticks of 10 ms.
const accountSteps = 20 * time.Millisecond

func TestForest_endThatIsRead(t *testing.T) {
	g := grow(t)
	c, f := g.first()
	do(t, c, "burn 50")
	zombie(t, c)
	g.Exit(c.pid(), os.Getpid(), 3<<8, process.Monotonic())
	if len(g.ended) != 1 || g.ended[0] != f || f.Ended == 0 || f.Living() != 0 {
		t.Fatalf("ended: %d, living: %d", len(g.ended), f.Living())
	}
	_ = c.cmd.Wait()
	near(t, "family", cpuOf(f), total(c), time.Millisecond)
	if !f.Coded || f.Code != 3<<8 || f.Root != c.pid() || f.Runner != os.Getpid() {
		t.Errorf("family %+v", f)
	}
	if s := g.Stats(); s.Read != 1 || s.Gone != 0 {
		t.Errorf("%+v", s)
	}
}

func TestForest_endThatTheParentWaitedFor(t *testing.T) {
	g := grow(t)
	c, f := g.first()
	pid := g.grandchild(c, "")
	do(t, c, "tell burn 120", "wait")
	g.Exit(pid, c.pid(), 0, process.Monotonic())
	if s := g.Stats(); s.Gone != 1 {
		t.Errorf("%+v, want the grandchild to be gone", s)
	}
	g.Round(false)
	if got := cpuOf(f); got < 100*time.Millisecond {
		t.Errorf("%v while its child's 120 ms are in its account", got)
	}
	zombie(t, c)
	g.Exit(c.pid(), os.Getpid(), 0, process.Monotonic())
	_ = c.cmd.Wait()
	near(t, "family", cpuOf(f), total(c), accountSteps)
}

func TestForest_neverTwice(t *testing.T) {
	// The account is read before the end is told that it has already.
	g := grow(t)
	c, f := g.first()
	pid := g.grandchild(c, "")
	do(t, c, "tell burn 120")
	g.Round(false) // the grandchild is known with its 120 ms
	do(t, c, "wait")
	ended := process.Monotonic()
	g.Scan(false)  // it is gone
	g.Round(false) // the child's account has it
	g.Exit(pid, c.pid(), 0, ended)
	g.Round(false)
	zombie(t, c)
	g.Exit(c.pid(), os.Getpid(), 0, process.Monotonic())
	_ = c.cmd.Wait()
	near(t, "family", cpuOf(f), total(c), accountSteps)
}

func TestForest_severalGenerations(t *testing.T) {
	g := grow(t)
	c, f := g.first()
	pid := g.grandchild(c, "")
	third := g.grandchild(c, "tell ")
	do(t, c, "burn 20", "tell burn 40", "tell tell burn 80")
	g.Round(false)
	if f.Living() != 3 {
		t.Errorf("%d live, want 3", f.Living())
	}
	do(t, c, "tell wait", "wait")
	g.Exit(third, pid, 0, process.Monotonic())
	g.Exit(pid, c.pid(), 0, process.Monotonic())
	zombie(t, c)
	g.Exit(c.pid(), os.Getpid(), 0, process.Monotonic())
	_ = c.cmd.Wait()
	near(t, "family", cpuOf(f), total(c), accountSteps)
}

func TestForest_scanned(t *testing.T) {
	g := grow(t)
	c := run(t)
	if err := g.Scan(true); err != nil {
		t.Fatal(err)
	}
	var f *process.Family
	for _, b := range g.born {
		if b.Root == c.pid() {
			f = b
		}
	}
	if f == nil {
		t.Fatalf("no family of %d among %d", c.pid(), len(g.born))
	}
	if age := process.Monotonic() - f.Started; age < 0 || age > time.Minute {
		t.Errorf("started %v ago", age)
	}
	// A child that no scan sees is in the account of the one that waited for it.
	do(t, c, "burn 30", "start", "tell burn 90", "wait")
	if err := g.Scan(true); err != nil {
		t.Fatal(err)
	}
	g.Round(false)
	if got := cpuOf(f); got < 100*time.Millisecond {
		t.Errorf("%v, want 120 ms less at most 20", got)
	}
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	if err := g.Scan(true); err != nil {
		t.Fatal(err)
	}
	if f.Ended == 0 {
		t.Fatal("the end was not found")
	}
	near(t, "family", cpuOf(f), total(c), accountSteps+20*time.Millisecond)
}

func TestForest_Walk(t *testing.T) {
	g := grow(t)
	c := run(t)
	do(t, c, "start")
	if !g.Walk(true) {
		t.Fatal("the kernel has no lists of children: it is built without CONFIG_PROC_CHILDREN")
	}
	var f *process.Family
	for _, b := range g.born {
		if b.Root == c.pid() {
			f = b
		}
	}
	if f == nil || f.Living() != 2 {
		t.Fatalf("family %+v, want one of two processes", f)
	}
	do(t, c, "burn 60", "tell burn 60", "wait")
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	g.Walk(true)
	g.Round(true)
	if f.Ended == 0 {
		t.Error("the end was not found")
	}
}

func TestForest_runnerThatStartsRunners(t *testing.T) {
	c := run(t)
	f, err := process.Open("").NewForest(process.ForestOptions{
		Runner: func([]byte) process.RunnerKind { return process.Waits }, Foreign: func([]byte) bool { return false },
		Born: func(f *process.Family) { t.Errorf("family %+v", f) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Exec(c.pid(), process.Monotonic())
	do(t, c, "start")
	pid := kid(t, c.pid())
	if f.Fork(c.pid(), pid, process.Monotonic()); f.Lives(pid) {
		t.Error("its child is followed before its program is known")
	}
	if f.Exec(pid, process.Monotonic()); f.Runners() != 2 {
		t.Errorf("%d runners, want it and its child", f.Runners())
	}
}

func TestForest_daemon(t *testing.T) {
	g := grow(t)
	hold, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer release.Close()
	// The shell ends at once, what it started when the pipe is closed.
	cmd := exec.Command("sh", "-c", "{ read x; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; read x; } <&3 >/dev/null & echo $!; read x")
	cmd.ExtraFiles = []*os.File{hold}
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hold.Close()
	g.Fork(os.Getpid(), cmd.Process.Pid, process.Monotonic())
	var daemon int
	if _, err := fmt.Fscan(out, &daemon); err != nil {
		t.Fatal(err)
	}
	g.Fork(cmd.Process.Pid, daemon, process.Monotonic())
	in.Close()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	g.Exit(cmd.Process.Pid, os.Getpid(), 0, process.Monotonic())
	g.Settled()
	f := g.born[0]
	if f.RootEnded == 0 || f.Ended != 0 || f.Living() != 1 {
		t.Fatalf("the family's first process ended at %v, the last at %v; %d live, want the daemon", f.RootEnded, f.Ended, f.Living())
	}
	before := cpuOf(f)
	if _, err := release.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); cpuOf(f) < before+5*time.Millisecond; {
		if g.Round(false); time.Now().After(deadline) {
			t.Fatal("what the daemon uses does not show")
		}
	}
	release.Close()
	fd, err := process.OpenPidfd(daemon)
	if err == nil {
		ended(t, fd, -1)
		g.Exit(daemon, 0, 0, process.Monotonic())
	} else if err := g.Scan(false); err != nil {
		t.Fatal(err)
	}
	if f.Ended == 0 {
		t.Error("the family outlives the daemon")
	}
}

// A daemon that was let go with its family is asked about no more.
func TestForest_dropDaemon(t *testing.T) {
	g := grow(t)
	cmd := exec.Command("sh", "-c", "sleep 1000 >/dev/null & echo $!; read x")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.Fork(os.Getpid(), cmd.Process.Pid, process.Monotonic())
	var daemon int
	if _, err := fmt.Fscan(out, &daemon); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(daemon, syscall.SIGKILL) })
	g.Fork(cmd.Process.Pid, daemon, process.Monotonic())
	in.Close()
	_ = cmd.Wait()
	g.Exit(cmd.Process.Pid, os.Getpid(), 0, process.Monotonic())
	g.Settled()
	if !g.Lives(daemon) {
		t.Fatal("the daemon is not followed")
	}
	g.Drop(g.born[0])
	asked := false
	g.orphan = func(pid int) *process.Family {
		asked = asked || pid == daemon
		return nil
	}
	for range 100 { // some of them look at all there is
		if err := g.Scan(true); err != nil {
			t.Fatal(err)
		}
	}
	if asked || g.Lives(daemon) {
		t.Errorf("asked whose it is: %v, followed: %v", asked, g.Lives(daemon))
	}
}

func TestForest_inAContainer(t *testing.T) {
	g := grow(t)
	c, f := g.first()
	g.Round(false)
	pid := g.grandchild(c, "")
	g.foreign = true
	g.Round(false) // the new one is looked at for where it is
	g.foreign = false
	before := cpuOf(f)
	do(t, c, "tell burn 200")
	g.Round(false)
	if got := cpuOf(f) - before; got > 50*time.Millisecond {
		t.Errorf("%v of the container's are counted", got)
	}
	// Its parent waits for it, and has it in its own account.
	do(t, c, "wait")
	g.Exit(pid, c.pid(), 0, process.Monotonic())
	g.Round(false)
	if got := cpuOf(f) - before; got > 50*time.Millisecond {
		t.Errorf("%v of the container's are counted by its parent's account", got)
	}
}

func TestForest_runnerInAContainer(t *testing.T) {
	g := grow(t)
	g.foreign = true
	c := run(t)
	g.Exec(c.pid(), process.Monotonic())
	do(t, c, "start")
	g.Fork(c.pid(), kid(t, c.pid()), process.Monotonic())
	if len(g.born) != 0 || g.Runners() != 1 {
		t.Errorf("%d families, %d runners, want none and this test", len(g.born), g.Runners())
	}
}

func TestForest_reusedNumber(t *testing.T) {
	g := grow(t)
	c, f := g.first()
	// An event that was read after a scan had found the process.
	g.Fork(os.Getpid(), c.pid(), process.Monotonic())
	if len(g.born) != 1 || f.Ended != 0 {
		t.Fatal("one birth made two families")
	}
	// The end was lost, and the number is another process's.
	g.Fork(os.Getpid(), c.pid(), process.Monotonic()+time.Hour)
	if len(g.born) != 2 || f.Ended == 0 || g.born[1] == f {
		t.Error("a reused number goes on with the family of the first process")
	}
}

func TestForest_firstProcessThatTheRunnerWasFasterAt(t *testing.T) {
	g := grow(t)
	c, f := g.first()
	f.Proved()
	do(t, c, "burn 120")
	if err := c.end(); err != nil { // this test is the runner, and has waited
		t.Fatal(err)
	}
	g.Exit(c.pid(), os.Getpid(), 0, process.Monotonic())
	if f.Ended != 0 {
		t.Error("its end is told before all events are")
	}
	g.Settled()
	if f.Ended == 0 {
		t.Fatal("its end is not told")
	}
	if got := cpuOf(f); got < total(c)-accountSteps || got > total(c)+accountSteps {
		t.Errorf("%v of CPU time, want %v by the runner's account", got, total(c))
	}
	missed := g.Missed()
	g.Round(false)
	if g.Missed() != missed {
		t.Errorf("%v count as missed", time.Duration(g.Missed()-missed))
	}
}

func TestForest_twoThatTheRunnerWasFasterAt(t *testing.T) {
	g := grow(t)
	c, f := g.first()
	d, h := g.first()
	f.Proved()
	do(t, c, "burn 50")
	do(t, d, "burn 100")
	for _, x := range []*child{c, d} {
		if err := x.end(); err != nil {
			t.Fatal(err)
		}
	}
	g.Exit(c.pid(), os.Getpid(), 0, process.Monotonic())
	g.Exit(d.pid(), os.Getpid(), 0, process.Monotonic())
	g.Settled()
	if cpuOf(f) > 0 || cpuOf(h) > 0 || f.Ended == 0 || h.Ended == 0 {
		t.Errorf("%v and %v, of which nothing tells which is whose", cpuOf(f), cpuOf(h))
	}
	g.Round(false)
	if got := time.Duration(g.Missed()); got < 150*time.Millisecond-accountSteps {
		t.Errorf("%v missed, want 150 ms", got)
	}
}

func TestForest_drop(t *testing.T) {
	g := grow(t)
	c, f := g.first()
	g.Drop(f)
	do(t, c, "start")
	g.Fork(c.pid(), kid(t, c.pid()), process.Monotonic())
	g.Exec(kid(t, c.pid()), process.Monotonic())
	if g.Processes() != 1 || len(g.looks) != 0 {
		t.Errorf("%d processes and %d looks, want the runner alone", g.Processes(), len(g.looks))
	}
}

func TestForest_missed(t *testing.T) {
	g := grow(t)
	_, f := g.first()
	f.Proved()
	g.Round(false)
	before := g.Missed()
	c := run(t) // nobody tells of it
	do(t, c, "burn 100")
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	g.Round(false)
	if got := time.Duration(g.Missed() - before); got < total(c)-accountSteps || got > total(c)+accountSteps {
		t.Errorf("%v missed, want %v", got, total(c))
	}
}

func TestForest_allocations(t *testing.T) {
	g := grow(t)
	for range 5 {
		c, _ := g.first()
		g.grandchild(c, "")
	}
	g.Round(false)
	if err := g.Scan(false); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(20, func() { g.Walk(false) }); n != 0 {
		t.Errorf("a walk makes %v allocations", n)
	}
	n := testing.AllocsPerRun(50, func() { g.Round(false) })
	if n != 0 {
		t.Errorf("a round makes %v allocations", n)
	}
}

func BenchmarkForest_Round(b *testing.B) {
	f, err := process.Open("").NewForest(process.ForestOptions{
		Runner: func([]byte) process.RunnerKind { return process.NoRunner }, Foreign: func([]byte) bool { return false },
		Born: func(*process.Family) {}, Look: func(*process.Family, int) {}, Ended: func(*process.Family) {},
		Orphan: func(int) *process.Family { return nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := f.Scan(false); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Scan(false); err != nil {
			b.Fatal(err)
		}
	}
}
