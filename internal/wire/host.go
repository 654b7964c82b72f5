package wire

import (
	"fmt"
	"math"
	"time"

	"github.com/cimeter/cimeter"
)

// Host is what an agent tells of its machine and of itself. Whatever is not
// known is absent. Counters only rise; one that fell began anew.
type Host struct {
	OS        string    `json:"os,omitempty"`
	Kernel    string    `json:"kernel,omitempty"`
	Cgroup    string    `json:"cgroup,omitempty"` // v1, v2, hybrid
	Pool      string    `json:"pool,omitempty"`   // of machines that come and go, as configured
	BootedAt  time.Time `json:"booted_at,omitzero"`
	StartedAt time.Time `json:"started_at,omitzero"` // the agent
	ReadAt    time.Time `json:"read_at,omitzero"`    // the figures, by the machine's clock

	CPUCores        cimeter.Opt[float64]             `json:"cpu_cores,omitzero"`    // that are online
	CPUSeconds      *HostCPU                         `json:"cpu_seconds,omitempty"` // since StartedAt
	MemoryBytes     *HostMemory                      `json:"memory_bytes,omitempty"`
	IOBytes         *cimeter.ReadWrite[uint64]       `json:"io_bytes,omitempty"`         // of all disks
	NetworkBytes    *cimeter.ReceiveTransmit[uint64] `json:"network_bytes,omitempty"`    // to and from the outside
	PressureSeconds *cimeter.PressureSeconds         `json:"pressure_seconds,omitempty"` // since BootedAt
	Coverage        cimeter.Opt[float64]             `json:"coverage,omitzero"`          // since the last heartbeat; absent when no build ran
	Containers      cimeter.Opt[uint64]              `json:"containers,omitzero"`        // that are metered
	Agent           *HostAgent                       `json:"agent,omitempty"`
}

// HostCPU is the CPU time of a machine by who had it, in seconds.
type HostCPU struct {
	Builds  float64 `json:"builds"`
	Other   float64 `json:"other"`
	Cimeter float64 `json:"cimeter"`
}

// HostMemory is a machine's memory in bytes.
type HostMemory struct {
	Total     uint64              `json:"total"`
	Available cimeter.Opt[uint64] `json:"available,omitzero"` // without swapping
}

// HostAgent is what the agent itself takes.
type HostAgent struct {
	CPUSeconds  cimeter.Opt[float64] `json:"cpu_seconds,omitzero"` // since it started
	MemoryBytes cimeter.Opt[uint64]  `json:"memory_bytes,omitzero"`
}

// check bounds what a stranger may say of a machine.
func (h *Host) check() error {
	if h == nil {
		return nil
	}
	for _, s := range []string{h.OS, h.Kernel, h.Cgroup, h.Pool} {
		if len(s) > maxNameBytes {
			return fmt.Errorf("host: want os, kernel, cgroup and pool of at most %d bytes: %w", maxNameBytes, cimeter.ErrInvalid)
		}
	}
	numbers := []float64{h.CPUCores.Value, h.Coverage.Value}
	if c := h.CPUSeconds; c != nil {
		numbers = append(numbers, c.Builds, c.Other, c.Cimeter)
	}
	if p := h.PressureSeconds; p != nil {
		numbers = append(numbers, p.CPUSome.Value, p.CPUFull.Value, p.MemorySome.Value, p.MemoryFull.Value, p.IOSome.Value, p.IOFull.Value)
	}
	if a := h.Agent; a != nil {
		numbers = append(numbers, a.CPUSeconds.Value)
	}
	for _, v := range numbers {
		if !(v >= 0 && v <= maxHostNumber) {
			return fmt.Errorf("host: %g: want 0 to %g: %w", v, maxHostNumber, cimeter.ErrInvalid)
		}
	}
	if h.Coverage.Value > 1 {
		return fmt.Errorf("host: coverage %g: want 0 to 1: %w", h.Coverage.Value, cimeter.ErrInvalid)
	}
	if m := h.MemoryBytes; m != nil && (m.Total > math.MaxInt64 || m.Available.Value > m.Total) {
		return fmt.Errorf("host: memory_bytes: want no more available than there is: %w", cimeter.ErrInvalid)
	}
	return nil
}

// maxHostNumber is more than a machine of 10,000 CPUs uses in 30 years.
const maxHostNumber = 1e13
