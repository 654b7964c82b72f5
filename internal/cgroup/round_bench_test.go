package cgroup_test

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
)

// fullEvery is the agent's mix: one round of ten is a Full one.
const fullEvery = 10

// BenchmarkRound compares one sampling round with the floor: a bare loop that
// preads and parses nine files of each cgroup. Both run in turn, on the same
// cgroups, and are measured in CPU time of the thread. The metric x-floor is
// ours divided by the floor's. Between cold rounds the caches are overwritten,
// as a second of other work does.
func BenchmarkRound(b *testing.B) {
	for _, n := range []int{20, 100, 300} {
		for _, cold := range []bool{false, true} {
			name := fmt.Sprintf("N=%d/hot", n)
			if cold {
				name = fmt.Sprintf("N=%d/cold", n)
			}
			b.Run(name, func(b *testing.B) { benchmarkRound(b, n, cold) })
		}
	}
}

func benchmarkRound(b *testing.B, n int, cold bool) {
	h := live(b)
	var groups []*cgroup.Group
	var floor naive
	defer floor.close()
	for i := range n {
		path, dirs := makeGroup(b, h, fmt.Sprint("bench-", n, "-", i))
		g := group(b, h, path)
		groups = append(groups, g)
		floor.add(b, h, dirs)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	samples := make([]cimeter.Sample, n)
	var evict []byte
	if cold {
		evict = make([]byte, 32<<20)
	}
	cool := func() {
		for i := 0; i < len(evict); i += 64 {
			evict[i]++
		}
	}
	var ours, theirs time.Duration
	rounds := 0
	for b.Loop() {
		for r := range fullEvery {
			tier := cgroup.Fast
			if r == 0 {
				tier = cgroup.Full
			}
			cool()
			start := threadTime()
			for i, g := range groups {
				if err := g.Read(&samples[i], tier); err != nil {
					b.Fatal(err)
				}
			}
			ours += threadTime() - start
			cool()
			start = threadTime()
			floor.round(b)
			theirs += threadTime() - start
			rounds++
		}
	}
	if h.Errors() != 0 || h.Degraded() != 0 {
		b.Fatalf("%d errors (%v), %d degraded", h.Errors(), h.LastError(), h.Degraded())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(ours)/float64(theirs), "x-floor")
	b.ReportMetric(float64(ours)/float64(rounds*n)/1e3, "µs/container")
	b.ReportMetric(float64(theirs)/float64(rounds*n)/1e3, "µs/container-floor")
}

func threadTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(unix.RUSAGE_THREAD, &ru); err != nil {
		panic(err)
	}
	return cpuTime(&ru)
}

// naive is the floor: descriptors of nine files for each cgroup, one buffer.
type naive struct {
	fds []int
	buf [16 << 10]byte
	sum uint64
}

var (
	naiveV1 = []string{
		"cpuacct.usage", "cpu.stat", "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.stat",
		"blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive", "pids.current",
	}
	naiveV2 = []string{
		"cpu.stat", "memory.current", "memory.peak", "memory.stat", "io.stat", "pids.current", "memory.events", "memory.swap.current",
	}
)

func (n *naive) add(b *testing.B, h *cgroup.Host, dirs []string) {
	names := naiveV1
	if h.Layout() == "v2" {
		names = naiveV2
	}
	for _, name := range names {
		fd := -1
		for _, d := range dirs {
			if h.Layout() == "hybrid" && strings.HasPrefix(d, liveRoot+"/unified/") {
				continue // has a cpu.stat, too
			}
			if f, err := syscall.Open(d+"/"+name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
				fd = f
				break
			}
		}
		if fd < 0 {
			b.Fatalf("no %s of %v", name, dirs)
		}
		n.fds = append(n.fds, fd)
	}
	fd, err := syscall.Open("/proc/self/net/dev", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	n.fds = append(n.fds, fd)
}

// round reads all files by a raw pread and parses every number in them, as the
// floor of the design's measurements does.
func (n *naive) round(b *testing.B) {
	for _, fd := range n.fds {
		k, errno := rawPread(fd, n.buf[:])
		if errno != 0 {
			b.Fatal(errno)
		}
		var v uint64
		in := false
		for _, c := range n.buf[:k] {
			if c -= '0'; c <= 9 {
				v, in = v*10+uint64(c), true
			} else if in {
				n.sum += v
				v, in = 0, false
			}
		}
	}
}

func (n *naive) close() {
	for _, fd := range n.fds {
		_ = syscall.Close(fd)
	}
}
func rawPread(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	return int(n), errno
}
