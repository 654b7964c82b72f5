package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of what is kept of block devices: a host has a few dozen at most, and
// a stack is a handful deep (loop over LVM over crypt over RAID over a disk).
const (
	maxDevices = 256
	maxDepth   = 8
)

// device is how one block device takes part in sums. Devices that share a disk
// below them form a stack; level is how far above the disks a device stands.
type device struct {
	id     deviceID
	name   string
	class  deviceClass
	leaves []deviceID // disks below it; itself for a disk
	level  int
	stack  int // which stack, from 0
	sum    int // index of its stack and level in devices.sums
}

type deviceClass uint8

const (
	classDisk    deviceClass = iota
	classStacked             // device mapper, md: has slaves
	classLoop                // its file's disk is not told by sysfs
	classMemory              // ram, zram: no disk at all
)

// devices tells physical devices from those stacked upon them, each looked up
// once. When a device appears that is not known, all are looked up again.
//
// The kernel charges a bio to the cgroup at each level of a stack: once on the
// dm or md device and once more on the disk below it. What a cgroup moved is
// therefore, for each stack and each of the four readings by itself, the largest
// of the sums over its levels: the disks' sum when the lower level was charged
// (dm, md, LVM), and the upper level's where the kernel does the lower level's
// work in a thread of its own and charges it to nobody (RAID 5, some dm-crypt).
// Loop devices are a level above all disks, for sysfs does not tell which one
// they are on. Each term only rises, so the total never falls. Memory devices
// (ram, zram) are not counted.
type devices struct {
	sys   string
	known []device
	sums  []levelSum
}

type levelSum struct {
	stack int
	transfer
}

// total sums ios as the type's comment says. It allocates only when a device
// appears that was not seen before.
func (d *devices) total(ios []deviceIO) transfer {
	for i := range d.sums {
		d.sums[i].transfer = transfer{}
	}
	var loops, rest transfer
	looked := false
	for i := range ios {
		io := &ios[i]
		k := d.find(io.device)
		if k < 0 && !looked && len(d.known) < maxDevices {
			// Sums so far are lost with the old table: start again.
			looked = true
			d.look(ios)
			return d.total(ios)
		}
		if k < 0 {
			rest.add(&io.transfer) // over the bound: taken for a disk
			continue
		}
		switch dev := &d.known[k]; dev.class {
		case classMemory:
		case classLoop:
			loops.add(&io.transfer)
		default:
			d.sums[dev.sum].add(&io.transfer)
		}
	}
	var total transfer
	for i := 0; i < len(d.sums); {
		stack, best := d.sums[i].stack, transfer{}
		for ; i < len(d.sums) && d.sums[i].stack == stack; i++ {
			best.raise(&d.sums[i].transfer)
		}
		total.add(&best)
	}
	total.add(&rest)
	total.raise(&loops)
	return total
}

func (d *devices) find(id deviceID) int {
	for i := range d.known {
		if d.known[i].id == id {
			return i
		}
	}
	return -1
}

// look looks up all known devices and those of ios in sysfs, and puts them into
// stacks.
func (d *devices) look(ios []deviceIO) {
	var ids []deviceID
	for i := range d.known {
		ids = append(ids, d.known[i].id)
	}
	for i := range ios {
		if !slices.Contains(ids, ios[i].device) && len(ids) < maxDevices {
			ids = append(ids, ios[i].device)
		}
	}
	d.known = d.known[:0]
	for _, id := range ids {
		d.known = append(d.known, lookDevice(d.sys, id))
	}
	d.arrange()
}

// arrange numbers the stacks and lays out their sums: by stack, then level.
func (d *devices) arrange() {
	stackOf := map[deviceID]int{} // by disk
	for i := range d.known {
		for _, leaf := range d.known[i].leaves {
			if _, ok := stackOf[leaf]; !ok {
				stackOf[leaf] = len(stackOf)
			}
		}
	}
	for changed := true; changed; { // join the stacks that one device spans
		changed = false
		for i := range d.known {
			low := -1
			for _, leaf := range d.known[i].leaves {
				if s := stackOf[leaf]; low < 0 || s < low {
					low = s
				}
			}
			for _, leaf := range d.known[i].leaves {
				if stackOf[leaf] != low {
					stackOf[leaf], changed = low, true
				}
			}
		}
	}
	order := make([]*device, 0, len(d.known))
	for i := range d.known {
		dev := &d.known[i]
		if dev.class == classDisk || dev.class == classStacked {
			dev.stack = stackOf[dev.leaves[0]]
			order = append(order, dev)
		}
	}
	slices.SortFunc(order, func(a, b *device) int {
		if a.stack != b.stack {
			return a.stack - b.stack
		}
		return a.level - b.level
	})
	d.sums = d.sums[:0]
	for i, dev := range order {
		if i == 0 || dev.stack != order[i-1].stack || dev.level != order[i-1].level {
			d.sums = append(d.sums, levelSum{stack: dev.stack})
		}
		dev.sum = len(d.sums) - 1
	}
}

// loopMajor is the major number of loop devices (Documentation/admin-guide/devices.txt).
const loopMajor = 7

// lookDevice reads what sysfs tells of a device. One that sysfs does not know
// is taken for a disk.
func lookDevice(sys string, id deviceID) device {
	dev := device{id: id, leaves: []deviceID{id}}
	dir := filepath.Join(sys, "dev/block", fmt.Sprintf("%d:%d", id>>32, id&0xffffffff))
	dev.name = deviceName(dir)
	switch {
	case id>>32 == loopMajor || strings.HasPrefix(dev.name, "loop"):
		dev.class, dev.leaves = classLoop, nil
		return dev
	case strings.HasPrefix(dev.name, "ram") || strings.HasPrefix(dev.name, "zram"):
		dev.class, dev.leaves = classMemory, nil
		return dev
	}
	if leaves, level := below(dir, 0); len(leaves) > 0 {
		dev.class, dev.leaves, dev.level = classStacked, leaves, level
	}
	return dev
}

// below returns the disks that the device in dir stands on and how many levels
// above them it is; none for a disk.
func below(dir string, depth int) (leaves []deviceID, level int) {
	slaves, err := os.ReadDir(filepath.Join(dir, "slaves"))
	if err != nil || depth >= maxDepth {
		return nil, 0
	}
	for _, s := range slaves {
		slave := dir + "/slaves/" + s.Name()
		if exists(slave + "/partition") {
			// Through the link: the folder of a partition is in its disk's.
			slave += "/.."
		}
		under, l := below(slave, depth+1)
		level = max(level, l+1)
		if len(under) > 0 {
			leaves = append(leaves, under...)
			continue
		}
		b, err := os.ReadFile(slave + "/dev")
		if err != nil {
			continue
		}
		if id, ok := parseDevice(trim(b)); ok {
			leaves = append(leaves, id)
		}
	}
	slices.Sort(leaves)
	return slices.Compact(leaves), level
}

// deviceName returns DEVNAME of a device's uevent file, "" without.
//
//	MAJOR=254
//	MINOR=0
//	DEVNAME=vda
//	DEVTYPE=disk
func deviceName(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "uevent"))
	if err != nil {
		return ""
	}
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		if name, ok := bytes.CutPrefix(l, []byte("DEVNAME=")); ok {
			return string(name)
		}
	}
	return ""
}
