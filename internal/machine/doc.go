// Package machine reads what the kernel tells of a whole machine beside its
// control groups: what it is, its memory, how long its tasks waited (PSI), and
// what its disks and networks moved.
//
// It owns the paths and parsers of those files under given roots. It never
// schedules, retries or logs; a file that is not there, or not understood,
// leaves its reading absent. The counters only rise while the machine runs.
//
// Start with [Open], then [Machine.Facts] once and [Machine.Read] each time. It
// keeps no state and no descriptors: all methods may be called by many
// goroutines at once.
package machine

import (
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/cimeter/cimeter"
)

// Machine is the files of one machine.
type Machine struct{ proc, sys string }

// Open returns the machine whose procfs and sysfs are mounted there.
func Open(proc, sys string) *Machine { return &Machine{proc: proc, sys: sys} }

// Facts do not change while the machine runs.
type Facts struct {
	OS       string    // as os-release has it: Debian GNU/Linux 12 (bookworm); "" when it cannot be read
	Kernel   string    // release
	BootedAt time.Time // zero when not known
}

// Figures are what a machine shows now.
type Figures struct {
	MemoryTotal     cimeter.Opt[uint64] // bytes
	MemoryAvailable cimeter.Opt[uint64] // bytes that can be had without swapping; since Linux 3.14
	Pressure        *cimeter.PressureSeconds
	IO              *cimeter.ReadWrite[uint64]       // bytes of all disks since they came
	Network         *cimeter.ReceiveTransmit[uint64] // bytes of all interfaces to the outside
}

// Facts reads what does not change.
func (m *Machine) Facts() Facts {
	var f Facts
	f.Kernel = string(oneLine(m.read(m.proc, "sys/kernel/osrelease")))
	f.BootedAt = parseBoot(m.read(m.proc, "stat"))
	// That of the first process: an agent in a container has another one.
	f.OS = parseOS(m.read(m.proc, "1/root/etc/os-release"))
	return f
}

// Read reads what changes.
func (m *Machine) Read() Figures {
	var f Figures
	f.MemoryTotal, f.MemoryAvailable = parseMemory(m.read(m.proc, "meminfo"))
	var p cimeter.PressureSeconds
	p.CPUSome, p.CPUFull = parsePressure(m.read(m.proc, "pressure/cpu"))
	p.CPUFull = cimeter.Opt[float64]{} // of a whole machine it is always 0 and says nothing
	p.MemorySome, p.MemoryFull = parsePressure(m.read(m.proc, "pressure/memory"))
	p.IOSome, p.IOFull = parsePressure(m.read(m.proc, "pressure/io"))
	if p != (cimeter.PressureSeconds{}) {
		f.Pressure = &p
	}
	f.IO = m.disks()
	f.Network = m.network()
	return f
}

// maxDevices bounds the disks and interfaces that are looked at.
const maxDevices = 4096

// disks adds up what has a device below it: not loops, partitions and volumes
// that would count the same bytes again.
func (m *Machine) disks() *cimeter.ReadWrite[uint64] {
	names, err := list(filepath.Join(m.sys, "block"))
	if err != nil {
		return nil
	}
	var sum cimeter.ReadWrite[uint64]
	found := false
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(m.sys, "block", name, "device")); err != nil {
			continue
		}
		if read, written, ok := parseDisk(m.read(m.sys, "block/"+name+"/stat")); ok {
			sum.Read, sum.Write, found = sum.Read+read, sum.Write+written, true
		}
	}
	if !found {
		return nil
	}
	return &sum
}

// network adds up the interfaces of the first process's network, which is the
// machine's, that are devices; where none is, as in a virtual machine without
// them, those that no container's bridge makes.
func (m *Machine) network() *cimeter.ReceiveTransmit[uint64] {
	device := func(name string) bool {
		_, err := os.Stat(filepath.Join(m.sys, "class/net", name, "device"))
		return err == nil
	}
	return sumNetwork(m.read(m.proc, "1/net/dev"), device)
}

func list(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(maxDevices)
}

// maxFile bounds a file: /proc/net/dev of a machine with 4,000 interfaces has
// half of it.
const maxFile = 1 << 20

// read returns a file's content, nil when it cannot be read.
func (m *Machine) read(root, name string) []byte {
	f, err := os.Open(filepath.Join(root, name))
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil
	}
	return b
}
