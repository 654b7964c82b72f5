package cgroup

import (
	"bytes"
	"path"

	"github.com/cimeter/cimeter"
)

// unlimitedBytes: memory limits from here on are no limits. Kernels spell
// "none" as 2^63-1 rounded down to a page, 2^63-1 or 2^64-1.
const unlimitedBytes = 1 << 60

// Limits returns what holds g back: the tightest CPU quota and the tightest
// memory limit of it and its ancestors, and which of them sets the latter. A
// limit that cannot bind (no number, 0, or no less than the machine's memory)
// is none.
func (g *Group) Limits() cimeter.Limits {
	h := g.h
	h.mu.Lock()
	defer h.mu.Unlock()
	var l cimeter.Limits
	machine, err := h.machineMemory()
	if err != nil {
		machine = unlimitedBytes
	}
	cpu, memory := h.of("cpu"), h.of("memory")
	for p := g.path; ; p = path.Dir(p) {
		at := Group{h: h, path: p}
		if cpu >= 0 {
			if cores, ok := h.quota(at.folder(cpu), h.hierarchies[cpu].v2); ok && (!l.CPUCores.Known || cores < l.CPUCores.Value) {
				l.CPUCores = cimeter.Some(cores)
			}
		}
		if memory >= 0 {
			name := "/memory.limit_in_bytes"
			if h.hierarchies[memory].v2 {
				name = "/memory.max"
			}
			b, errno := h.readPath(at.folder(memory) + name)
			if v, ok := parseLimit(b, machine); errno == 0 && ok && (!l.MemoryBytes.Known || v < l.MemoryBytes.Value) {
				l.MemoryBytes, l.MemorySetBy = cimeter.Some(v), p
			}
		}
		if p == "/" {
			return l
		}
	}
}

// quota returns the CPU cores that a folder's quota allows, false without one.
func (h *Host) quota(dir string, v2 bool) (float64, bool) {
	if v2 {
		b, errno := h.readPath(dir + "/cpu.max")
		if errno != 0 {
			return 0, false
		}
		return parseCPUMax(b)
	}
	b, errno := h.readPath(dir + "/cpu.cfs_quota_us")
	if errno != 0 {
		return 0, false
	}
	quota, ok := number(trim(b)) // -1 is none
	if b, errno = h.readPath(dir + "/cpu.cfs_period_us"); errno != 0 || !ok {
		return 0, false
	}
	period, ok := number(trim(b))
	return float64(quota) / float64(period), ok && quota > 0 && period > 0
}

// parseCPUMax parses cpu.max: quota and period in microseconds. The quota may
// be max, which is none.
//
//	150000 100000
func parseCPUMax(b []byte) (cores float64, ok bool) {
	q, p := word(trim(b))
	quota, ok := number(q)
	if !ok || quota == 0 {
		return 0, false
	}
	period, ok := number(p)
	return float64(quota) / float64(period), ok && period > 0
}

// parseLimit parses memory.max and memory.limit_in_bytes. ok is false for all
// that is no limit on a machine of so many bytes: max, -1, numbers near 2^63 or
// 2^64, 0, nothing, garbage.
//
//	4294967296
func parseLimit(b []byte, machine uint64) (bytes uint64, ok bool) {
	v, ok := number(trim(b))
	if !ok || v == 0 || v >= unlimitedBytes || v >= machine {
		return 0, false
	}
	return v, true
}

// parseMeminfo returns MemTotal of /proc/meminfo in bytes. Lines before it may
// be of another form (Linux before 2.6 and copies of it).
//
//	MemTotal:       24684084 kB
func parseMeminfo(b []byte) (uint64, error) {
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		rest, ok := bytes.CutPrefix(l, []byte("MemTotal:"))
		if !ok {
			continue
		}
		w, unit := word(rest)
		v, ok := scaled(w, 1024)
		if !ok || string(trim(unit)) != "kB" {
			return 0, malformed("meminfo", l, "MemTotal in kB")
		}
		return v, nil
	}
	return 0, malformed("meminfo", nil, "MemTotal")
}
