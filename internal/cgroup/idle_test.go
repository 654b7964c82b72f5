package cgroup_test

import (
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
	check("bytes moved after it", cgroup.Fast, 12288, 5)
}
