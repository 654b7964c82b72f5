package cgroup_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
)

const liveRoot = "/sys/fs/cgroup"

// live opens the machine's own cgroups, or tells why a test cannot use them.
func live(t testing.TB) *cgroup.Host {
	t.Helper()
	h, err := cgroup.Open(cgroup.Options{})
	if err == nil {
		err = syscall.Access(h.WatchDir(), 2 /* W_OK */)
	}
	if err != nil {
		cannot(t, "cgroups that may be made (root, "+liveRoot+" writable)", err)
	}
	t.Cleanup(h.Close)
	return h
}

// cannot ends a test that this machine cannot run; in CI that is a failure.
func cannot(t testing.TB, want string, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("want %s: %v", want, err)
	}
	t.Skipf("needs %s: %v", want, err)
}

// folders returns the folders of a cgroup in every mounted hierarchy, the one
// that is watched last, as a runtime makes them.
func folders(h *cgroup.Host, path string) []string {
	if h.Layout() == "v2" {
		return []string{h.WatchDir() + path}
	}
	var dirs []string
	entries, _ := os.ReadDir(liveRoot)
	for _, e := range entries {
		if !e.IsDir() || e.Name() == "systemd" || e.Name() == "cpuset" {
			continue
		}
		if dir := filepath.Join(liveRoot, e.Name()); dir != h.WatchDir() {
			dirs = append(dirs, dir+path)
		}
	}
	return append(dirs, h.WatchDir()+path)
}

// makeGroup makes a cgroup of the test's own and removes it at its end.
func makeGroup(t testing.TB, h *cgroup.Host, name string) (path string, dirs []string) {
	t.Helper()
	path = fmt.Sprintf("/cimeter-test-%d-%s", os.Getpid(), name)
	dirs = folders(h, path)
	t.Cleanup(func() { removeGroup(dirs) })
	for _, d := range dirs {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return path, dirs
}

func removeGroup(dirs []string) {
	for _, d := range dirs {
		for range 1000 { // a dying process holds it for a moment
			if err := syscall.Rmdir(d); !errors.Is(err, syscall.EBUSY) {
				break
			}
			syscall.Select(0, nil, nil, nil, &syscall.Timeval{Usec: 2000})
		}
	}
}

// child is this test binary again, stopped until it is let go by closing its
// standard input. It then does what CIMETER_CHILD says.
func child(t testing.TB, dirs []string, what string) (cmd *exec.Cmd, start func()) {
	t.Helper()
	cmd = exec.Command("/proc/self/exe", "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), "CIMETER_CHILD="+what, "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for _, d := range dirs {
		if err := os.WriteFile(filepath.Join(d, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	return cmd, func() { _ = in.Close() }
}

func cpuTime(ru *syscall.Rusage) time.Duration {
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// processTime is the CPU time that another process has used.
func processTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil { // CPUCLOCK_SCHED of the process
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// TestChild is what the children of the tests here run.
func TestChild(t *testing.T) {
	what := os.Getenv("CIMETER_CHILD")
	if what == "" {
		return // run by hand: nothing to do
	}
	var b [1]byte
	_, _ = os.Stdin.Read(b[:])
	switch what {
	case "burn":
		var ru syscall.Rusage
		for cpuTime(&ru) < 300*time.Millisecond {
			for range 1_000_000 {
				b[0]++
			}
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
		}
		m := make([]byte, 32<<20)
		for i := range m {
			m[i] = 1
		}
	case "starve":
		childStarve(t)
	default:
		if size, ok := strings.CutPrefix(what, "touch "); ok {
			n, err := strconv.Atoi(size)
			if err != nil {
				t.Fatal(err)
			}
			m := make([]byte, n)
			for i := range m {
				m[i] = 1
			}
			runtime.KeepAlive(m)
		}
		if name, ok := strings.CutPrefix(what, "write "); ok {
			childWrite(t, name)
		}
	}
}

// writeBytes is what childWrite writes past the page cache.
const writeBytes = 8 << 20

func childWrite(t *testing.T, name string) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|syscall.O_DIRECT, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := syscall.Mmap(-1, 0, 1<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE) // aligned
	if err != nil {
		t.Fatal(err)
	}
	for range writeBytes / len(b) {
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLive_CPUAndMemory(t *testing.T) {
	h := live(t)
	path, dirs := makeGroup(t, h, "burn")
	g, err := h.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if n, err := g.Populated(); n || err != nil {
		t.Errorf("Populated of an empty cgroup = %v, %v", n, err)
	}
	// The list was read before and is read again at once: v1 would show the old.
	if pids, err := g.Procs(nil); err != nil || len(pids) != 0 {
		t.Errorf("Procs of an empty cgroup = %v, %v", pids, err)
	}
	cmd, start := child(t, dirs, "burn")
	pids, err := g.Procs(nil)
	if err != nil || len(pids) != 1 || pids[0] != cmd.Process.Pid {
		t.Errorf("Procs = %v, %v, want [%d]", pids, err, cmd.Process.Pid)
	}
	if n, err := g.Populated(); !n || err != nil {
		t.Errorf("Populated with a process in it = %v, %v", n, err)
	}
	var before, s cimeter.Sample
	if err := g.Read(&before, cgroup.Full); err != nil {
		t.Fatal(err)
	}
	// rusage also has what the child used before that reading: to begin takes an
	// emulated machine 70 ms.
	unmetered := processTime(t, cmd.Process.Pid)
	ru := &syscall.Rusage{}
	start()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	ru = cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if err := g.Read(&s, cgroup.Full); err != nil {
		t.Fatal(err)
	}
	if n, err := g.Populated(); n || err != nil {
		t.Errorf("Populated after the exit = %v, %v", n, err)
	}
	got, _ := s.Counter(cimeter.CPUTotal)
	was, _ := before.Counter(cimeter.CPUTotal)
	want := cpuTime(ru) - unmetered
	if diff := math.Abs(time.Duration(got-was).Seconds() - want.Seconds()); diff > 0.05*want.Seconds()+0.03 {
		t.Errorf("CPU = %v, rusage has %v", time.Duration(got-was), want)
	}
	if peak, ok := s.Gauge(cimeter.MemoryPeak); !ok || peak < 32<<20 || peak > 256<<20 {
		t.Errorf("memory peak = %d, %v, want 32 MiB and a little", peak, ok)
	}
	for _, c := range []cimeter.Counter{cimeter.CPUUser, cimeter.CPUSystem, cimeter.OOMKills} {
		if _, ok := s.Counter(c); !ok {
			t.Errorf("counter %d is absent", c)
		}
	}
	if h.Pressure() == nil {
		if v, ok := s.Counter(cimeter.CPUSomePressure); !ok {
			t.Errorf("CPU pressure = %d, %v", v, ok)
		}
	}
	if h.Errors() != 0 {
		t.Errorf("Errors = %d: %v", h.Errors(), h.LastError())
	}
	if err := h.WholeTree(); err != nil {
		t.Error(err)
	}

	last := s
	removeGroup(dirs)
	for _, tier := range []cgroup.Tier{cgroup.Fast, cgroup.Full} {
		if err := g.Read(&s, tier); !errors.Is(err, cimeter.ErrGone) {
			t.Errorf("Read of a removed cgroup: %v, want ErrGone", err)
		}
	}
	if s != last {
		t.Error("a read of a removed cgroup changed the sample")
	}
	if _, err := g.Procs(nil); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("Procs of a removed cgroup: %v, want ErrGone", err)
	}
	if _, err := g.Populated(); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("Populated of a removed cgroup: %v, want ErrGone", err)
	}
	if _, err := h.Group(path); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("Group of a removed cgroup: %v, want ErrGone", err)
	}
	if h.Errors() != 0 {
		t.Errorf("the end of a cgroup counted as an error: %v", h.LastError())
	}
}

// Block IO of v1 is told of as it is: absent until the kernel counts, then
// exact.
func TestLive_BlockIO(t *testing.T) {
	h := live(t)
	path, dirs := makeGroup(t, h, "io")
	g, err := h.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := h.BlockIO(); err != nil {
		if !errors.Is(err, cimeter.ErrUnsupported) {
			t.Fatal(err)
		}
		var s cimeter.Sample
		if err := g.Read(&s, cgroup.Full); err != nil {
			t.Fatal(err)
		}
		if v, ok := s.Counter(cimeter.IOWriteBytes); ok {
			t.Errorf("%d bytes written where nothing is counted, want absent", v)
		}
		if err := h.WakeBlockIO(); err != nil {
			t.Fatalf("WakeBlockIO: %v", err)
		}
		if err := h.BlockIO(); err != nil {
			t.Fatalf("BlockIO after WakeBlockIO: %v", err)
		}
	}
	name := filepath.Join(t.TempDir(), "file")
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|syscall.O_DIRECT, 0o600)
	if err != nil {
		cannot(t, "a temporary folder on a disk (TMPDIR)", err)
	}
	_ = file.Close()
	cmd, start := child(t, dirs, "write "+name)
	start()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var s cimeter.Sample
	if err := g.Read(&s, cgroup.Full); err != nil {
		t.Fatal(err)
	}
	if v, ok := s.Counter(cimeter.IOWriteBytes); v < writeBytes || v > writeBytes+1<<20 || !ok {
		t.Errorf("%d bytes written, %v, want %d and a little of the file system's own", v, ok, writeBytes)
	}
	if v, ok := s.Counter(cimeter.IOWriteOperations); v == 0 || !ok {
		t.Errorf("%d writes, %v", v, ok)
	}
}
