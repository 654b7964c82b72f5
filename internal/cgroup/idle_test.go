package cgroup_test

import (
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
)

// Where no byte moved since the last reading, v1's operations are not read: the
// next byte, or the next Full, brings what there is.
func TestGroup_Read_IdleDisk(t *testing.T) {
	f := unpack(t, "v1-cgroupfs-docker")
	dir := "cgroup/blkio/docker/" + id + "/blkio.throttle."
	write := func(bytes, operations string) {
		f.write(dir+"io_service_bytes_recursive", "8:0 Read 0\n8:0 Write "+bytes+"\nTotal "+bytes+"\n")
		f.write(dir+"io_serviced_recursive", "8:0 Read 0\n8:0 Write "+operations+"\nTotal "+operations+"\n")
	}
	write("4096", "1")
	g := group(t, f.open(), "/docker/"+id)
	var s cimeter.Sample
	check := func(step string, tier cgroup.Tier, bytes, operations uint64) {
		t.Helper()
		if err := g.Read(&s, tier); err != nil {
			t.Fatal(err)
		}
		b, _ := s.Counter(cimeter.IOWriteBytes)
		n, _ := s.Counter(cimeter.IOWriteOperations)
		if b != bytes || n != operations {
			t.Errorf("%s: %d bytes in %d operations, want %d in %d", step, b, n, bytes, operations)
		}
	}
	check("first", cgroup.Fast, 4096, 1)
	write("8192", "2")
	check("bytes moved", cgroup.Fast, 8192, 2)
	write("8192", "3")
	check("a flush, not looked for", cgroup.Fast, 8192, 2)
	check("a flush, with all files", cgroup.Full, 8192, 3)
	write("12288", "5")
	check("nothing has run, not looked for", cgroup.Fast, 8192, 3)
	f.write("cgroup/cpu,cpuacct/docker/"+id+"/cpuacct.usage", "987654321012\n")
	check("bytes moved after it", cgroup.Fast, 12288, 5)
}

// Where no process has run since the last reading, the memory in use is as it was, but
// for what the kernel took back: the next Full brings that.
func TestGroup_Read_IdleMemory(t *testing.T) {
	for _, host := range []struct{ name, path, memory, cpu string }{
		{"v1-cgroupfs-docker", "/docker/" + id, "cgroup/memory/docker/" + id + "/memory.usage_in_bytes", "cgroup/cpu,cpuacct/docker/" + id + "/cpuacct.usage"},
		{"v2-cgroupfs-docker", "/docker/" + id, "cgroup/docker/" + id + "/memory.current", "cgroup/docker/" + id + "/cpu.stat"},
	} {
		t.Run(host.name, func(t *testing.T) {
			f := unpack(t, host.name)
			g := group(t, f.open(), host.path)
			var s cimeter.Sample
			check := func(step string, tier cgroup.Tier, want uint64) {
				t.Helper()
				if err := g.Read(&s, tier); err != nil {
					t.Fatal(err)
				}
				if got, ok := s.Gauge(cimeter.MemoryCurrent); !ok || got != want {
					t.Errorf("%s: %d bytes (known %t), want %d", step, got, ok, want)
				}
			}
			f.write(host.memory, "8192\n")
			check("first", cgroup.Fast, 8192)
			f.write(host.memory, "4096\n")
			check("nothing has run", cgroup.Fast, 8192)
			check("with all files", cgroup.Full, 4096)
			f.write(host.memory, "12288\n")
			f.write(host.cpu, map[bool]string{true: "usage_usec 987654321\nuser_usec 987654321\nsystem_usec 0\n", false: "987654321012\n"}[strings.HasSuffix(host.cpu, "stat")])
			check("something has run", cgroup.Fast, 12288)
		})
	}
}
