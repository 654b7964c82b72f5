package cimeter

// Stat describes how a rate or a level behaved over time, weighted by time.
type Stat struct {
	Avg    float64      `json:"avg"`
	Max    float64      `json:"max"`
	StdDev Opt[float64] `json:"stddev,omitzero"` // absent with fewer than two intervals
}

// Usage is what a stage or a build spent between two instants. Totals are
// differences of kernel counters, never sums of sampled rates.
type Usage struct {
	WallSeconds           float64                  `json:"wall_seconds"`
	CPUSeconds            CPUSeconds               `json:"cpu_seconds,omitzero"`
	CPUCores              *Stat                    `json:"cpu_cores,omitempty"` // CPU seconds a second
	CPUPeriods            Opt[uint64]              `json:"cpu_periods,omitzero"`
	CPUThrottledPeriods   Opt[uint64]              `json:"cpu_throttled_periods,omitzero"`
	CPUThrottledSeconds   Opt[float64]             `json:"cpu_throttled_seconds,omitzero"`
	MemoryBytes           *MemoryStat              `json:"memory_bytes,omitempty"`
	MemoryWorkingSetBytes *Stat                    `json:"memory_working_set_bytes,omitempty"`
	MemoryAnonBytes       *Stat                    `json:"memory_anon_bytes,omitempty"`
	MemorySwapBytes       *Stat                    `json:"memory_swap_bytes,omitempty"`
	IOBytes               *ReadWrite[uint64]       `json:"io_bytes,omitempty"`
	IOOperations          *ReadWrite[uint64]       `json:"io_operations,omitempty"`
	IOBytesPerSecond      *ReadWrite[Stat]         `json:"io_bytes_per_second,omitempty"`
	IOOperationsPerSecond *ReadWrite[Stat]         `json:"io_operations_per_second,omitempty"`
	NetworkBytes          *ReceiveTransmit[uint64] `json:"network_bytes,omitempty"` // absent: host network, or not metered
	NetworkBytesPerSecond *ReceiveTransmit[Stat]   `json:"network_bytes_per_second,omitempty"`
	PressureSeconds       *PressureSeconds         `json:"pressure_seconds,omitempty"`
	ProcessesMax          Opt[uint64]              `json:"processes_max,omitzero"`
	OOMKills              Opt[uint64]              `json:"oom_kills,omitzero"`        // in the containers' own cgroups
	OOMKillsNested        Opt[uint64]              `json:"oom_kills_nested,omitzero"` // in cgroups below them
	// NotMetered says why readings that one would expect are absent: name of the
	// member to reason, such as network_bytes: host network.
	NotMetered map[string]string `json:"not_metered,omitempty"`
}

// CPUSeconds is CPU time in seconds.
type CPUSeconds struct {
	Total  Opt[float64] `json:"total,omitzero"`
	User   Opt[float64] `json:"user,omitzero"`
	System Opt[float64] `json:"system,omitzero"`
}

// MemoryStat is a Stat of bytes with the kernel's own peak.
type MemoryStat struct {
	Stat
	Peak Opt[uint64] `json:"peak,omitzero"` // bytes; the kernel's maximum of one container, or the largest sampled sum of several
}

// ReadWrite is a pair by direction of block IO.
type ReadWrite[T any] struct {
	Read  T `json:"read"`
	Write T `json:"write"`
}

// ReceiveTransmit is a pair by direction of network traffic.
type ReceiveTransmit[T any] struct {
	Receive  T `json:"receive"`
	Transmit T `json:"transmit"`
}

// PressureSeconds is stall time in seconds, by resource and kind (PSI).
type PressureSeconds struct {
	CPUSome    Opt[float64] `json:"cpu_some,omitzero"`
	CPUFull    Opt[float64] `json:"cpu_full,omitzero"`
	MemorySome Opt[float64] `json:"memory_some,omitzero"`
	MemoryFull Opt[float64] `json:"memory_full,omitzero"`
	IOSome     Opt[float64] `json:"io_some,omitzero"`
	IOFull     Opt[float64] `json:"io_full,omitzero"`
}

// HostSize is how large a machine is. Absent is not known.
type HostSize struct {
	CPUs        int    `json:"cpus,omitempty"` // online
	MemoryBytes uint64 `json:"memory_bytes,omitempty"`
}

// Limits are what held a build's containers back. Absent means no limit.
type Limits struct {
	CPUCores    Opt[float64] `json:"cpu_cores,omitzero"`
	MemoryBytes Opt[uint64]  `json:"memory_bytes,omitzero"`   // tightest of the cgroup and its ancestors
	MemorySetBy string       `json:"memory_set_by,omitempty"` // path of the cgroup that sets it
	Requested   Requests     `json:"requested,omitzero"`      // by the pod for the container
}
