package main

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// memoryPeak is the kernel's own maximum of the container's memory: v2, else
// v1; 0 where it is in neither.
func memoryPeak() int64 {
	for _, path := range []string{"/sys/fs/cgroup/memory.peak", "/sys/fs/cgroup/memory/memory.max_usage_in_bytes"} {
		if b, err := os.ReadFile(path); err == nil {
			n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			return n
		}
	}
	return 0
}

// cgroupCPU is the CPU time of the container's cgroup in nanoseconds: v1, else
// v2; 0 where it is in neither.
func cgroupCPU() int64 {
	for _, path := range []string{"/sys/fs/cgroup/cpuacct/cpuacct.usage", "/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage"} {
		if b, err := os.ReadFile(path); err == nil {
			n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			return n
		}
	}
	n, _ := value("/sys/fs/cgroup/cpu.stat", "usage_usec")
	return n * 1000
}

// throttled is the number of periods in which the container was throttled: v1,
// else v2; 0 where it is in neither.
func throttled() int64 {
	for _, path := range []string{"/sys/fs/cgroup/cpu/cpu.stat", "/sys/fs/cgroup/cpu,cpuacct/cpu.stat", "/sys/fs/cgroup/cpu.stat"} {
		if n, ok := value(path, "nr_throttled"); ok {
			return n
		}
	}
	return 0
}

// blockIO is what the kernel has booked on the container's cgroup: v1, else v2; 0
// where it is in neither. On a busy machine that is more than what burn asks for: who
// needs room in the file system's journal writes back what others have put there.
func blockIO() (read, write int64) {
	const v1, v2 = "/sys/fs/cgroup/blkio/blkio.throttle.io_service_bytes", "/sys/fs/cgroup/io.stat"
	b, err := os.ReadFile(v1)
	if err != nil {
		if b, err = os.ReadFile(v2); err != nil {
			return 0, 0
		}
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[1] == "Read" { // 254:0 Read 4096
			f[1] = "rbytes=" + f[2]
		} else if len(f) == 3 && f[1] == "Write" {
			f[1] = "wbytes=" + f[2]
		}
		for _, pair := range f { // 254:0 rbytes=4096 wbytes=8192 rios=1 ...
			name, text, _ := strings.Cut(pair, "=")
			n, _ := strconv.ParseInt(text, 10, 64)
			switch name {
			case "rbytes":
				read += n
			case "wbytes":
				write += n
			}
		}
	}
	return read, write
}

// value is the number behind a key in a file of keys and numbers.
func value(path, key string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, key+" "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// traffic is what the kernel counted on all interfaces but the loopback.
func traffic() (receive, transmit int64) {
	b, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		f := strings.Fields(rest)
		if name == "lo" || len(f) < 16 {
			continue
		}
		r, _ := strconv.ParseInt(f[0], 10, 64)
		t, _ := strconv.ParseInt(f[8], 10, 64)
		receive, transmit = receive+r, transmit+t
	}
	return receive, transmit
}

// settle waits until the network is quiet: late acknowledgements are counted
// as well.
func settle() {
	r, t := traffic()
	for quiet := 0; quiet < 5; quiet++ {
		time.Sleep(50 * time.Millisecond)
		r2, t2 := traffic()
		if r2 != r || t2 != t {
			r, t, quiet = r2, t2, -1
		}
	}
}

// send sends n bytes to the sink and waits until it has closed.
func send(addr string, n int64) error {
	c, err := dial(addr, 'S', n)
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]byte, 64<<10)
	for n > 0 {
		k, err := c.Write(buf[:min(n, int64(len(buf)))])
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	if _, err := c.Read(buf); !errors.Is(err, io.EOF) {
		return errors.New("the sink did not close")
	}
	return nil
}

// receive gets n bytes from the sink.
func receive(addr string, n int64) error {
	c, err := dial(addr, 'R', n)
	if err != nil {
		return err
	}
	defer c.Close()
	got, err := io.Copy(io.Discard, c)
	if err != nil {
		return err
	}
	if got != n {
		return errors.New("the sink closed too early")
	}
	return nil
}

// dial connects to the sink and asks for a direction and a size.
func dial(addr string, direction byte, n int64) (*net.TCPConn, error) {
	c, err := net.DialTimeout("tcp4", addr, time.Minute)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(binary.BigEndian.AppendUint64([]byte{direction}, uint64(n))); err != nil {
		c.Close()
		return nil, err
	}
	return c.(*net.TCPConn), nil
}
