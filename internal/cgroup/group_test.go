package cgroup_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
)

// The readings of the fixtures, in the units of cimeter.Sample.
const (
	v2Fast = `cpu total 2312345000
cpu user 1901234000
cpu system 411111000
cpu periods 57
cpu throttled periods 12
cpu throttled 345678000
io read bytes 1459200
io write bytes 314773504
io reads 192
io writes 353
`
	pressure = `cpu some 1117493000
cpu full 90211000
memory some 210000
memory full 200000
io some 5150000
io full 5000000
`
	memory = `working set 4475904
anon 1257472
file 14888960
kernel 540672
swap 4096
processes 7
`
	// The total divided by 190 ticks of user and 41 of system time.
	v1Times = `cpu total 2312345678
cpu user 1901929346
cpu system 410416332
cpu periods 57
cpu throttled periods 12
cpu throttled 345678901
`
)

func TestGroup_Read_Fixtures(t *testing.T) {
	for _, tt := range []struct {
		name, layout, watch, path string
		fast, full                string
		cores                     float64
		bytes                     uint64
		setBy                     string
		blockIO                   bool
	}{
		{
			name: "v2-systemd-docker", layout: "v2", watch: "/cgroup", path: "/system.slice/docker-" + id + ".scope",
			fast:  v2Fast + "memory 16686080\n",
			full:  v2Fast + pressure + "oom kills 1\noom kills nested 2\nmemory 16686080\nmemory peak 50593792\n" + memory,
			cores: 1.5, bytes: 8 << 30, setBy: "/system.slice", blockIO: true,
		},
		{
			name: "v2-cgroupfs-docker", layout: "v2", watch: "/cgroup", path: "/docker/" + id,
			fast:  v2Fast + "memory 16686080\n",
			full:  v2Fast + pressure + "oom kills 1\noom kills nested 2\nmemory 16686080\nmemory peak 50593792\n" + memory,
			cores: 1, blockIO: true,
		},
		{
			name: "v2-nopsi-5.10", layout: "v2", watch: "/cgroup", path: "/docker/" + id,
			fast:  v2Fast + "memory 16686080\n",
			full:  v2Fast + "oom kills 1\noom kills nested 2\nmemory 16686080\n" + memory,
			cores: 1.5, blockIO: true,
		},
		{
			name: "v1-cgroupfs-docker", layout: "v1", watch: "/cgroup/blkio", path: "/docker/" + id,
			fast:  "cpu total 2312345678\nio read bytes 1459200\nio write bytes 314773504\nio reads 192\nio writes 353\nmemory 16686080\n",
			full:  v1Times + "io read bytes 1459200\nio write bytes 314773504\nio reads 192\nio writes 353\noom kills 2\nmemory 16686080\nmemory peak 50593792\n" + memory,
			cores: 1.5, bytes: 6 << 30, setBy: "/docker", blockIO: true,
		},
		{
			name: "hybrid-docker", layout: "hybrid", watch: "/cgroup/blkio", path: "/docker/" + id,
			fast:  "cpu total 2312345678\nmemory 16686080\n",
			full:  v1Times + pressure + "oom kills 2\nmemory 16686080\nmemory peak 50593792\n" + memory,
			cores: 1.5, bytes: 6 << 30, setBy: "/docker", blockIO: false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := unpack(t, tt.name)
			h := f.open()
			if h.Layout() != tt.layout || h.WatchDir() != f.dir+tt.watch {
				t.Errorf("layout %s, watches %s", h.Layout(), h.WatchDir())
			}
			g := group(t, h, tt.path)
			var s cimeter.Sample
			if err := g.Read(&s, cgroup.Fast); err != nil || dump(&s) != tt.fast {
				t.Errorf("Read fast: %v\n%swant\n%s", err, dump(&s), tt.fast)
			}
			if err := g.Read(&s, cgroup.Full); err != nil || dump(&s) != tt.full {
				t.Errorf("Read full: %v\n%swant\n%s", err, dump(&s), tt.full)
			}
			if h.Errors() != 0 || h.Degraded() != 0 {
				t.Errorf("errors %d (%v), degraded %d", h.Errors(), h.LastError(), h.Degraded())
			}
			l := g.Limits()
			if l.CPUCores != cimeter.Some(tt.cores) || l.MemorySetBy != tt.setBy || l.MemoryBytes.Known != (tt.bytes != 0) || l.MemoryBytes.Value != tt.bytes {
				t.Errorf("limits %+v, want %v cores and %d bytes by %q", l, tt.cores, tt.bytes, tt.setBy)
			}
			if err := h.BlockIO(); (err == nil) != tt.blockIO || err != nil && !errors.Is(err, cimeter.ErrUnsupported) {
				t.Errorf("BlockIO: %v", err)
			}
			if pids, err := g.Procs(nil); err != nil || len(pids) != 2 || pids[0] != 4242 || pids[1] != 4250 {
				t.Errorf("Procs: %v, %v", pids, err)
			}
			if some, err := g.Populated(); !some || err != nil {
				t.Errorf("Populated: %v, %v", some, err)
			}
			if e := g.EventsFile(); (e != "") != (tt.layout != "v1") {
				t.Errorf("EventsFile %q", e)
			}
			if g.Path() != tt.path || g.Inode() == 0 || g.Files() == 0 {
				t.Errorf("path %s, inode %d, %d files", g.Path(), g.Inode(), g.Files())
			}
			if n := h.MachineCores(); n != 2 {
				t.Errorf("MachineCores %v", n)
			}
			if n, err := h.MachineMemory(); n != 24684084<<10 || err != nil {
				t.Errorf("MachineMemory %v, %v", n, err)
			}
			want := uint64(72030965476)
			if tt.layout == "v2" {
				want = 68161668000
			}
			if n, err := h.MachineCPU(); n != want || err != nil {
				t.Errorf("MachineCPU %v, %v, want %v", n, err, want)
			}
			g.Close()
			if err := g.Read(&s, cgroup.Fast); !errors.Is(err, cimeter.ErrGone) {
				t.Errorf("Read after Close: %v", err)
			}
		})
	}
}

func TestGroup_Read_Allocs(t *testing.T) {
	for name, path := range map[string]string{
		"v2-systemd-docker":  "/system.slice/docker-" + id + ".scope",
		"v1-cgroupfs-docker": "/docker/" + id,
		"hybrid-docker":      "/docker/" + id,
	} {
		t.Run(name, func(t *testing.T) {
			g := group(t, unpack(t, name).open(), path)
			var s cimeter.Sample
			pids := make([]int, 0, 8)
			round := func() {
				for _, tier := range []cgroup.Tier{cgroup.Fast, cgroup.Full} {
					if err := g.Read(&s, tier); err != nil {
						t.Fatal(err)
					}
				}
				var err error
				if pids, err = g.Procs(pids[:0]); err != nil || len(pids) != 2 {
					t.Fatal(pids, err)
				}
			}
			round()
			if n := testing.AllocsPerRun(100, round); n != 0 {
				t.Errorf("%v allocations a round, want 0", n)
			}
		})
	}
}

func TestHost_Group_Failure(t *testing.T) {
	h := unpack(t, "v2-cgroupfs-docker").open()
	for path, want := range map[string]error{
		"docker":         cimeter.ErrInvalid,
		"":               cimeter.ErrInvalid,
		"/docker/":       cimeter.ErrInvalid,
		"/../docker":     cimeter.ErrInvalid,
		"/docker/../..":  cimeter.ErrInvalid,
		"/docker/absent": cimeter.ErrGone,
	} {
		if g, err := h.Group(path); g != nil || !errors.Is(err, want) {
			t.Errorf("Group(%q) = %v, %v, want %v", path, g, err, want)
		}
	}
}

// A runtime makes the folder in the v2 hierarchy of a hybrid host last.
func TestGroup_Retry(t *testing.T) {
	f := unpack(t, "hybrid-docker")
	dir := f.dir + "/cgroup/unified/docker/" + id
	if err := os.Rename(dir, f.dir+"/aside"); err != nil {
		t.Fatal(err)
	}
	g := group(t, f.open(), "/docker/"+id)
	before := g.Files()
	if n := g.Retry(); n != 3 || g.EventsFile() != "" {
		t.Errorf("Retry without the folder = %d absent, want the 3 pressure files; events file %q", n, g.EventsFile())
	}
	if err := os.Rename(f.dir+"/aside", dir); err != nil {
		t.Fatal(err)
	}
	if n := g.Retry(); n != 0 || g.Files() != before+3 {
		t.Errorf("Retry with the folder = %d absent, %d files, want %d", n, g.Files(), before+3)
	}
	if g.EventsFile() != dir+"/cgroup.events" {
		t.Errorf("EventsFile %q", g.EventsFile())
	}
}

// Nobody lives in the v2 folder: its pressure and emptiness say nothing.
func TestGroup_HybridElsewhere(t *testing.T) {
	f := unpack(t, "hybrid-docker")
	f.write("cgroup/unified/docker/"+id+"/cpu.stat", "usage_usec 0\nuser_usec 0\nsystem_usec 0\n")
	f.write("cgroup/unified/docker/"+id+"/cgroup.events", "populated 0\nfrozen 0\n")
	g := group(t, f.open(), "/docker/"+id)
	var s cimeter.Sample
	if err := g.Read(&s, cgroup.Full); err != nil {
		t.Fatal(err)
	}
	if v, ok := s.Counter(cimeter.CPUSomePressure); ok {
		t.Errorf("CPU pressure %d, want absent", v)
	}
	if some, err := g.Populated(); !some || err != nil {
		t.Errorf("Populated = %v, %v, want true: processes are in the v1 hierarchies", some, err)
	}
	f.write("cgroup/cpuacct/docker/"+id+"/cgroup.procs", "")
	if some, err := g.Populated(); some || err != nil {
		t.Errorf("Populated = %v, %v, want false", some, err)
	}
	f.write("cgroup/cpuacct/docker/"+id+"/below/further/cgroup.procs", "77\n")
	if some, err := g.Populated(); !some || err != nil {
		t.Errorf("Populated = %v, %v, want true: a process is below", some, err)
	}
}

// A folder that is made again under the same name is another cgroup: nothing of
// it gets into the readings of the first.
func TestGroup_MadeAgain(t *testing.T) {
	for _, descriptors := range []int{0, 1} {
		f := unpack(t, "v2-cgroupfs-docker")
		f.remove("cgroup/docker/" + id + "/memory.peak")
		o := f.options()
		o.MaxDescriptors = descriptors
		h, err := cgroup.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.Close)
		g, reader := group(t, h, "/docker/"+id), group(t, h, "/docker/"+id)
		var s, before cimeter.Sample
		if err := reader.Read(&s, cgroup.Fast); err != nil {
			t.Fatal(err)
		}
		before = s
		if err := os.Rename(f.dir+"/cgroup/docker/"+id, f.dir+"/old"); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"cpu.stat", "memory.current", "memory.peak", "io.stat"} {
			content := "1\n"
			switch file {
			case "cpu.stat":
				content = "usage_usec 1\n"
			case "io.stat":
				content = "8:0 wbytes=1\n"
			}
			f.write("cgroup/docker/"+id+"/"+file, content)
		}
		if again := group(t, h, "/docker/"+id); again.Inode() == g.Inode() {
			t.Error("both have the same inode")
		}
		if _, err := g.Populated(); !errors.Is(err, cimeter.ErrGone) {
			t.Errorf("Populated of the old one: %v", err)
		}
		files := g.Files()
		g.Retry()
		if g.Files() != files {
			t.Errorf("Retry opened %d files of the new one", g.Files()-files)
		}
		if err := g.Read(&s, cgroup.Full); !errors.Is(err, cimeter.ErrGone) {
			t.Errorf("Read after Retry: %v", err)
		}
		if err := reader.Read(&s, cgroup.Fast); descriptors == 1 && !errors.Is(err, cimeter.ErrGone) || s != before {
			t.Errorf("%d descriptors: Read: %v\n%swant\n%s", descriptors, err, dump(&s), dump(&before))
		}
	}
}

// Over MaxDescriptors files are read by open, read and close: the same
// readings, counted.
func TestHost_MaxDescriptors(t *testing.T) {
	for name, path := range map[string]string{
		"v2-cgroupfs-docker": "/docker/" + id,
		"hybrid-docker":      "/docker/" + id,
	} {
		f := unpack(t, name)
		want := func() string {
			var s cimeter.Sample
			if err := group(t, f.open(), path).Read(&s, cgroup.Full); err != nil {
				t.Fatal(err)
			}
			return dump(&s)
		}()
		for _, n := range []int{1, 5} {
			o := f.options()
			o.MaxDescriptors = n
			h, err := cgroup.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			g, other := group(t, h, path), group(t, h, path)
			var s cimeter.Sample
			if err := g.Read(&s, cgroup.Full); err != nil || dump(&s) != want {
				t.Errorf("%s, %d descriptors: %v\n%swant\n%s", name, n, err, dump(&s), want)
			}
			if g.Files() != n || other.Files() != 0 || h.Degraded() == 0 || h.Errors() != 0 {
				t.Errorf("%s: %d and %d files, want %d and 0; degraded %d, errors %d", name, g.Files(), other.Files(), n, h.Degraded(), h.Errors())
			}
			if pids, err := g.Procs(nil); len(pids) != 2 || err != nil {
				t.Errorf("Procs: %v, %v", pids, err)
			}
			// What one gives up, another takes.
			g.Close()
			if err := other.Read(&s, cgroup.Full); err != nil || other.Files() != n {
				t.Errorf("%s: %v, %d files after the other is closed, want %d", name, err, other.Files(), n)
			}
			if n > 1 {
				continue // a fixture's open files outlive its folder
			}
			dir := f.dir + "/cgroup/" + strings.TrimPrefix(h.WatchDir(), f.dir+"/cgroup") + path
			if err := os.Rename(dir, f.dir+"/moved"); err != nil {
				t.Fatal(err)
			}
			if err := other.Read(&s, cgroup.Full); !errors.Is(err, cimeter.ErrGone) {
				t.Errorf("%s: Read of a removed cgroup: %v", name, err)
			}
			if err := os.Rename(f.dir+"/moved", dir); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Of several limits the tightest holds, whoever sets it.
func TestGroup_Limits_tightest(t *testing.T) {
	f := unpack(t, "v2-systemd-docker")
	path := "/system.slice/docker-" + id + ".scope"
	g := group(t, f.open(), path)
	for _, c := range []struct {
		own, bytes uint64
		by         string
	}{{16 << 30, 8 << 30, "/system.slice"}, {4 << 30, 4 << 30, path}} {
		f.write("cgroup"+path+"/memory.max", fmt.Sprintln(c.own))
		if l := g.Limits(); l.MemoryBytes != cimeter.Some(c.bytes) || l.MemorySetBy != c.by {
			t.Errorf("own limit of %d: %+v by %q, want %d by %q", c.own, l.MemoryBytes, l.MemorySetBy, c.bytes, c.by)
		}
	}
}

// After a reset the peak is that of the descriptor that asked for it.
func TestGroup_ResetPeak_descriptor(t *testing.T) {
	f := unpack(t, "v2-systemd-docker")
	path := "/system.slice/docker-" + id + ".scope"
	g := group(t, f.open(), path)
	files := g.Files()
	peak := "cgroup" + path + "/memory.peak"
	f.remove(peak) // the descriptor that is open shows the old one on
	f.write(peak, "0\n")
	if !g.ResetPeak() || g.Files() != files {
		t.Fatalf("not reset, or %d files are open, before %d", g.Files(), files)
	}
	f.write(peak, "4096\n")
	var s cimeter.Sample
	if err := g.Read(&s, cgroup.Full); err != nil {
		t.Fatal(err)
	}
	if v, ok := s.Gauge(cimeter.MemoryPeak); v != 4096 || !ok {
		t.Errorf("a peak of %d bytes, %v: want 4096", v, ok)
	}
}
