package cgroup

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
)

func known(v uint64) reading { return reading{value: v, known: true} }

func TestParseNumber_Success(t *testing.T) {
	f := func(in string, want uint64) {
		t.Helper()
		if v, err := parseNumber([]byte(in)); v != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", in, v, err, want)
		}
	}
	f("0\n", 0)
	f("20520960", 20520960)
	f("18446744073709551615\n", math.MaxUint64)
}

func TestParseNumber_Failure(t *testing.T) {
	for _, in := range []string{"", "\n", "max", "-1", "12 13", "18446744073709551616", "1.5", "\x00"} {
		if v, err := parseNumber([]byte(in)); !errors.Is(err, cimeter.ErrInvalid) || v != 0 {
			t.Errorf("%q: %d, %v, want an error", in, v, err)
		}
	}
}

func TestParseCPUStat_Success(t *testing.T) {
	f := func(in string, want cpuStat) {
		t.Helper()
		if st, err := parseCPUStat([]byte(in)); st != want || err != nil {
			t.Errorf("%q: %+v, %v, want %+v", in, st, err, want)
		}
	}
	// Without the cpu controller.
	f("usage_usec 5\nuser_usec 3\nsystem_usec 2\n", cpuStat{usage: known(5000), user: known(3000), system: known(2000)})
	// v1: nanoseconds.
	f("nr_periods 9\nnr_throttled 2\nthrottled_time 77\n", cpuStat{periods: known(9), throttledPeriods: known(2), throttled: known(77)})
	// Unknown keys, whatever their value; no newline at the end.
	f("nice_usec x y\nusage_usec 1", cpuStat{usage: known(1000)})
}

func TestParseCPUStat_Failure(t *testing.T) {
	for _, in := range []string{"", "garbage\n", "usage_usec\n", "usage_usec -5\n", "usage_usec 18446744073709551\nnr_periods x\n", "usage_usec 18446744073709552\n", "other 1\n"} {
		if st, err := parseCPUStat([]byte(in)); !errors.Is(err, cimeter.ErrInvalid) || st != (cpuStat{}) {
			t.Errorf("%q: %+v, %v, want an error", in, st, err)
		}
	}
}

// opencontainers/runc#1844: a third pair.
func TestParseCPUAcctStat(t *testing.T) {
	u, s, err := parseCPUAcctStat([]byte("user 8634978\nsystem 11319890\nnr_migrations 258883801\n"))
	if u != 86349780000000 || s != 113198900000000 || err != nil {
		t.Errorf("user %d, system %d, %v", u, s, err)
	}
	for _, in := range []string{"", "user 1\n", "system 1\n", "user 1\nsystem -1\n", "user 1844674407370955162\nsystem 1\n"} {
		if _, _, err := parseCPUAcctStat([]byte(in)); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v, want an error", in, err)
		}
	}
}

func TestParseMemoryStat(t *testing.T) {
	st, err := parseMemoryStat([]byte("anon 1\nfile 2\ninactive_file 3\n"), true)
	if want := (memoryStat{anon: known(1), file: known(2), inactiveFile: known(3)}); st != want || err != nil {
		t.Errorf("v2 before 5.18: %+v, %v, want no kernel", st, err)
	}
	// v1: those without total_ are of the group alone.
	st, err = parseMemoryStat([]byte("cache 9\nrss 9\ninactive_file 9\ntotal_cache 1\ntotal_rss 2\ntotal_inactive_file 3\n"), false)
	if want := (memoryStat{file: known(1), anon: known(2), inactiveFile: known(3)}); st != want || err != nil {
		t.Errorf("v1 without swap accounting: %+v, %v, want no swap", st, err)
	}
	for _, in := range []string{"", "anon x\n", "anon", "shmem 1\n"} {
		if _, err := parseMemoryStat([]byte(in), true); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v, want an error", in, err)
		}
	}
}

// containerd/containerd#12503: one pair, and it is not ours.
func TestParseKey(t *testing.T) {
	if v, ok, err := parseKey([]byte("max 0"), "oom_kill"); v != 0 || ok || err != nil {
		t.Errorf("max 0: %d, %v, %v, want not known", v, ok, err)
	}
	if v, ok, err := parseKey([]byte("low 0\noom 3\noom_kill 2\noom_group_kill 1\n"), "oom_kill"); v != 2 || !ok || err != nil {
		t.Errorf("memory.events: %d, %v, %v, want 2", v, ok, err)
	}
	// v1 before Linux 4.13.
	if _, ok, err := parseKey([]byte("oom_kill_disable 0\nunder_oom 0\n"), "oom_kill"); ok || err != nil {
		t.Errorf("memory.oom_control without oom_kill: %v, %v", ok, err)
	}
	for _, in := range []string{"", "oom_kill\n", "oom_kill x\n"} {
		if _, ok, err := parseKey([]byte(in), "oom_kill"); ok || !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v, want an error", in, err)
		}
	}
}

// prometheus/node_exporter#3051: no line full.
func TestParsePressure(t *testing.T) {
	some, full, err := parsePressure([]byte("some avg10=2.65 avg60=2.78 avg300=2.92 total=111749368752\n"))
	if some != known(111749368752000) || full.known || err != nil {
		t.Errorf("some alone: %+v, %+v, %v", some, full, err)
	}
	some, full, err = parsePressure([]byte("some avg10=0.00 total=1 new=2\nfull total=3\nother total=4\n"))
	if some != known(1000) || full != known(3000) || err != nil {
		t.Errorf("some and full: %+v, %+v, %v", some, full, err)
	}
	for _, in := range []string{"", "some avg10=1\n", "some total=\n", "some total=x\n", "full total=1\n", "some total=18446744073709552\n"} {
		if _, _, err := parsePressure([]byte(in)); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v, want an error", in, err)
		}
	}
}

func dev(major, minor uint64) deviceID { return deviceID(major<<32 | minor) }

func TestParseIOStat_Success(t *testing.T) {
	f := func(in string, want ...deviceIO) {
		t.Helper()
		if ds, err := parseIOStat([]byte(in), nil); !slices.Equal(ds, want) || err != nil {
			t.Errorf("%q: %+v, %v, want %+v", in, ds, err, want)
		}
	}
	f("")
	// canonical/lxd#10052: devices without a pair.
	f("8:0 \n8:16\n8:32 rbytes=1 wbytes=2 rios=3 wios=4\n", deviceIO{dev(8, 32), transfer{1, 2, 3, 4}})
	// containerd/containerd#3951: the discard pair; other orders and keys.
	f("8:0 rbytes=0 wbytes=4096 rios=0 wios=1 dbytes=0 dios=0\n", deviceIO{dev(8, 0), transfer{0, 4096, 0, 1}})
	f("8:0 cost.usage=17 wios=1 cost.wait=x wbytes=4096 use_delay=0\n", deviceIO{dev(8, 0), transfer{0, 4096, 0, 1}})
	// google/cadvisor#2881: above 2^47.
	f("254:3 rbytes=598016 wbytes=227003599380480 rios=146 wios=124343436 dbytes=0 dios=0\n",
		deviceIO{dev(254, 3), transfer{598016, 227003599380480, 146, 124343436}})
	// The hidden paths of a multipath device have no number.
	f("(unknown) rbytes=1 wbytes=2 rios=3 wios=4\n\n259:1 rbytes=1\n", deviceIO{dev(259, 1), transfer{1, 0, 0, 0}})
}

func TestParseIOStat_Failure(t *testing.T) {
	for _, in := range []string{"garbage\n", "8 rbytes=1\n", "8:x rbytes=1\n", "8:0 rbytes=\n", "8:0 rbytes=1x\n", "8:0 rbytes=18446744073709551616\n", ":0 rbytes=1"} {
		if ds, err := parseIOStat([]byte(in), nil); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %+v, %v, want an error", in, ds, err)
		}
	}
}

func TestParseBlkio(t *testing.T) {
	const bytes = "8:0 Read 4096\n8:0 Write 2097152\n8:0 Sync 2101248\n8:0 Async 0\n8:0 Discard 512\n8:0 Total 2101760\n8:16 Write 7\nTotal 2101760\n"
	ds, err := parseBlkio([]byte(bytes), false, nil)
	if want := []deviceIO{{dev(8, 0), transfer{4096, 2097152, 0, 0}}, {dev(8, 16), transfer{0, 7, 0, 0}}}; !slices.Equal(ds, want) || err != nil {
		t.Errorf("bytes: %+v, %v, want %+v", ds, err, want)
	}
	ds, err = parseBlkio([]byte("8:0 Read 4\n8:0 Write 5\n"), true, nil)
	if want := []deviceIO{{dev(8, 0), transfer{0, 0, 4, 5}}}; !slices.Equal(ds, want) || err != nil {
		t.Errorf("operations: %+v, %v, want %+v", ds, err, want)
	}
	if ds, err := parseBlkio([]byte("Total 0\n"), false, nil); len(ds) != 0 || err != nil {
		t.Errorf("no device: %+v, %v", ds, err)
	}
	for _, in := range []string{"garbage\n", "8:0 Read\n", "8:0 Read x\n", "8:0 Write -1\n"} {
		if _, err := parseBlkio([]byte(in), false, nil); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v, want an error", in, err)
		}
	}
}

// prometheus/node_exporter#1049: the file grew. Sectors are 512 bytes always.
func TestParseDiskstats(t *testing.T) {
	const short = "8 0 sda 50300 93278 1377416 885804 110483 174077 2027818 2201276 0 1726664 2959017"
	want := []disk{{dev(8, 0), "sda", transfer{1377416 * 512, 2027818 * 512, 50300, 110483}}}
	for _, in := range []string{short, "   " + short + " 0 0 0 0\n", short + " 0 0 0 0 9 10\n"} {
		if ds, err := parseDiskstats([]byte(in)); !slices.Equal(ds, want) || err != nil {
			t.Errorf("%q: %+v, %v, want %+v", in, ds, err, want)
		}
	}
	for _, in := range []string{"8 0 sda 1 2 3\n", strings.Replace(short, "50300", "x", 1)} {
		if _, err := parseDiskstats([]byte(in)); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v, want an error", in, err)
		}
	}
}

// Unlimited memory in its many spellings, on a machine of 16 GiB.
func TestParseLimit(t *testing.T) {
	const machine = 16 << 30
	for _, in := range []string{
		"18446744073709551615\n", "9223372036854775807\n", "9223372036854771712\n", "9223372036854710272\n", "max\n", "max", "-1\n",
		"", "\n", "0\n", "garbage", "4 GiB", "17179869184\n", "99999999999\n", "184467440737095516150\n",
	} {
		if v, ok := parseLimit([]byte(in), machine); ok {
			t.Errorf("%q is a limit of %d, want none", in, v)
		}
	}
	// The machine's memory is not known.
	if v, ok := parseLimit([]byte("9223372036854771712\n"), math.MaxUint64); ok {
		t.Errorf("2^63 less a page is a limit of %d, want none", v)
	}
	for _, in := range []string{"4294967296\n", "4294967296"} {
		if v, ok := parseLimit([]byte(in), machine); v != 4<<30 || !ok {
			t.Errorf("%q: %d, %v, want 4 GiB", in, v, ok)
		}
	}
}

func TestParseCPUMax(t *testing.T) {
	if c, ok := parseCPUMax([]byte("150000 100000\n")); c != 1.5 || !ok {
		t.Errorf("%v, %v, want 1.5", c, ok)
	}
	for _, in := range []string{"", "max 100000\n", "max", "0 100000", "1 0", "1", "1 x"} {
		if c, ok := parseCPUMax([]byte(in)); ok {
			t.Errorf("%q: %v, want none", in, c)
		}
	}
}

// shirou/gopsutil#1002: the old table above; control-center/serviced#593: a key
// that is not known.
func TestParseMeminfo(t *testing.T) {
	const table = "        total:    used:    free:  shared: buffers:  cached:\nMem:  260579328 136073216 124506112        0  4915200 94064640\nSwap:        0        0        0\nMemTotal:         254472 kB\nMemFree:          121588 kB\nDirectMap1G: x\n"
	if v, err := parseMeminfo([]byte(table)); v != 254472*1024 || err != nil {
		t.Errorf("%d, %v, want 254472 kB", v, err)
	}
	for _, in := range []string{"", "MemFree: 1 kB\n", "MemTotal: x kB\n", "MemTotal: 1 MB\n", "MemTotal: 1\n", "MemTotal: 18446744073709551615 kB\n"} {
		if v, err := parseMeminfo([]byte(in)); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %d, %v, want an error", in, v, err)
		}
	}
}

func TestParseStat(t *testing.T) {
	v, err := parseStat([]byte("cpu  4400 10 2373 140041 376 3 43 10 5 0\ncpu0 1\n"))
	if v != (4400+10+2373+3+43)*10_000_000 || err != nil {
		t.Errorf("%d, %v", v, err)
	}
	for _, in := range []string{"", "cpu0 1 2 3 4 5 6 7\n", "cpu  1 2 3\n", "cpu  1 2 3 4 5 6 x\n"} {
		if _, err := parseStat([]byte(in)); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v, want an error", in, err)
		}
	}
}

func TestParseCPUList(t *testing.T) {
	for in, want := range map[string]int{"0\n": 1, "0-3": 4, "0-3,8,10-11\n": 7} {
		if n, err := parseCPUList([]byte(in)); n != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", in, n, err, want)
		}
	}
	for _, in := range []string{"", "x", "3-1", "0-", "0-99999999"} {
		if n, err := parseCPUList([]byte(in)); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %d, %v, want an error", in, n, err)
		}
	}
}

func TestParseMountinfo(t *testing.T) {
	ms, err := parseMountinfo([]byte(`22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
33 32 0:30 /docker/1 /host/sys\040fs/cpu,cpuacct ro,nosuid shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct
41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup rw,nsdelegate
`))
	want := []mount{
		{root: "/docker/1", point: "/host/sys fs/cpu,cpuacct", kind: "cgroup", options: "rw,cpu,cpuacct"},
		{root: "/", point: "/sys/fs/cgroup", kind: "cgroup2", options: "rw,nsdelegate"},
	}
	if !slices.Equal(ms, want) || err != nil {
		t.Errorf("%+v, %v, want %+v", ms, err, want)
	}
}

func TestParseProcs(t *testing.T) {
	pids, rest := parseProcs([]byte("12\n0\nx1\n345\n67"), false, nil)
	if !slices.Equal(pids, []int{12, 345}) || string(rest) != "67" {
		t.Errorf("%v, rest %q", pids, rest)
	}
	if pids, rest = parseProcs([]byte("67"), true, pids); !slices.Equal(pids, []int{12, 345, 67}) || len(rest) != 0 {
		t.Errorf("at the end: %v, rest %q", pids, rest)
	}
}
