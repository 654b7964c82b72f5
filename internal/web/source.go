package web

import (
	"context"
	"time"

	"github.com/cimeter/cimeter"
)

// Source is what the pages of builds read. Its methods are called by many
// goroutines at once and may be called again after an error. An error that
// wraps cimeter.ErrNotFound, ErrInvalid or ErrUnavailable is told to the reader
// as such; every other is the operator's.
type Source interface {
	// Builds returns a page of the builds that q asks for. The error wraps
	// cimeter.ErrInvalid for a cursor that it never gave.
	Builds(ctx context.Context, q Query) (Page, error)
	// Build returns the record of a build, and whether it still runs: then the
	// record is its account so far and EndedAt the time of it.
	Build(ctx context.Context, key string) (r *cimeter.Record, running bool, err error)
	// Groups adds the builds that q selects up by what it asks, most CPU time
	// first (a time: oldest first). No builds make no group.
	Groups(ctx context.Context, q GroupQuery) ([]Group, error)
}

// Fleet is what the agents' heartbeats tell.
type Fleet interface {
	// Machines returns every machine that was heard of in the last ten minutes,
	// and how many were not any more. The caller owns the result.
	Machines(ctx context.Context) (machines []Machine, gone int, err error)
}

// Query asks for builds.
type Query struct {
	Filter
	Sort      Sort
	Ascending bool
	Cursor    string // of the page before; "" for the first
	Limit     int    // rows in a page
	Totals    bool   // the totals of the whole filter are wanted too
}

// Sort is the column that builds are sorted by. What does not know it comes last.
type Sort string

// The columns to sort by.
const (
	SortStarted Sort = "started"
	SortQueue   Sort = "queue"
	SortWall    Sort = "wall"
	SortCPU     Sort = "cpu"
	SortMemory  Sort = "mem"
	SortDisk    Sort = "disk"
	SortNet     Sort = "net"
)

// Page is a page of builds.
type Page struct {
	Rows   []Row
	Next   string  // cursor of the next page, "" at the end
	Totals *Totals // nil when not asked for, or not known
}

// Totals are of all builds of a filter.
type Totals struct {
	Builds     int
	CPUSeconds float64
	Bytes      float64 // of disk and network
	WallP50    cimeter.Opt[float64]
	WallP95    cimeter.Opt[float64]
}

// Row is a build in a list: its record without stages and trace.
type Row struct {
	cimeter.Build
	QueuedAt    time.Time
	StartedAt   time.Time
	EndedAt     time.Time
	Running     bool
	Result      string
	Complete    bool
	Coverage    cimeter.Opt[float64]
	WallSeconds float64
	CPUSeconds  cimeter.Opt[float64]
	CPUCores    cimeter.Opt[float64] // average
	CPULimit    cimeter.Opt[float64] // cores
	MemoryPeak  cimeter.Opt[uint64]  // bytes
	MemoryLimit cimeter.Opt[uint64]  // bytes
	DiskBytes   cimeter.Opt[uint64]  // read and written
	NetBytes    cimeter.Opt[uint64]  // received and sent
	Verdicts    []string             // kinds, as in the record
	CPUSpark    []cimeter.Opt[int64] // at most 32 steps of millicores
}

// Dimension is what builds are added up by.
type Dimension string

// The dimensions. A stage's group counts the builds that had it.
const (
	ByAll     Dimension = "all" // one group
	ByProject Dimension = "project"
	ByJob     Dimension = "job" // name within a project
	ByStage   Dimension = "stage"
	ByMachine Dimension = "machine"
	ByRunner  Dimension = "runner"
	ByDay     Dimension = "day"        // of UTC
	ByHour    Dimension = "hour"       // of UTC
	ByPeak    Dimension = "peak_share" // peak memory of its limit in steps of a tenth, the last all from 0.9 on
)

// GroupQuery asks for builds added up. Canceled builds count, but not in
// percentiles.
type GroupQuery struct {
	Filter
	By    Dimension
	Limit int
	Trend bool // the daily medians are wanted
}

// Group is many builds added up.
type Group struct {
	Project   string    // ByProject, ByJob
	Name      string    // the job, the stage, the machine, the runner's key
	Label     string    // what a runner calls itself, when Name is a key
	At        time.Time // ByDay, ByHour: its begin
	Bucket    int       // ByPeak: tenths, 0 to 9
	Builds    int
	Succeeded int
	Failed    int
	Canceled  int
	OOMs      int // builds with a process killed for memory
	Verdicts  int // builds with a verdict

	CPUSeconds       float64
	Bytes            float64 // of disk and network
	ThrottledSeconds cimeter.Opt[float64]
	PressureSeconds  cimeter.Opt[float64] // some, all resources added
	LastStartedAt    time.Time

	Wall, Queue, CPU, Peak, PeakShare Percentiles            // seconds, seconds, CPU seconds, bytes, share of the limit
	Trend                             []cimeter.Opt[float64] // median CPU seconds of each of the last 14 days, oldest first
}

// Percentiles are absent when no build knew the value.
type Percentiles struct{ P50, P95 cimeter.Opt[float64] }

// Machine is what a machine's last heartbeat told.
type Machine struct {
	Name         string
	LastSeen     time.Time
	Interval     time.Duration // between heartbeats
	CPUs         int
	MemoryBytes  uint64
	Kernel       string
	Cgroup       string // v1, v2, hybrid
	Executors    []string
	AgentVersion string
	Slots        int // 0: not known

	CPUBuilds, CPUOther, CPUOwn cimeter.Opt[float64] // cores now
	MemoryUsed                  cimeter.Opt[uint64]
	DiskRate, NetRate           cimeter.Opt[float64] // bytes a second
	Pressure                    cimeter.Opt[float64] // largest share of time in which some task waited
	PressureOf                  string               // cpu, memory or io
	Coverage                    cimeter.Opt[float64]
	OwnCPUMillis                cimeter.Opt[float64] // CPU milliseconds a second that the agent itself takes
	OwnMemoryBytes              cimeter.Opt[uint64]
	SpoolBytes                  cimeter.Opt[uint64]
	Running                     []Running
}

// Running is a build that runs now.
type Running struct {
	Row
	Stage           string
	CPUNow          cimeter.Opt[float64] // cores
	MemoryNow       cimeter.Opt[uint64]
	DiskNow, NetNow cimeter.Opt[float64] // bytes a second
	CPUMinute       []cimeter.Opt[int64] // millicores of the last minute, oldest first
}
