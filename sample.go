package cimeter

import "time"

// Counter names one cumulative reading of a segment: it starts at 0 when the
// segment's cgroup (or network namespace) is made and only rises. The comment
// beside each gives its unit; readers convert to it once.
type Counter uint8

// The counters of a Sample.
const (
	CPUTotal             Counter = iota // nanoseconds of CPU time
	CPUUser                             // nanoseconds of CPU time in user mode
	CPUSystem                           // nanoseconds of CPU time in the kernel
	CPUPeriods                          // CFS enforcement periods
	CPUThrottledPeriods                 // CFS periods in which it was throttled
	CPUThrottled                        // nanoseconds it was throttled, summed over CPUs
	IOReadBytes                         // bytes read from block devices
	IOWriteBytes                        // bytes written to block devices
	IOReadOperations                    // read operations on block devices
	IOWriteOperations                   // write operations on block devices
	NetworkReceiveBytes                 // bytes received on the uplink of its network namespace
	NetworkTransmitBytes                // bytes sent on the uplink of its network namespace
	CPUSomePressure                     // nanoseconds in which some task waited for CPU
	CPUFullPressure                     // nanoseconds in which all tasks waited for CPU
	MemorySomePressure                  // nanoseconds in which some task waited for memory
	MemoryFullPressure                  // nanoseconds in which all tasks waited for memory
	IOSomePressure                      // nanoseconds in which some task waited for IO
	IOFullPressure                      // nanoseconds in which all tasks waited for IO
	OOMKills                            // processes of the cgroup itself killed for memory
	OOMKillsNested                      // processes of cgroups below it killed for memory
	NumCounters
)

// Gauge names one momentary reading of a segment.
type Gauge uint8

// The gauges of a Sample.
const (
	MemoryCurrent    Gauge = iota // bytes charged to the cgroup, page cache included
	MemoryPeak                    // bytes, the kernel's own maximum of MemoryCurrent since the cgroup was made
	MemoryWorkingSet              // bytes: MemoryCurrent less inactive file pages, never below 0
	MemoryAnon                    // bytes of anonymous memory
	MemoryFile                    // bytes of page cache
	MemoryKernel                  // bytes of kernel memory
	MemorySwap                    // bytes swapped out
	Processes                     // tasks in the cgroup and below
	NumGauges
)

// Sample is what the kernel says of one segment at one instant: counters since
// the segment began, and gauges. Every reading may be absent. The zero value
// has none. A Sample holds no reference: copy it freely.
type Sample struct {
	At time.Time // when it was read, with the monotonic reading where there is one

	counters   [NumCounters]uint64
	gauges     [NumGauges]uint64
	hasCounter uint32
	hasGauge   uint32
}

// Counter returns counter c and whether the sample has it.
func (s *Sample) Counter(c Counter) (uint64, bool) {
	return s.counters[c], s.hasCounter&(1<<c) != 0
}

// SetCounter stores counter c, in c's unit.
func (s *Sample) SetCounter(c Counter, v uint64) {
	s.counters[c] = v
	s.hasCounter |= 1 << c
}

// ClearCounter makes counter c absent.
func (s *Sample) ClearCounter(c Counter) {
	s.counters[c] = 0
	s.hasCounter &^= 1 << c
}

// Gauge returns gauge g and whether the sample has it.
func (s *Sample) Gauge(g Gauge) (uint64, bool) {
	return s.gauges[g], s.hasGauge&(1<<g) != 0
}

// SetGauge stores gauge g, in g's unit.
func (s *Sample) SetGauge(g Gauge, v uint64) {
	s.gauges[g] = v
	s.hasGauge |= 1 << g
}

// ClearGauge makes gauge g absent.
func (s *Sample) ClearGauge(g Gauge) {
	s.gauges[g] = 0
	s.hasGauge &^= 1 << g
}

// Reset makes every reading absent and the time zero.
func (s *Sample) Reset() { *s = Sample{} }
