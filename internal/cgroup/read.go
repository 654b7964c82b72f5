package cgroup

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// Read reads g into s: with Fast what is cheap, with Full all there is. It sets
// what it read and leaves the rest of s as it is, so that the slow readings of
// an earlier Full stay; the working set is computed anew from the memory in use
// and the inactive file pages of the latest Full read. It sets no network
// counter and not s.At.
//
// The error wraps cimeter.ErrGone when the cgroup is removed: what could still
// be read is in s, the rest keeps its last value. A file that cannot be read or
// does not hold what it should is no error here: its readings stay as they are
// and Host.Errors counts it once.
func (g *Group) Read(s *cimeter.Sample, t Tier) error {
	h := g.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.gone {
		return fmt.Errorf("read cgroup %s: %w", g.path, cimeter.ErrGone)
	}
	lost := false
	g.idle = false // until the CPU time, which comes first, tells
	for i := range h.files {
		f := &h.files[i]
		if f.tier > t {
			break // files of the tier Fast come first
		}
		fd := g.fds[i]
		if fd == absent || fd == unsupported {
			continue
		}
		switch f.kind {
		case kindProcs, kindMemoryLocal:
			continue
		case kindMemoryCurrent:
			// Memory is taken by those who run. What the kernel takes back from
			// those who do not, the next Full shows.
			if t == Fast && g.idle {
				continue
			}
		case kindBlkioBytes, kindBlkioOps:
			// A file that counts nothing is looked at with Full only, to see
			// whether it has begun to.
			if t == Fast && !h.ioCounts {
				continue
			}
			// v1 counts what processes themselves send to a device, when they do:
			// where none has run, and what came late has come, there is nothing new.
			if t == Fast && g.idle && !g.ioMoved {
				continue
			}
			// The kernel counts bytes and operations in one go (block/blk-throttle.h,
			// blk_throtl_bio): where no byte moved, no operation with bytes did. One
			// without, a flush, is seen by the next Full.
			if t == Fast && f.kind == kindBlkioOps && !g.ioMoved {
				continue
			}
		case kindCPUPressure, kindMemoryPressure, kindIOPressure:
			if !g.livesInV2() {
				continue
			}
		}
		var b []byte
		var errno syscall.Errno
		if fd >= 0 {
			b, errno = h.readFD(int(fd), f.yields)
		} else {
			b, errno = g.readDeferred(i)
		}
		switch {
		case errno == 0:
			if err := g.set(s, f.kind, b); err != nil {
				g.fault(i, err)
			} else {
				g.bad &^= 1 << i
			}
		case errno == syscall.ENODEV:
			lost = true
			if g.removed(f.hierarchy) {
				continue
			}
			g.drop(i, absent) // only the file: its controller was switched off
		case errno == syscall.ENOENT:
			lost = true
			if !g.removed(f.hierarchy) {
				g.drop(i, absent)
			}
		case errno == syscall.EOPNOTSUPP:
			f.unsupported = f.kind.pressure()
			g.drop(i, unsupported)
		default:
			g.fault(i, errno)
		}
	}
	if lost && g.anyRemoved() {
		g.gone = true
		return fmt.Errorf("read cgroup %s: %w", g.path, cimeter.ErrGone)
	}
	return nil
}

// fault notes that file i was bad, once until it is good again.
func (g *Group) fault(i int, err error) {
	if g.bad&(1<<i) == 0 {
		g.bad |= 1 << i
		g.h.count(fmt.Errorf("read %s of cgroup %s: %w", g.h.files[i].name, g.path, err))
	}
}

// readDeferred reads file i by open, read and close, and keeps it open when
// descriptors are free again.
func (g *Group) readDeferred(i int) ([]byte, syscall.Errno) {
	h, f := g.h, &g.h.files[i]
	p := g.folder(f.hierarchy) + "/" + f.name
	if h.open < h.limit {
		fd, starved, errno := h.openFile(unix.AT_FDCWD, p, syscall.O_RDONLY)
		switch {
		case errno != 0:
		case starved:
			_ = syscall.Close(fd)
			h.takeSpare()
		case !g.statFolder(f.hierarchy):
			_ = syscall.Close(fd)
			return nil, syscall.ENOENT
		default:
			g.keep(i, fd)
			return h.readFD(fd, f.yields)
		}
	}
	b, errno := h.readPath(p)
	if errno == 0 {
		h.degraded++
		if !g.statFolder(f.hierarchy) {
			return nil, syscall.ENOENT // made again under the same name
		}
	}
	return b, errno
}

// removed reports whether g's folder in hierarchy hi is no more, or another.
func (g *Group) removed(hi int) bool { return g.inodes[hi] != 0 && !g.statFolder(hi) }

// anyRemoved reports whether a folder of g in a metered hierarchy is no more: a
// runtime removes them one after the other, when all processes are gone.
func (g *Group) anyRemoved() bool {
	for i := range g.h.hierarchies {
		if g.h.meters(i) && g.removed(i) {
			return true
		}
	}
	return false
}

// livesInV2 reports whether the pressure files of g say something: on a hybrid
// host a group may have a folder in the v2 hierarchy that its processes are not
// in. There, too, cpu.stat counts CPU time as soon as a process has run; where it
// has not after some readings, none will.
func (g *Group) livesInV2() bool {
	if g.lives || g.h.layout == "v2" {
		return true
	}
	if g.probes == maxProbes {
		return false
	}
	g.probes++
	b, errno := g.h.readPath(g.folder(g.h.v2) + "/cpu.stat")
	if errno == 0 {
		st, err := parseCPUStat(b)
		g.lives = err == nil && st.usage.value > 0
	}
	return g.lives
}

// set parses b as a file of kind k and puts its readings into s. Nothing is set
// when it is malformed.
func (g *Group) set(s *cimeter.Sample, k kind, b []byte) error {
	h := g.h
	switch k {
	case kindCPUUsage:
		v, err := parseNumber(b)
		if err != nil {
			return err
		}
		s.SetCounter(cimeter.CPUTotal, v)
		g.setModes(s, v)
		g.idle, g.cpu = g.cpu == v, v
	case kindCPUStat, kindThrottle:
		st, err := parseCPUStat(b)
		if err != nil {
			return err
		}
		if k == kindCPUStat {
			counter(s, cimeter.CPUTotal, st.usage)
			counter(s, cimeter.CPUUser, st.user)
			counter(s, cimeter.CPUSystem, st.system)
			g.idle, g.cpu = st.usage.known && g.cpu == st.usage.value, st.usage.value
		}
		counter(s, cimeter.CPUPeriods, st.periods)
		counter(s, cimeter.CPUThrottledPeriods, st.throttledPeriods)
		counter(s, cimeter.CPUThrottled, st.throttled)
	case kindCPUAcctStat:
		user, system, err := parseCPUAcctStat(b)
		if err != nil {
			return err
		}
		g.ticks, g.hasTicks = modes{user: user, system: system}, true
		if total, ok := s.Counter(cimeter.CPUTotal); ok {
			g.setModes(s, total)
		} else {
			s.SetCounter(cimeter.CPUUser, user)
			s.SetCounter(cimeter.CPUSystem, system)
		}
	case kindMemoryCurrent:
		v, err := parseNumber(b)
		if err != nil {
			return err
		}
		s.SetGauge(cimeter.MemoryCurrent, v)
		g.setWorkingSet(s)
	case kindMemoryStat, kindMemoryStatV1:
		st, err := parseMemoryStat(b, k == kindMemoryStat)
		if err != nil {
			return err
		}
		gauge(s, cimeter.MemoryAnon, st.anon)
		gauge(s, cimeter.MemoryFile, st.file)
		gauge(s, cimeter.MemoryKernel, st.kernel)
		gauge(s, cimeter.MemorySwap, st.swap)
		if st.inactiveFile.known {
			g.inactive, g.hasInactive = st.inactiveFile.value, true
		}
		g.setWorkingSet(s)
	case kindMemoryPeak:
		return setGauge(s, cimeter.MemoryPeak, b)
	case kindMemoryKernel:
		return setGauge(s, cimeter.MemoryKernel, b)
	case kindMemorySwap:
		return setGauge(s, cimeter.MemorySwap, b)
	case kindPids:
		return setGauge(s, cimeter.Processes, b)
	case kindIOStat:
		var err error
		if h.ios, err = parseIOStat(b, h.ios[:0]); err != nil {
			return err
		}
		t := h.devices.total(h.ios)
		setBytes(s, &t)
		setOperations(s, &t)
	case kindBlkioBytes, kindBlkioOps:
		var err error
		if h.ios, err = parseBlkio(b, k == kindBlkioOps, h.ios[:0]); err != nil {
			return err
		}
		if len(h.ios) > 0 {
			h.ioCounts = true
		}
		if !h.ioCounts {
			return nil // 0 would be a lie
		}
		t := h.devices.total(h.ios)
		if k == kindBlkioOps {
			setOperations(s, &t)
			return nil
		}
		g.ioMoved = g.ioBytes != t.readBytes+t.writeBytes
		g.ioBytes = t.readBytes + t.writeBytes
		setBytes(s, &t)
	case kindOOMControl:
		v, known, err := parseKey(b, "oom_kill")
		if err != nil {
			return err
		}
		if known { // v1 counts in the group itself only
			s.SetCounter(cimeter.OOMKills, v)
		}
	case kindMemoryEvents:
		return g.setOOM(s, b)
	case kindCPUPressure:
		return setPressure(s, b, cimeter.CPUSomePressure, cimeter.CPUFullPressure)
	case kindMemoryPressure:
		return setPressure(s, b, cimeter.MemorySomePressure, cimeter.MemoryFullPressure)
	case kindIOPressure:
		return setPressure(s, b, cimeter.IOSomePressure, cimeter.IOFullPressure)
	}
	return nil
}

// setOOM takes memory.events, which counts a group and all below it, apart by
// memory.events.local, which counts the group alone. The latter is read only
// when there was a kill. Without it (before Linux 5.2) all kills are taken for
// the group's own, and those below it are not known.
func (g *Group) setOOM(s *cimeter.Sample, events []byte) error {
	all, known, err := parseKey(events, "oom_kill")
	if err == nil && !known {
		err = malformed("memory.events", events, "oom_kill")
	}
	if err != nil {
		return err
	}
	for i := range g.h.files {
		f := &g.h.files[i]
		fd := g.fds[i]
		if f.kind != kindMemoryLocal || fd == absent || fd == unsupported {
			continue
		}
		if all == 0 {
			s.SetCounter(cimeter.OOMKills, 0)
			s.SetCounter(cimeter.OOMKillsNested, 0)
			return nil
		}
		var b []byte
		var errno syscall.Errno
		if fd >= 0 {
			b, errno = g.h.readFD(int(fd), f.yields)
		} else {
			b, errno = g.readDeferred(i)
		}
		if errno != 0 {
			return fmt.Errorf("%s: %w", f.name, errno)
		}
		own, known, err := parseKey(b, "oom_kill")
		if err != nil {
			return err
		}
		if known {
			s.SetCounter(cimeter.OOMKills, own)
			s.SetCounter(cimeter.OOMKillsNested, all-min(own, all))
			return nil
		}
	}
	s.SetCounter(cimeter.OOMKills, all)
	return nil
}

func (g *Group) setWorkingSet(s *cimeter.Sample) {
	if current, ok := s.Gauge(cimeter.MemoryCurrent); ok && g.hasInactive {
		s.SetGauge(cimeter.MemoryWorkingSet, current-min(g.inactive, current))
	}
}

func counter(s *cimeter.Sample, c cimeter.Counter, r reading) {
	if r.known {
		s.SetCounter(c, r.value)
	}
}

func gauge(s *cimeter.Sample, g cimeter.Gauge, r reading) {
	if r.known {
		s.SetGauge(g, r.value)
	}
}

func setGauge(s *cimeter.Sample, g cimeter.Gauge, b []byte) error {
	v, err := parseNumber(b)
	if err == nil {
		s.SetGauge(g, v)
	}
	return err
}

func setPressure(s *cimeter.Sample, b []byte, some, full cimeter.Counter) error {
	so, fu, err := parsePressure(b)
	if err == nil {
		counter(s, some, so)
		counter(s, full, fu)
	}
	return err
}

func setBytes(s *cimeter.Sample, t *transfer) {
	s.SetCounter(cimeter.IOReadBytes, t.readBytes)
	s.SetCounter(cimeter.IOWriteBytes, t.writeBytes)
}

func setOperations(s *cimeter.Sample, t *transfer) {
	s.SetCounter(cimeter.IOReadOperations, t.reads)
	s.SetCounter(cimeter.IOWriteOperations, t.writes)
}
