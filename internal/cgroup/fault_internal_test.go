package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter"
)

// tree makes a v2 host with one group, /job, of the files given.
func tree(t *testing.T, files map[string]string) (*Host, *Group, string) {
	t.Helper()
	root := t.TempDir()
	dir := root + "/job"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files["../cgroup.controllers"] = "cpu io memory pids\n"
	for name, content := range files {
		put(t, dir, name, content)
	}
	h, err := Open(Options{Root: root, Proc: root, Sys: root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	g, err := h.Group("/job")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return h, g, dir
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Garbage in one file: its reading is kept, the others go on, and the error
// counts once for as long as it lasts.
func TestGroup_Read_Garbage(t *testing.T) {
	good := map[string]string{
		"cpu.stat": "usage_usec 1\n", "memory.current": "100\n", "memory.peak": "200\n", "io.stat": "8:0 wbytes=5 wios=1\n",
		"memory.stat": "anon 1\ninactive_file 30\n", "memory.events": "oom_kill 0\n", "memory.events.local": "oom_kill 0\n",
		"pids.current": "3\n", "cpu.pressure": "some total=1\n", "memory.swap.current": "0\n",
	}
	for name := range good {
		if name == "memory.events.local" {
			continue // not read without a kill
		}
		for _, garbage := range []string{"\x00\xff garbage", "", "x", strings.Repeat("9", 30), "8:0 rbytes=\n"} {
			if name == "io.stat" && garbage == "" {
				continue // no device yet
			}
			t.Run(name, func(t *testing.T) {
				files := map[string]string{}
				for k, v := range good {
					files[k] = v
				}
				h, g, dir := tree(t, files)
				var s cimeter.Sample
				if err := g.Read(&s, Full); err != nil || h.Errors() != 0 {
					t.Fatal(err, h.LastError())
				}
				want := s
				put(t, dir, name, garbage)
				for range 3 {
					if err := g.Read(&s, Full); err != nil {
						t.Error(err)
					}
				}
				if s != want {
					t.Errorf("%q: the sample changed", garbage)
				}
				if h.Errors() != 1 || !strings.Contains(fmt.Sprint(h.LastError()), "read "+name+" of cgroup /job") {
					t.Errorf("%q: %d errors, %v, want 1 that names the file", garbage, h.Errors(), h.LastError())
				}
				put(t, dir, name, good[name])
				_ = g.Read(&s, Full)
				put(t, dir, name, garbage)
				_ = g.Read(&s, Full)
				if h.Errors() != 2 {
					t.Errorf("%q: %d errors after good and bad again, want 2", garbage, h.Errors())
				}
			})
		}
	}
}

func TestGroup_Read_WorkingSet(t *testing.T) {
	_, g, dir := tree(t, map[string]string{"memory.current": "100\n", "memory.stat": "inactive_file 30\n"})
	var s cimeter.Sample
	read := func(tier Tier) (uint64, bool) {
		t.Helper()
		if err := g.Read(&s, tier); err != nil {
			t.Fatal(err)
		}
		return s.Gauge(cimeter.MemoryWorkingSet)
	}
	if v, ok := read(Fast); ok {
		t.Errorf("before memory.stat was read: %d, want absent", v)
	}
	if v, _ := read(Full); v != 70 {
		t.Errorf("%d, want 70", v)
	}
	put(t, dir, "memory.current", "500\n")
	put(t, dir, "memory.stat", "inactive_file 400\n")
	if v, _ := read(Fast); v != 470 {
		t.Errorf("%d, want 470 by the last inactive_file", v)
	}
	put(t, dir, "memory.current", "200\n")
	if v, ok := read(Full); v != 0 || !ok {
		t.Errorf("%d, %v, want 0: never below", v, ok)
	}
}

func TestGroup_Read_OOM(t *testing.T) {
	_, g, dir := tree(t, map[string]string{"memory.events": "oom_kill 5\n", "memory.events.local": "oom_kill 2\n"})
	var s cimeter.Sample
	_ = g.Read(&s, Full)
	own, _ := s.Counter(cimeter.OOMKills)
	if nested, ok := s.Counter(cimeter.OOMKillsNested); own != 2 || nested != 3 || !ok {
		t.Errorf("own %d, nested %d", own, nested)
	}
	// Before Linux 5.2.
	_, g, _ = tree(t, map[string]string{"memory.events": "oom_kill 5\n"})
	s.Reset()
	_ = g.Read(&s, Full)
	own, _ = s.Counter(cimeter.OOMKills)
	if nested, ok := s.Counter(cimeter.OOMKillsNested); own != 5 || ok {
		t.Errorf("without memory.events.local: own %d, nested %d, %v", own, nested, ok)
	}
	_ = dir
}

// Pressure files that open and cannot be read: prometheus/node_exporter#1961.
func TestGroup_Read_PressureOff(t *testing.T) {
	h, g, _ := tree(t, map[string]string{"cpu.stat": "usage_usec 1\n", "cpu.pressure": "some total=1\n", "pids.current": "3\n"})
	tries := 0
	fd := int(g.fds[g.index(kindCPUPressure)])
	h.read = func(n int, b []byte, yields bool) (int, syscall.Errno) {
		if n == fd {
			tries++
			return 0, syscall.EOPNOTSUPP
		}
		return pread(n, b, yields)
	}
	var s cimeter.Sample
	files := g.Files()
	for range 3 {
		if err := g.Read(&s, Full); err != nil {
			t.Fatal(err)
		}
	}
	if tries != 1 || h.Errors() != 0 || g.Files() != files-1 {
		t.Errorf("%d tries, %d errors, %d files of %d", tries, h.Errors(), g.Files(), files)
	}
	if _, ok := s.Counter(cimeter.CPUSomePressure); ok {
		t.Error("pressure is there")
	}
	if v, _ := s.Gauge(cimeter.Processes); v != 3 {
		t.Errorf("%d processes, want 3", v)
	}
	h.read = pread
	other, err := h.Group("/job")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if other.Files() != files-1 {
		t.Errorf("another group opened %d files, want %d", other.Files(), files-1)
	}
}

func (g *Group) index(k kind) int {
	for i := range g.h.files {
		if g.h.files[i].kind == k {
			return i
		}
	}
	return -1
}

// ENODEV of one file while the cgroup lives: its controller was switched off.
func TestGroup_Read_ControllerOff(t *testing.T) {
	h, g, dir := tree(t, map[string]string{"cpu.stat": "usage_usec 1\n", "io.stat": "8:0 wbytes=5 wios=1\n"})
	fd := int(g.fds[g.index(kindIOStat)])
	h.read = func(n int, b []byte, yields bool) (int, syscall.Errno) {
		if n == fd {
			return 0, syscall.ENODEV
		}
		return pread(n, b, yields)
	}
	var s cimeter.Sample
	if err := g.Read(&s, Fast); err != nil {
		t.Errorf("Read: %v", err)
	}
	if _, ok := s.Counter(cimeter.IOWriteBytes); ok || h.Errors() != 0 {
		t.Errorf("IO is there, or %d errors", h.Errors())
	}
	h.read = pread
	g.Retry()
	_ = g.Read(&s, Fast)
	if v, _ := s.Counter(cimeter.IOWriteBytes); v != 5 {
		t.Errorf("%d bytes once it is on again, want 5", v)
	}

	// All of it gone: what can be read is, the rest stays.
	put(t, dir, "cpu.stat", "usage_usec 2\n")
	fd = int(g.fds[g.index(kindIOStat)])
	h.read = func(n int, b []byte, yields bool) (int, syscall.Errno) {
		if n == fd {
			return 0, syscall.ENODEV
		}
		return pread(n, b, yields)
	}
	if err := os.Rename(dir, dir+"-removed"); err != nil {
		t.Fatal(err)
	}
	if err := g.Read(&s, Fast); !errors.Is(err, cimeter.ErrGone) {
		t.Errorf("Read of a removed cgroup: %v", err)
	}
	cpu, _ := s.Counter(cimeter.CPUTotal)
	if io, _ := s.Counter(cimeter.IOWriteBytes); cpu != 2000 || io != 5 {
		t.Errorf("CPU %d, IO %d, want the last values 2000 and 5", cpu, io)
	}
}

func TestGroup_Read_Errno(t *testing.T) {
	h, g, _ := tree(t, map[string]string{"cpu.stat": "usage_usec 1\n", "memory.current": "7\n"})
	fd := int(g.fds[g.index(kindCPUStat)])
	interrupted := false
	h.read = func(n int, b []byte, yields bool) (int, syscall.Errno) {
		if n == fd {
			return 0, syscall.EIO
		}
		if interrupted = !interrupted; interrupted {
			return 0, syscall.EINTR
		}
		return pread(n, b, yields)
	}
	var s cimeter.Sample
	for range 2 {
		if err := g.Read(&s, Fast); err != nil {
			t.Error(err)
		}
	}
	if v, _ := s.Gauge(cimeter.MemoryCurrent); v != 7 || h.Errors() != 1 || !errors.Is(h.LastError(), syscall.EIO) {
		t.Errorf("memory %d, %d errors, %v", v, h.Errors(), h.LastError())
	}
}

// A file larger than the buffer is read whole, one without end is refused.
func TestGroup_Read_Large(t *testing.T) {
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, "8:%d rbytes=0 wbytes=1 rios=0 wios=1 dbytes=0 dios=0\n", i)
	}
	h, g, dir := tree(t, map[string]string{"io.stat": b.String()})
	var s cimeter.Sample
	if err := g.Read(&s, Fast); err != nil {
		t.Fatal(err)
	}
	if v, _ := s.Counter(cimeter.IOWriteBytes); v != 2000 {
		t.Errorf("%d bytes, want 2000", v)
	}
	put(t, dir, "io.stat", strings.Repeat("x", maxBuffer+1))
	_ = g.Read(&s, Fast)
	if h.Errors() != 1 || !errors.Is(h.LastError(), syscall.EFBIG) || len(h.buf) > maxBuffer {
		t.Errorf("%d errors, %v, buffer of %d", h.Errors(), h.LastError(), len(h.buf))
	}
}

// Processes come in pieces that end anywhere.
func TestGroup_Procs_Many(t *testing.T) {
	var b strings.Builder
	const n = 30_000
	for i := range n {
		fmt.Fprintf(&b, "%d\n", i+1)
	}
	_, g, dir := tree(t, map[string]string{"cgroup.procs": b.String()})
	pids, err := g.Procs(nil)
	if err != nil || len(pids) != n {
		t.Fatalf("%d processes, %v, want %d", len(pids), err, n)
	}
	for i, p := range pids {
		if p != i+1 {
			t.Fatalf("process %d is %d", i, p)
		}
	}
	put(t, dir, "cgroup.procs", strings.Repeat("1", 1<<20))
	if _, err := g.Procs(nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a line without end: %v", err)
	}
}

// The processes of a threaded cgroup of v2 cannot be listed (EOPNOTSUPP): they
// belong to the root of its tree. A removed one is gone; others are errors.
func TestGroup_Procs_Errno(t *testing.T) {
	g := &Group{path: "/job"}
	if err := g.procsError(syscall.EOPNOTSUPP); err != nil {
		t.Errorf("threaded: %v", err)
	}
	for _, errno := range []syscall.Errno{syscall.ENODEV, syscall.ENOENT} {
		if err := g.procsError(errno); !errors.Is(err, cimeter.ErrGone) {
			t.Errorf("%v: %v, want ErrGone", errno, err)
		}
	}
	if err := g.procsError(syscall.EIO); !errors.Is(err, syscall.EIO) || errors.Is(err, cimeter.ErrGone) {
		t.Errorf("EIO: %v", err)
	}
}
