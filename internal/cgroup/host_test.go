package cgroup_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
)

func TestOpen_Failure(t *testing.T) {
	dir := t.TempDir()
	_, err := cgroup.Open(cgroup.Options{Root: dir, Proc: dir})
	if !errors.Is(err, cimeter.ErrUnsupported) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Open of an empty folder: %v", err)
	}
	_, err = cgroup.Open(cgroup.Options{Root: dir + "/none", Proc: dir})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of no folder: %v", err)
	}
}

// Mounts are taken from mountinfo where it tells of the root, not guessed.
func TestOpen_Mountinfo(t *testing.T) {
	f := unpack(t, "hybrid-docker")
	root := f.dir + "/cgroup"
	f.write("proc/self/mountinfo", strings.NewReplacer("ROOT", root).Replace(
		`31 23 0:28 / ROOT rw,relatime - tmpfs tmpfs rw,mode=755
33 31 0:30 / ROOT/cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpuacct,cpu
35 31 0:32 / ROOT/memory rw,relatime - cgroup cgroup rw,memory
38 31 0:35 / ROOT/pids rw,relatime - cgroup cgroup rw,blkio
39 31 0:36 / ROOT/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / ROOT/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /elsewhere/unified rw,relatime - cgroup2 cgroup2 rw
`))
	h := f.open()
	if h.Layout() != "v1" || h.WatchDir() != root+"/pids" {
		t.Errorf("layout %s, watches %s", h.Layout(), h.WatchDir())
	}
	if err := h.BlockIO(); !errors.Is(err, cimeter.ErrUnsupported) {
		t.Errorf("BlockIO without blkio: %v", err)
	}
	if err := h.Pressure(); !errors.Is(err, cimeter.ErrUnsupported) {
		t.Errorf("Pressure without cgroup v2: %v", err)
	}
	for _, c := range []string{"garbage - cgroup", "1 2 3 - cgroup cgroup rw"} {
		f.write("proc/self/mountinfo", c+"\n")
		if _, err := cgroup.Open(f.options()); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("Open with mountinfo %q: %v", c, err)
		}
	}
}

// One disk is counted and one is not: the error names the latter, what is
// counted is told.
func TestHost_BlockIO_OneDisk(t *testing.T) {
	f := unpack(t, "v1-cgroupfs-docker")
	f.write("proc/diskstats", `8 0 sda 1 0 8 0 1 0 8 0 0 0 0
8 1 sda1 1 0 8 0 1 0 8 0 0 0 0
8 16 sdb 1 0 8 0 1 0 8 0 0 0 0
8 32 sdc 0 0 0 0 0 0 0 0 0 0 0
253 0 dm-0 1 0 8 0 1 0 8 0 0 0 0
7 0 loop0 1 0 8 0 1 0 8 0 0 0 0
`)
	f.write("sys/dev/block/8:1/partition", "1\n")
	h := f.open()
	if err := h.BlockIO(); !errors.Is(err, cimeter.ErrUnsupported) || !strings.Contains(err.Error(), "cgroups on sdb:") {
		t.Errorf("BlockIO: %v, want one that names sdb alone", err)
	}
	var s cimeter.Sample
	if err := group(t, h, "/docker/"+id).Read(&s, cgroup.Fast); err != nil {
		t.Fatal(err)
	}
	if v, ok := s.Counter(cimeter.IOWriteBytes); v != 314773504 || !ok {
		t.Errorf("%d bytes written, %v", v, ok)
	}
	if err := h.WakeBlockIO(); err == nil || strings.Contains(err.Error(), "remove") {
		t.Errorf("WakeBlockIO on plain files: %v, want an error and the scratch folder removed", err)
	}
}

func TestHost_WholeTree(t *testing.T) {
	f := func(name string, whole bool, files ...string) {
		t.Helper()
		f := unpack(t, name)
		for _, file := range files {
			f.write(file, "")
		}
		if err := f.open().WholeTree(); (err == nil) != whole || err != nil && !errors.Is(err, cimeter.ErrUnsupported) {
			t.Errorf("%s with %v: %v", name, files, err)
		}
	}
	f("v2-cgroupfs-docker", true)
	f("v2-cgroupfs-docker", false, "cgroup/cgroup.type")
	f("v1-cgroupfs-docker", true, "cgroup/blkio/notify_on_release", "cgroup/blkio/release_agent")
	f("v1-cgroupfs-docker", false, "cgroup/blkio/notify_on_release")
}

func TestOpen_SymbolicLink(t *testing.T) {
	f := unpack(t, "hybrid-docker")
	if err := os.Symlink(f.dir+"/cgroup", f.dir+"/link"); err != nil {
		t.Fatal(err)
	}
	f.write("proc/self/mountinfo", "39 31 0:36 / "+f.dir+"/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n")
	o := f.options()
	o.Root = f.dir + "/link"
	h, err := cgroup.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if h.WatchDir() != f.dir+"/cgroup/pids" {
		t.Errorf("watches %s, want what mountinfo tells of", h.WatchDir())
	}
}
