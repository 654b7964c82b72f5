package httpapi

import (
	"github.com/cimeter/cimeter"
)

// HostRates are what a machine does, between its last two heartbeats. What is
// not known is absent.
type HostRates struct {
	CPUCores              *CoresByOwner        `json:"cpu_cores,omitempty"`
	MemoryUsedBytes       cimeter.Opt[uint64]  `json:"memory_used_bytes,omitzero"`
	IOBytesPerSecond      cimeter.Opt[float64] `json:"io_bytes_per_second,omitzero"`      // read and written
	NetworkBytesPerSecond cimeter.Opt[float64] `json:"network_bytes_per_second,omitzero"` // received and sent
	Pressure              *Pressure            `json:"pressure,omitempty"`
	AgentCPUCores         cimeter.Opt[float64] `json:"agent_cpu_cores,omitzero"`
}

// CoresByOwner is CPU seconds a second by who had them.
type CoresByOwner struct {
	Builds  float64 `json:"builds"`
	Other   float64 `json:"other"`
	Cimeter float64 `json:"cimeter"`
}

// Pressure is the share of time, 0 to 1, in which some task waited (PSI).
type Pressure struct {
	CPU    cimeter.Opt[float64] `json:"cpu,omitzero"`
	Memory cimeter.Opt[float64] `json:"memory,omitzero"`
	IO     cimeter.Opt[float64] `json:"io,omitzero"`
}

// BuildRates are what a running build does, between the last two heartbeats.
type BuildRates struct {
	CPUCores              cimeter.Opt[float64] `json:"cpu_cores,omitzero"`
	IOBytesPerSecond      cimeter.Opt[float64] `json:"io_bytes_per_second,omitzero"`
	NetworkBytesPerSecond cimeter.Opt[float64] `json:"network_bytes_per_second,omitzero"`
	// Minute is its CPU over the last minute, oldest first, in millicores.
	Minute []cimeter.Opt[int64] `json:"-"`
}

// HostPoint is a machine at one time of the last minutes, small because there
// are many. NaN is not known.
type HostPoint struct {
	At                     int64   // seconds since 1970
	Builds, Other, Cimeter float32 // cores
	MemoryUsed             float32 // bytes
	IO, Network            float32 // bytes a second
	Pressure               float32 // the largest share of time in which some task waited
}
