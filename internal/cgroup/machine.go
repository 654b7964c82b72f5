package cgroup

import (
	"bytes"
	"fmt"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// MachineCPU returns the CPU time in nanoseconds that the machine spent since
// it was started, all cores together: that of the root cgroup where it tells
// it (cpuacct.usage; cpu.stat of v2 since Linux 5.8), else of /proc/stat.
func (h *Host) MachineCPU() (total uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.of("cpuacct"); i >= 0 && !h.hierarchies[i].v2 {
		if v, err := h.machineCPU(i, "/cpuacct.usage", parseNumber); err == nil {
			return v, nil
		}
	} else if h.v2 >= 0 {
		if v, err := h.machineCPU(h.v2, "/cpu.stat", parseUsage); err == nil {
			return v, nil
		}
	}
	path := filepath.Join(h.proc, "stat")
	b, errno := h.readPath(path)
	if errno != 0 {
		return 0, fmt.Errorf("read CPU time of the machine: %s: %w", path, errno)
	}
	if total, err = parseStat(b); err != nil {
		return 0, fmt.Errorf("parse %s: %w", path, err)
	}
	return total, nil
}

// machineCPU reads a file of the root of a hierarchy through a descriptor that
// is kept.
func (h *Host) machineCPU(hierarchy int, name string, parse func([]byte) (uint64, error)) (uint64, error) {
	if h.machine < 0 {
		fd, starved, errno := h.openFile(unix.AT_FDCWD, h.hierarchies[hierarchy].dir+name, syscall.O_RDONLY)
		if errno != 0 {
			return 0, errno
		}
		h.machine = fd
		if starved {
			h.takeSpare()
		}
	}
	b, errno := h.readFD(h.machine, true)
	if errno != 0 {
		return 0, errno
	}
	return parse(b)
}

func parseUsage(b []byte) (uint64, error) {
	st, err := parseCPUStat(b)
	if err == nil && !st.usage.known {
		err = malformed("cpu.stat", nil, "usage_usec")
	}
	return st.usage.value, err
}

// parseStat returns the busy time of the first line of /proc/stat in
// nanoseconds: user, nice, system, irq and softirq. Guest time is in user and
// nice already; stolen time was not spent here.
//
//	cpu  4400 0 2373 140041 376 0 43 10 0 0
func parseStat(b []byte) (uint64, error) {
	l, _ := line(b)
	name, rest := word(l)
	if string(name) != "cpu" {
		return 0, malformed("stat", l, "a line cpu")
	}
	var busy uint64
	for i := range 7 {
		var w []byte
		w, rest = word(rest)
		v, ok := scaled(w, nanosPerTick)
		if !ok {
			return 0, malformed("stat", l, "seven numbers or more")
		}
		if i != 3 && i != 4 { // idle, iowait
			busy += v
		}
	}
	return busy, nil
}

// MachineCores returns how many CPUs are online, 0 when neither sysfs nor
// /proc/stat tells.
func (h *Host) MachineCores() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b, errno := h.readPath(filepath.Join(h.sys, "devices/system/cpu/online")); errno == 0 {
		if n, err := parseCPUList(b); err == nil {
			return float64(n)
		}
	}
	b, errno := h.readPath(filepath.Join(h.proc, "stat"))
	if errno != 0 {
		return 0
	}
	n := 0
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		if rest, ok := bytes.CutPrefix(l, []byte("cpu")); ok && len(rest) > 0 && rest[0] != ' ' {
			n++
		}
	}
	return float64(n)
}

// parseCPUList returns how many CPUs a list of ranges names.
//
//	0-3,8
func parseCPUList(b []byte) (int, error) {
	n := 0
	for r := range bytes.SplitSeq(trim(b), []byte(",")) {
		from, to, isRange := bytes.Cut(r, []byte("-"))
		lo, ok := number(from)
		hi := lo
		if ok && isRange {
			hi, ok = number(to)
		}
		if !ok || hi < lo || hi >= maxCPUs {
			return 0, malformed("list of CPUs", b, "ranges such as 0-3,8")
		}
		n += int(hi - lo + 1)
	}
	return n, nil
}

// maxCPUs is more than any kernel is built for (NR_CPUS is at most 8192).
const maxCPUs = 1 << 16

// MachineMemory returns the machine's memory in bytes.
func (h *Host) MachineMemory() (bytes uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.machineMemory()
}

func (h *Host) machineMemory() (uint64, error) {
	path := filepath.Join(h.proc, "meminfo")
	b, errno := h.readPath(path)
	if errno != 0 {
		return 0, fmt.Errorf("read memory of the machine: %s: %w", path, errno)
	}
	v, err := parseMeminfo(b)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", path, err)
	}
	return v, nil
}
