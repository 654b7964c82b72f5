package cimeter

import "time"

// RecordSchema is the version of the record's form that this program writes.
const RecordSchema = 1

// Record is the finished account of one build. It is immutable. Its JSON names
// are a contract; a member that is absent is not known.
type Record struct {
	Schema int `json:"schema"`
	Build
	QueuedAt  time.Time `json:"queued_at,omitzero"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	// ImagePulledAt is when the last image was pulled that its containers needed and
	// that was pulled in the ten minutes before it started; zero: none was, or its engine
	// does not tell.
	ImagePulledAt time.Time `json:"image_pulled_at,omitzero"`

	Result    string       `json:"result,omitempty"`     // success, failed, canceled, skipped; "" when nothing told it
	Metered   Opt[bool]    `json:"metered,omitzero"`     // false: no agent did, a CI server told of it; absent: an agent's record
	Tags      []string     `json:"tags,omitempty"`       // that its worker had to have, as its CI server tells
	FailedFor string       `json:"failed_for,omitempty"` // one word of its CI server's: runner_system_failure
	Complete  bool         `json:"complete"`             // false: some of its life was not seen, Gaps say what
	Gaps      []Gap        `json:"gaps"`
	Coverage  Opt[float64] `json:"coverage,omitzero"` // 0 to 1: share of the machine's CPU time, while it ran, that was attributed to builds
	Limits    *Limits      `json:"limits,omitempty"`
	Image     string       `json:"image,omitempty"` // of the last container that ran its commands, as it was asked for
	Host      HostSize     `json:"host,omitzero"`   // of its machine
	Usage     Usage        `json:"usage,omitzero"`  // absent: nothing was metered
	Stages    []Stage      `json:"stages"`
	Parts     []Part       `json:"parts,omitempty"` // nested in its containers, or beside them; the largest by CPU, the rest added up
	Verdicts  []Verdict    `json:"verdicts,omitempty"`
	Trace     *Trace       `json:"trace,omitempty"`
}

// Boundary is the source that gave a stage its bounds, best first.
type Boundary string

// The sources of stage boundaries.
const (
	BoundaryContainer Boundary = "container" // the container's own labels and life
	BoundaryProcess   Boundary = "process"   // the life and the variables of a process that the runner itself started
	BoundaryJobList   Boundary = "job_list"  // the runner's live list of jobs
	BoundaryCommand   Boundary = "command"   // command lines or script paths of its processes
	BoundaryTrace     Boundary = "trace"     // sections of the job's log
	BoundaryOrder     Boundary = "order"     // the order in which the runner runs its stages
)

// Stage is one phase of a build and what it spent.
type Stage struct {
	Name      string    `json:"name"`
	Attempt   int       `json:"attempt"`
	Boundary  Boundary  `json:"boundary"`
	Alongside bool      `json:"alongside,omitempty"` // ran beside the others (a service): its time is not the build's
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	ExitCode  Opt[int]  `json:"exit_code,omitzero"`
	Usage     Usage     `json:"usage"`
}

// Gap is a time in which something of a build was not seen.
type Gap struct {
	From   time.Time `json:"from,omitzero"` // zero: since before the build was seen
	To     time.Time `json:"to"`
	Reason string    `json:"reason"` // see the Gap* constants
}

// Reasons of gaps.
const (
	GapBeforeAgent   = "before_agent"   // ran before the agent did; not in the totals
	GapAgentRestart  = "agent_restart"  // the agent was away; the totals include what the kernel kept
	GapMissedEnd     = "missed_end"     // the last reading came before the last process was gone
	GapLongInterval  = "long_interval"  // suspended machine, starved agent: rates are not taken over it
	GapMissedSegment = "missed_segment" // the runtime told of a container whose counters were never read
	GapNoCgroup      = "no_cgroup"      // the container has no cgroup of its own: nothing tells what it used
	// GapProcessesScanned: its processes were found by looking once in an
	// interval. What one used that lived between two looks is known only from its parent.
	GapProcessesScanned = "processes_scanned"
)

// Verdict is a finding about a build with its evidence.
type Verdict struct {
	Kind     string `json:"kind"`            // oom, throttled, disputed
	Stage    string `json:"stage,omitempty"` // the stage it is about
	Evidence string `json:"evidence"`
}

// Trace is the build over time, in equal steps from Record.StartedAt. All
// columns that are present have the same length; null is a step without a
// reading. Its JSON is at most 10 KiB.
type Trace struct {
	StepSeconds           float64      `json:"step_seconds"`
	CPUMillicores         []Opt[int64] `json:"cpu_millicores,omitempty"`     // average over the step
	CPUMillicoresMax      []Opt[int64] `json:"cpu_millicores_max,omitempty"` // largest interval within the step
	MemoryKiB             []Opt[int64] `json:"memory_kib,omitempty"`         // largest within the step
	MemoryWorkingSetKiB   []Opt[int64] `json:"memory_working_set_kib,omitempty"`
	IOReadBytesPerSecond  []Opt[int64] `json:"io_read_bytes_per_second,omitempty"`
	IOWriteBytesPerSecond []Opt[int64] `json:"io_write_bytes_per_second,omitempty"`
	NetworkReceivePerSec  []Opt[int64] `json:"network_receive_bytes_per_second,omitempty"`
	NetworkTransmitPerSec []Opt[int64] `json:"network_transmit_bytes_per_second,omitempty"`
}
