package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// sysfs makes a folder of block devices: "253:0 dm-0 8:0" is dm-0 upon 8:0.
func sysfs(t *testing.T, devices ...string) string {
	t.Helper()
	sys := t.TempDir()
	dirs := map[string]string{}
	for _, d := range devices {
		var id, name, under, under2 string
		_, _ = fmt.Sscan(d, &id, &name, &under, &under2)
		dir := filepath.Join(sys, "devices", name)
		dirs[id] = dir
		for _, p := range []string{dir + "/slaves", sys + "/dev/block"} {
			if err := os.MkdirAll(p, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for file, content := range map[string]string{"dev": id + "\n", "uevent": "DEVNAME=" + name + "\nDEVTYPE=disk\n"} {
			if err := os.WriteFile(dir+"/"+file, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(dir, sys+"/dev/block/"+id); err != nil {
			t.Fatal(err)
		}
		for _, u := range []string{under, under2} {
			if u == "" {
				continue
			}
			if err := os.Symlink(dirs[u], dir+"/slaves/"+filepath.Base(dirs[u])); err != nil {
				t.Fatal(err)
			}
		}
	}
	return sys
}

func TestDevices_Total(t *testing.T) {
	sys := sysfs(t, "8:0 sda", "8:16 sdb", "253:0 dm-0 8:0", "253:1 dm-1 8:0", "253:2 dm-2 253:0", "9:0 md0 8:0 8:16",
		"7:0 loop0", "251:0 zram0", "1:0 ram0")
	part := sys + "/devices/sda/sda1"
	if err := os.MkdirAll(part, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{"dev": "8:1\n", "partition": "1\n"} {
		if err := os.WriteFile(part+"/"+file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	on := sys + "/devices/dm-3/slaves"
	if err := os.MkdirAll(on, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(part, on+"/sda1"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(on), sys+"/dev/block/253:3"); err != nil {
		t.Fatal(err)
	}
	f := func(name, stat string, want transfer) {
		t.Helper()
		ios, err := parseIOStat([]byte(stat), nil)
		if err != nil {
			t.Fatal(err)
		}
		d := devices{sys: sys}
		if got := d.total(ios); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		if got := d.total(ios); got != want {
			t.Errorf("%s, again: %+v, want %+v", name, got, want)
		}
	}
	f("nothing", "", transfer{})
	// google/cadvisor#2881: beyond what 32 bits, or 24 of a float32, hold.
	f("terabytes", "8:0 rbytes=598016 wbytes=227002702848000 rios=146 wios=124342581 dbytes=0 dios=0\n8:16 wbytes=896532480 wios=855\n",
		transfer{598016, 227003599380480, 146, 124343436})
	f("two disks", "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n8:16 rbytes=10 wbytes=20 rios=30 wios=40\n", transfer{11, 22, 33, 44})
	f("dm upon a disk", "8:0 rbytes=100 wbytes=9 rios=3 wios=1\n253:0 rbytes=100 wbytes=9 rios=3 wios=1\n", transfer{100, 9, 3, 1})
	f("the disk has IO past dm", "253:0 wbytes=100 wios=1\n8:0 wbytes=150 wios=3\n", transfer{0, 150, 0, 3})
	f("two volumes and loop", "253:0 wbytes=100\n253:1 wbytes=50\n8:0 wbytes=150\n7:0 wbytes=40\n", transfer{0, 150, 0, 0})
	f("dm upon dm", "253:2 wbytes=100\n253:0 wbytes=100\n8:0 wbytes=100\n", transfer{0, 100, 0, 0})
	f("dm upon a partition", "253:3 wbytes=100\n8:0 wbytes=100\n", transfer{0, 100, 0, 0})
	f("RAID 1 writes twice", "9:0 wbytes=100\n8:0 wbytes=100\n8:16 wbytes=100\n", transfer{0, 200, 0, 0})
	f("RAID 5 writes in a thread of its own", "9:0 rbytes=7 wbytes=100\n8:0 rbytes=7\n", transfer{7, 100, 0, 0})
	f("loop upon a disk", "7:0 rbytes=5 wbytes=100\n8:0 rbytes=5 wbytes=100\n", transfer{5, 100, 0, 0})
	f("loop alone", "7:0 wbytes=100\n", transfer{0, 100, 0, 0})
	f("memory", "251:0 wbytes=100\n1:0 wbytes=100\n8:0 wbytes=1\n", transfer{0, 1, 0, 0})
	f("unknown to sysfs", "66:0 wbytes=5\n8:0 wbytes=1\n", transfer{0, 6, 0, 0})
}

// A disk and a stack apart from it: what one of them lost to a kernel thread
// is not hidden by the other's bytes.
func TestDevices_Stacks(t *testing.T) {
	d := devices{sys: sysfs(t, "8:0 sda", "8:16 sdb", "253:0 dm-0 8:16")}
	ios := []deviceIO{{dev(8, 0), transfer{writeBytes: 100}}, {dev(253, 0), transfer{writeBytes: 50}}}
	if got := d.total(ios); got.writeBytes != 150 {
		t.Errorf("%d bytes, want 150", got.writeBytes)
	}
	// sdb is seen only later.
	ios = append(ios, deviceIO{dev(8, 16), transfer{writeBytes: 60}})
	if got := d.total(ios); got.writeBytes != 160 {
		t.Errorf("%d bytes, want 160", got.writeBytes)
	}
	if n := testing.AllocsPerRun(100, func() { d.total(ios) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// Two stacks that a third device joins are one.
func TestDevices_Joined(t *testing.T) {
	d := devices{sys: sysfs(t, "8:1 a", "8:2 b", "8:3 c", "8:4 d", "9:0 md0 8:1 8:2", "9:1 md1 8:3 8:4", "9:2 md2 8:2 8:4")}
	ios := []deviceIO{
		{dev(9, 0), transfer{}}, {dev(9, 1), transfer{writeBytes: 100}}, {dev(9, 2), transfer{}},
		{dev(8, 3), transfer{writeBytes: 60}}, {dev(8, 4), transfer{writeBytes: 40}},
	}
	if got := d.total(ios); got.writeBytes != 100 {
		t.Errorf("%d bytes, want 100", got.writeBytes)
	}
}

func TestDevices_Bound(t *testing.T) {
	d := devices{sys: t.TempDir()}
	var ios []deviceIO
	for i := range uint64(maxDevices + 10) {
		ios = append(ios, deviceIO{dev(8, i), transfer{writeBytes: 1}})
	}
	if got := d.total(ios); got.writeBytes != maxDevices+10 || len(d.known) != maxDevices {
		t.Errorf("%d bytes of %d known devices", got.writeBytes, len(d.known))
	}
}
