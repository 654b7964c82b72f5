package cgroup

import (
	"bytes"
	"math"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
)

// FuzzSet feeds foreign bytes to every file of a group: it never panics, and
// sets nothing when it returns an error.
func FuzzSet(f *testing.F) {
	for _, s := range []string{
		"", "\n", "123\n", "max", "usage_usec 5\nuser_usec 3\nnr_periods 1\n", "user 1\nsystem 2\n", "anon 1\ninactive_file 3\n",
		"total_rss 1\ntotal_inactive_file 3\n", "oom_kill 2\n", "some avg10=2.65 total=1\nfull total=2\n",
		"8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n7:0\n", "8:0 Read 1\n8:0 Write 2\nTotal 3\n", "18446744073709551615\n", "a \n", " \n",
	} {
		f.Add([]byte(s))
	}
	h := &Host{layout: "v2", ioCounts: true, devices: devices{sys: f.TempDir()}, read: pread}
	g := &Group{h: h}
	f.Fuzz(func(t *testing.T, b []byte) {
		for k := kindCPUUsage; k <= kindProcs; k++ {
			var s cimeter.Sample
			h.devices.known = nil
			if err := g.set(&s, k, b); err != nil && s != (cimeter.Sample{}) {
				t.Errorf("kind %d of %q: %v, but the sample is set", k, b, err)
			}
			g.hasInactive = false
		}
	})
}

func FuzzParseNumber(f *testing.F) {
	f.Add(uint64(0), []byte("x"))
	f.Add(uint64(math.MaxUint64), []byte("12 "))
	f.Fuzz(func(t *testing.T, v uint64, b []byte) {
		text := strconv.AppendUint(nil, v, 10)
		if got, err := parseNumber(text); got != v || err != nil {
			t.Errorf("%d: %d, %v", v, got, err)
		}
		if _, err := parseNumber(b); err == nil && bytes.ContainsAny(trim(b), " \nabcx-") {
			t.Errorf("%q is taken for a number", b)
		}
	})
}

func FuzzParseProcCgroup(f *testing.F) {
	f.Add([]byte("6:cpu,cpuacct:/docker/a\n0::/libpod_parent/libpod-bbf5 (deleted)\n"))
	f.Add([]byte("1::/:"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ms, err := ParseProcCgroup(b)
		if err != nil && ms != nil {
			t.Error("an error and a result")
		}
		for _, m := range ms {
			if !strings.HasPrefix(m.Path, "/") || m.Hierarchy < 0 || strings.Contains(m.Controllers, ":") {
				t.Errorf("%q: %+v", b, m)
			}
		}
	})
}

func FuzzContainer(f *testing.F) {
	id := strings.Repeat("0123456789abcdef", 4)
	for _, s := range []string{"", "/docker/" + id, "/a.slice/docker-" + id + ".scope/x", "/x:cri-containerd:" + id, "::" + id} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		got, prefix, ok := Container(p)
		if !ok {
			return
		}
		if id, again := ContainerID(path.Base(prefix)); !again || id != got || !strings.HasPrefix(p, prefix) {
			t.Errorf("Container(%q) = %q, %q", p, got, prefix)
		}
	})
}

func FuzzParseMountinfo(f *testing.F) {
	f.Add([]byte("33 32 0:30 / /sys/fs/cgroup/cpu\\040x rw - cgroup cgroup rw,cpu\n"))
	f.Add([]byte(" - cgroup2 "))
	f.Fuzz(func(t *testing.T, b []byte) {
		ms, err := parseMountinfo(b)
		if err != nil && ms != nil {
			t.Error("an error and a result")
		}
	})
}

func FuzzParseSystem(f *testing.F) {
	f.Add([]byte("cpu  1 2 3 4 5 6 7\n"))
	f.Add([]byte("0-3,8\n"))
	f.Add([]byte("MemTotal: 12 kB\n"))
	f.Add([]byte("8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n"))
	f.Add([]byte("150000 100000\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := parseStat(b); err != nil && v != 0 {
			t.Error("stat: an error and a result")
		}
		if v, err := parseCPUList(b); err != nil && v != 0 || v < 0 {
			t.Error("list of CPUs: an error and a result")
		}
		if v, err := parseMeminfo(b); err != nil && v != 0 {
			t.Error("meminfo: an error and a result")
		}
		if v, err := parseDiskstats(b); err != nil && v != nil {
			t.Error("diskstats: an error and a result")
		}
		if v, ok := parseCPUMax(b); ok && (v <= 0 || math.IsInf(v, 0) || math.IsNaN(v)) {
			t.Errorf("cpu.max: %v", v)
		}
		if v, ok := parseLimit(b, 1<<40); ok && (v == 0 || v >= 1<<40) {
			t.Errorf("limit %d", v)
		}
	})
}

func FuzzParseProcs(f *testing.F) {
	f.Add([]byte("12\n0\nx1\n345\n67"), 3)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		want, _ := parseProcs(b, true, nil)
		if cut < 0 || cut > len(b) {
			return
		}
		got, rest := parseProcs(b[:cut], false, nil)
		got, _ = parseProcs(append(append([]byte{}, rest...), b[cut:]...), true, got)
		if len(got) != len(want) {
			t.Errorf("%q cut at %d: %v, want %v", b, cut, got, want)
		}
	})
}
