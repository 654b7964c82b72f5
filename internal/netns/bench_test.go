package netns_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/netns"
)

// BenchmarkReader_Refresh reads 100 containers by one dump, against a pread and
// a parse of an open /proc/PID/net/dev for each, and prints how many times as
// much CPU time the latter takes.
func BenchmarkReader_Refresh(b *testing.B) {
	const n = 100
	pids := containers(b, n)
	r := reader(b)
	var handles []*netns.Handle
	var files []int
	began := cpu(b)
	for _, pid := range pids {
		h, err := r.Attach(pid)
		if err != nil {
			b.Fatal(err)
		}
		handles = append(handles, h)
	}
	if err := r.Refresh(); err != nil {
		b.Fatal(err)
	}
	for _, h := range handles {
		if h.Source() != "netlink" {
			b.Fatalf("source: got %s, want netlink", h.Source())
		}
	}
	attaching := cpu(b) - began
	for _, pid := range pids {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/net/dev", pid), unix.O_RDONLY, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer unix.Close(fd)
		files = append(files, fd)
	}
	buf := make([]byte, 4096)
	var dump, each time.Duration
	var s cimeter.Sample
	var sum uint64
	b.ReportAllocs()
	for b.Loop() {
		t0 := cpu(b)
		if err := r.Refresh(); err != nil {
			b.Fatal(err)
		}
		for _, h := range handles {
			if err := h.Read(&s); err != nil {
				b.Fatal(err)
			}
		}
		t1 := cpu(b)
		for _, fd := range files {
			got, err := unix.Pread(fd, buf, 0)
			if err != nil {
				b.Fatal(err)
			}
			sum += eth0(buf[:got])
		}
		dump += t1 - t0
		each += cpu(b) - t1
	}
	if sum == 0 {
		b.Fatal("the plain loop found no eth0")
	}
	b.ReportMetric(float64(dump.Nanoseconds())/float64(b.N)/n, "ns/handle")
	b.ReportMetric(float64(each.Nanoseconds())/float64(b.N)/n, "ns/pread")
	b.ReportMetric(float64(each)/float64(dump), "preads/netlink")
	b.ReportMetric(float64(attaching.Microseconds())/n, "µs/attach")
}

// eth0 is the plain loop's parser: the interface's bytes received and sent, and
// 1, added up.
func eth0(text []byte) uint64 {
	i := bytes.Index(text, []byte("eth0:"))
	if i < 0 {
		return 0
	}
	sum, field, digits := uint64(1), 0, false
	var v uint64
	for _, c := range text[i+5:] {
		if c >= '0' && c <= '9' {
			v, digits = v*10+uint64(c-'0'), true
			continue
		}
		if digits {
			if field == 0 || field == 8 {
				sum += v
			}
			if field == 8 {
				break
			}
			v, digits = 0, false
			field++
		}
	}
	return sum
}

func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// containers starts n small processes in namespaces of their own, each with an
// uplink.
func containers(b *testing.B, n int) []int {
	b.Helper()
	need(b)
	var pids []int
	var batch strings.Builder
	for i := range n {
		cmd := exec.Command("cat")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		in, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			in.Close()
			cmd.Wait()
		})
		pids = append(pids, cmd.Process.Pid)
		fmt.Fprintf(&batch, "link add bv%d type veth peer name eth0 netns %s\n", i, strconv.Itoa(cmd.Process.Pid))
	}
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		b.Fatal(err)
	}
	return pids
}
