package catalog

import "github.com/cimeter/cimeter"

// The metrics of a stage.
const (
	StageCPU              = "cimeter_stage_cpu_seconds_total"
	StageCPUThrottled     = "cimeter_stage_cpu_throttled_seconds_total"
	StageIOBytes          = "cimeter_stage_io_bytes_total"
	StageIOOperations     = "cimeter_stage_io_operations_total"
	StageNetwork          = "cimeter_stage_network_bytes_total"
	StagePressure         = "cimeter_stage_pressure_seconds_total"
	StageOOMKills         = "cimeter_stage_oom_kills_total"
	StageMemoryWorkingSet = "cimeter_stage_memory_working_set_bytes"
	StageMemory           = "cimeter_stage_memory_bytes"
	StageDuration         = "cimeter_stage_duration_seconds"
	StageMemoryPeak       = "cimeter_stage_memory_peak_bytes"
	StageCPUCores         = "cimeter_stage_cpu_cores"
)

// nano is Series.Decimals of a counter that is kept in nanoseconds and shown in
// seconds.
const nano = 9

func stageMetrics() []Metric {
	return []Metric{
		{
			Name: StageCPU, Kind: Counter, Scope: Stage, Unit: "seconds", Labels: []string{"mode"},
			Help: "CPU time that the containers of this stage used.",
			Series: []Series{
				counted(nano, cimeter.CPUUser, "user"),
				counted(nano, cimeter.CPUSystem, "system"),
			},
		},
		{
			Name: StageCPUThrottled, Kind: Counter, Scope: Stage, Unit: "seconds",
			Help:   "Time that this stage was held back by its CPU quota, summed over CPUs.",
			Series: []Series{counted(nano, cimeter.CPUThrottled)},
		},
		{
			Name: StageIOBytes, Kind: Counter, Scope: Stage, Unit: "bytes", Labels: []string{"direction"},
			Help: "Bytes that this stage read from and wrote to block devices.",
			Series: []Series{
				counted(0, cimeter.IOReadBytes, "read"),
				counted(0, cimeter.IOWriteBytes, "write"),
			},
		},
		{
			Name: StageIOOperations, Kind: Counter, Scope: Stage, Labels: []string{"direction"},
			Help: "Operations of this stage on block devices.",
			Series: []Series{
				counted(0, cimeter.IOReadOperations, "read"),
				counted(0, cimeter.IOWriteOperations, "write"),
			},
		},
		{
			Name: StageNetwork, Kind: Counter, Scope: Stage, Unit: "bytes", Labels: []string{"direction"},
			Help: "Bytes on the uplink of this stage's network namespaces; absent on the host's network.",
			Series: []Series{
				counted(0, cimeter.NetworkReceiveBytes, "receive"),
				counted(0, cimeter.NetworkTransmitBytes, "transmit"),
			},
		},
		{
			Name: StagePressure, Kind: Counter, Scope: Stage, Unit: "seconds", Labels: []string{"resource", "kind"},
			Help: "Time in which some or all tasks of this stage waited for a resource (PSI).",
			Series: []Series{
				counted(nano, cimeter.CPUSomePressure, "cpu", "some"),
				counted(nano, cimeter.CPUFullPressure, "cpu", "full"),
				counted(nano, cimeter.MemorySomePressure, "memory", "some"),
				counted(nano, cimeter.MemoryFullPressure, "memory", "full"),
				counted(nano, cimeter.IOSomePressure, "io", "some"),
				counted(nano, cimeter.IOFullPressure, "io", "full"),
			},
		},
		{
			Name: StageOOMKills, Kind: Counter, Scope: Stage,
			Help:   "Processes of this stage that the kernel killed for memory, in its containers' cgroups and below them.",
			Series: []Series{{Counters: []cimeter.Counter{cimeter.OOMKills, cimeter.OOMKillsNested}}},
		},
		{
			Name: StageMemoryWorkingSet, Kind: Gauge, Scope: Stage, Unit: "bytes",
			Help:   "Memory without inactive page cache, summed over the containers of this stage that run now.",
			Series: []Series{{Gauge: cimeter.MemoryWorkingSet}},
		},
		{
			Name: StageMemory, Kind: Gauge, Scope: Stage, Unit: "bytes", Labels: []string{"kind"},
			Help: "Memory by kind, summed over the containers of this stage that run now.",
			Series: []Series{
				{Values: []string{"anon"}, Gauge: cimeter.MemoryAnon},
				{Values: []string{"file"}, Gauge: cimeter.MemoryFile},
				{Values: []string{"kernel"}, Gauge: cimeter.MemoryKernel},
				{Values: []string{"swap"}, Gauge: cimeter.MemorySwap},
			},
		},
		{
			Name: StageDuration, Kind: Histogram, Scope: Stage, Unit: "seconds",
			Help:    "How long this stage took, counted at its end.",
			Buckets: durations(),
		},
		{
			Name: StageMemoryPeak, Kind: Histogram, Scope: Stage, Unit: "bytes",
			Help:    "The most memory that this stage held at once as the kernel saw it, counted at its end.",
			Buckets: []float64{16 << 20, 64 << 20, 256 << 20, 1 << 30, 4 << 30, 16 << 30, 64 << 30},
		},
		{
			Name: StageCPUCores, Kind: Histogram, Scope: Stage, Unit: "cores",
			Help:    "CPU seconds a second that this stage used on average, counted at its end.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128},
		},
	}
}

func counted(decimals int, c cimeter.Counter, values ...string) Series {
	return Series{Values: values, Counters: []cimeter.Counter{c}, Decimals: decimals}
}

// durations are the buckets of builds, stages and queues: 1 s to 24 h, so that
// neither a stage of two seconds nor a wait for a night's window ends up in the
// first or the last one.
func durations() []float64 {
	return []float64{1, 3, 10, 30, 60, 180, 600, 1800, 3600, 3 * 3600, 8 * 3600, 24 * 3600}
}
