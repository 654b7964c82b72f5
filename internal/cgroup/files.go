package cgroup

import "path/filepath"

// kind is how the content of a file is parsed and which readings it sets.
type kind uint8

const (
	kindCPUUsage       kind = iota // v1 cpuacct.usage
	kindCPUStat                    // v2 cpu.stat
	kindMemoryCurrent              // memory.current, memory.usage_in_bytes
	kindMemoryPeak                 // memory.peak (Linux 5.19), memory.max_usage_in_bytes
	kindIOStat                     // v2 io.stat
	kindBlkioBytes                 // v1 blkio.*.io_service_bytes
	kindBlkioOps                   // v1 blkio.*.io_serviced
	kindCPUAcctStat                // v1 cpuacct.stat
	kindThrottle                   // v1 cpu.stat; v2 cpu.stat where cpuacct is on v1
	kindMemoryStat                 // v2 memory.stat
	kindMemoryStatV1               // v1 memory.stat
	kindMemoryKernel               // v1 memory.kmem.usage_in_bytes
	kindMemorySwap                 // v2 memory.swap.current
	kindOOMControl                 // v1 memory.oom_control
	kindMemoryEvents               // v2 memory.events
	kindMemoryLocal                // v2 memory.events.local: read only when memory.events tells of a kill
	kindPids                       // pids.current
	kindCPUPressure                // cpu.pressure
	kindMemoryPressure             // memory.pressure
	kindIOPressure                 // io.pressure
	kindProcs                      // cgroup.procs: read by Procs only
)

func (k kind) pressure() bool { return k >= kindCPUPressure && k <= kindIOPressure }

// Tier says how much a Read reads.
type Tier uint8

const (
	// Fast reads what is cheap and shapes a build over time: CPU time, memory
	// current and peak, block IO.
	Fast Tier = iota
	// Full reads all there is.
	Full
)

// file is one file that is read in every group.
type file struct {
	name      string
	kind      kind
	tier      Tier
	hierarchy int // index in Host.hierarchies
	// yields says that the kernel may take long to render the file (it flushes
	// statistics of all CPUs): the scheduler is told of the call.
	yields bool
	// unsupported is set once the kernel has said that it will never fill the
	// file (pressure files of a kernel that was started with psi=0).
	unsupported bool
}

// maxFiles bounds the files of a group; the largest set, of a hybrid host, is
// 15.
const maxFiles = 18

// chooseFiles returns the files to read, those of the tier Fast first.
func (h *Host) chooseFiles() []file {
	var fs []file
	add := func(t Tier, hierarchy int, k kind, name string) {
		fs = append(fs, file{name: name, kind: k, tier: t, hierarchy: hierarchy, yields: t == Full})
	}
	memory, io, pids := h.of("memory"), h.of("blkio"), h.of("pids")
	cpu, cpuacct := h.of("cpu"), h.of("cpuacct")

	if cpuacct >= 0 {
		add(Fast, cpuacct, kindCPUUsage, "cpuacct.usage")
	} else if h.v2 >= 0 {
		add(Fast, h.v2, kindCPUStat, "cpu.stat") // there whatever controllers are enabled
	}
	if memory >= 0 && h.hierarchies[memory].v2 {
		add(Fast, memory, kindMemoryCurrent, "memory.current")
	} else if memory >= 0 {
		add(Fast, memory, kindMemoryCurrent, "memory.usage_in_bytes")
	}
	if io >= 0 && h.hierarchies[io].v2 {
		add(Fast, io, kindIOStat, "io.stat")
	} else if io >= 0 {
		bytes, operations := h.blkioNames()
		add(Fast, io, kindBlkioBytes, bytes)
		add(Fast, io, kindBlkioOps, operations)
	}

	if cpuacct >= 0 {
		add(Full, cpuacct, kindCPUAcctStat, "cpuacct.stat")
		if cpu >= 0 {
			add(Full, cpu, kindThrottle, "cpu.stat")
		}
	} else if cpu >= 0 && !h.hierarchies[cpu].v2 {
		add(Full, cpu, kindThrottle, "cpu.stat")
	}
	if memory >= 0 && h.hierarchies[memory].v2 {
		add(Full, memory, kindMemoryPeak, "memory.peak") // it only rises: once at the end is enough
		add(Full, memory, kindMemoryStat, "memory.stat")
		add(Full, memory, kindMemorySwap, "memory.swap.current")
		add(Full, memory, kindMemoryEvents, "memory.events")
		add(Full, memory, kindMemoryLocal, "memory.events.local")
	} else if memory >= 0 {
		add(Full, memory, kindMemoryPeak, "memory.max_usage_in_bytes")
		add(Full, memory, kindMemoryStatV1, "memory.stat")
		add(Full, memory, kindMemoryKernel, "memory.kmem.usage_in_bytes")
		add(Full, memory, kindOOMControl, "memory.oom_control")
	}
	if pids >= 0 {
		add(Full, pids, kindPids, "pids.current")
	}
	if h.v2 >= 0 {
		add(Full, h.v2, kindCPUPressure, "cpu.pressure")
		add(Full, h.v2, kindMemoryPressure, "memory.pressure")
		add(Full, h.v2, kindIOPressure, "io.pressure")
	}
	add(Full, h.procs, kindProcs, "cgroup.procs")
	return fs
}

// blkioNames returns the files of v1 block IO: those of the throttling policy,
// which counts whatever the IO scheduler, with cgroups below counted in where
// the kernel has it (since Linux 5.1); those of BFQ when only they count.
func (h *Host) blkioNames() (bytes, operations string) {
	dir := h.hierarchies[h.of("blkio")].dir
	bytes, operations = "blkio.throttle.io_service_bytes", "blkio.throttle.io_serviced"
	if exists(filepath.Join(dir, bytes+"_recursive")) {
		bytes, operations = bytes+"_recursive", operations+"_recursive"
	}
	if bfq := "blkio.bfq.io_service_bytes_recursive"; !h.listsDevice(bytes) && h.listsDevice(bfq) {
		return bfq, "blkio.bfq.io_serviced_recursive"
	}
	return bytes, operations
}
