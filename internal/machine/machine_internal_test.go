package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

const meminfo = "MemTotal:       16374572 kB\nMemFree:          918876 kB\nMemAvailable:   11918876 kB\nBuffers: 1 kB\n"

func TestParseMemory(t *testing.T) {
	total, available := parseMemory([]byte(meminfo))
	if total != cimeter.Some[uint64](16374572<<10) || available != cimeter.Some[uint64](11918876<<10) {
		t.Errorf("got %v, %v", total, available)
	}
	total, available = parseMemory([]byte("MemTotal: 100 kB\n")) // before Linux 3.14
	if !total.Known || available.Known {
		t.Errorf("got %v, %v: want no memory available", total, available)
	}
	if total, available = parseMemory([]byte("MemTotal: x kB\nMemAvailable: 5 kB\n")); total.Known || available.Known {
		t.Errorf("got %v, %v: want nothing", total, available)
	}
}

func TestParsePressure(t *testing.T) {
	some, full := parsePressure([]byte("some avg10=0.00 avg60=0.06 avg300=0.05 total=2196344\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"))
	if some != cimeter.Some(2.196344) || full != cimeter.Some(7e-6) {
		t.Errorf("got %v, %v", some, full)
	}
	if some, full = parsePressure([]byte("some avg10=0.00 total=12\n")); !some.Known || full.Known {
		t.Errorf("got %v, %v: want no full (Linux before 5.13)", some, full)
	}
}

const netDev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 5000000 100 0 0 0 0 0 0 5000000 100 0 0 0 0 0 0
  eth0: 1296574    1200    0    0    0     0          0         0   312340     900    0    0    0     0       0          0
docker0: 77 1 0 0 0 0 0 0 88 1 0 0 0 0 0 0
veth1a2b: 77 1 0 0 0 0 0 0 88 1 0 0 0 0 0 0
`

func TestSumNetwork(t *testing.T) {
	want := cimeter.ReceiveTransmit[uint64]{Receive: 1296574, Transmit: 312340}
	for name, device := range map[string]func(string) bool{
		"a device":   func(n string) bool { return n == "eth0" },
		"no devices": func(string) bool { return false },
	} {
		if got := sumNetwork([]byte(netDev), device); got == nil || *got != want {
			t.Errorf("%s: got %v: want %v", name, got, want)
		}
	}
	if got := sumNetwork([]byte(netDev[:strings.Index(netDev, "  eth0")]), func(string) bool { return false }); got != nil {
		t.Errorf("got %v of loopback alone: want nothing", got)
	}
}

func TestParse(t *testing.T) {
	if got := parseBoot([]byte("cpu 1 2\nbtime 1796000000\nprocesses 5\n")); !got.Equal(time.Unix(1796000000, 0)) {
		t.Errorf("booted %v", got)
	}
	if got := parseOS([]byte("NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n")); got != "Debian GNU/Linux 12 (bookworm)" {
		t.Errorf("OS %q", got)
	}
	read, written, ok := parseDisk([]byte("    8405     3072   618190     6122    11811    12063  1205216    17166        0    15252    23289        0\n"))
	if !ok || read != 618190*512 || written != 1205216*512 {
		t.Errorf("disk %d, %d, %v", read, written, ok)
	}
	if _, _, ok := parseDisk([]byte("1 2 3")); ok {
		t.Error("a short line is taken")
	}
}

// A tree of files as they are mounted; what is not there is absent.
func TestMachine(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"proc/meminfo": meminfo, "proc/sys/kernel/osrelease": "6.1.0-28-amd64\n", "proc/stat": "btime 1796000000\n", "proc/1/net/dev": netDev,
		"sys/block/sda/stat": "1 2 10 4 5 6 20 8 9 10 11\n", "sys/block/loop0/stat": "1 2 10 4 5 6 20 8 9 10 11\n", "sys/block/sda/device/x": "", "sys/class/net/eth0/device/x": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := Open(filepath.Join(dir, "proc"), filepath.Join(dir, "sys"))
	if f := m.Facts(); f.Kernel != "6.1.0-28-amd64" || f.OS != "" || f.BootedAt.IsZero() {
		t.Errorf("%+v", f)
	}
	f := m.Read()
	if f.Pressure != nil || !f.MemoryTotal.Known || f.IO == nil || *f.IO != (cimeter.ReadWrite[uint64]{Read: 5120, Write: 10240}) || f.Network == nil || f.Network.Receive != 1296574 {
		t.Errorf("%+v, disks %v, network %v", f, f.IO, f.Network)
	}
	if f := Open(dir, dir).Read(); f != (Figures{}) {
		t.Errorf("of nothing: %+v", f)
	}
}

// This machine tells what every Linux does.
func TestMachine_here(t *testing.T) {
	m := Open("/proc", "/sys")
	facts, f := m.Facts(), m.Read()
	if facts.Kernel == "" || facts.BootedAt.IsZero() || !facts.BootedAt.Before(time.Now()) {
		t.Errorf("%+v", facts)
	}
	if !f.MemoryTotal.Known || !f.MemoryAvailable.Known || f.MemoryTotal.Value < 64<<20 {
		t.Errorf("%+v", f)
	}
	t.Logf("%+v\n%+v\npressure %+v, disks %+v, network %+v", facts, f, f.Pressure, f.IO, f.Network)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(meminfo))
	f.Add([]byte(netDev))
	f.Add([]byte("some avg10=0.00 total=18446744073709551615\n"))
	f.Add([]byte("PRETTY_NAME=\"\xff\"\nbtime 5\n1 2 3 4 5 6 7 8 9 10 11"))
	f.Fuzz(func(t *testing.T, b []byte) {
		total, available := parseMemory(b)
		if available.Known && (!total.Known || available.Value > total.Value) {
			t.Errorf("%v available of %v", available, total)
		}
		parsePressure(b)
		parseBoot(b)
		parseDisk(b)
		if s := parseOS(b); len(s) > maxOS || strings.ToValidUTF8(s, "") != s {
			t.Errorf("OS %q", s)
		}
		sumNetwork(b, func(name string) bool { return name == "eth0" })
	})
}
