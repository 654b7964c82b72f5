package web

import (
	"context"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/section"
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
	// History returns the last builds of one job, newest first, without traces.
	History(ctx context.Context, q HistoryQuery) ([]*cimeter.Record, error)
}

// Totals is what the pages of projects, jobs, machines and runners read beside
// a Source; the same holds for it.
type Totals interface {
	// Groups adds up the builds that q selects, most CPU time first.
	Groups(ctx context.Context, q GroupQuery) ([]Group, error)
	// Buckets adds them up over time, oldest first; a bucket without builds may
	// be left out.
	Buckets(ctx context.Context, q BucketQuery) ([]Bucket, error)
	// Course adds up the latest builds of a filter and tells of each what it cost.
	Course(ctx context.Context, q CourseQuery) (Course, error)
}

// CourseQuery asks for the latest builds of a filter, whose times are absolute.
type CourseQuery struct {
	Filter   filter.Filter
	Most     int       // builds
	From, To time.Time // of the filter; a zero From is the beginning
}

// Course is what builds cost, one by one and together.
type Course struct {
	Sums   Sums  // Partial: there are more than Most
	Builds []Row // the earliest end first: times, result, peak and CPU time alone, and the verdict oom
	// FleetCPUSeconds is the CPU time of all builds in that time, by whole hours or days;
	// absent where it is too short for that.
	FleetCPUSeconds cimeter.Opt[float64]
}

// Fleet is what the agents' heartbeats tell.
type Fleet interface {
	// Machines returns every machine that was heard of in the last ten minutes,
	// and how many were not any more. The caller owns the result.
	Machines(ctx context.Context) (machines []Machine, gone int, err error)
}

// Sections returns what the sections of a build's log divide its stages into. With
// keptOnly it is what is known already; else it may be read from the CI server. The
// error wraps cimeter.ErrNotFound where there is nothing.
type Sections func(ctx context.Context, r *cimeter.Record, keptOnly bool) (section.Parts, error)

// Machines returns what a build did on each of its machines, without traces, the
// earliest start first; of a build of one machine at most one.
type Machines func(ctx context.Context, key string) ([]*cimeter.Record, error)

// Neighbours tells what else ran on the machine of a build while it did: so many builds,
// and how many of them at once on average. The error wraps cimeter.ErrNotFound where that
// is not known.
type Neighbours func(ctx context.Context, r *cimeter.Record) (builds int, atOnce float64, err error)

// Queue returns what CI servers tell of their queues and workers now. It is called
// by many goroutines at once.
type Queue func() queue.State

// Query asks for builds. The times of its filter are absolute.
type Query struct {
	Filter    filter.Filter
	Sort      Sort
	Ascending bool
	Cursor    string // of the page before; "" for the first
	Limit     int    // rows in a page; 0: the sums alone are wanted
	Sums      bool   // the sums of the whole filter are wanted too
	Bare      bool   // the rows' shapes are not wanted
}

// Sort is the column that builds are sorted by. What does not know it comes
// last, or first when ascending.
type Sort string

// The columns to sort by.
const (
	SortEnded  Sort = "ended"
	SortQueue  Sort = "queue"
	SortWall   Sort = "wall"
	SortCPU    Sort = "cpu"
	SortMemory Sort = "mem"
	SortDisk   Sort = "io"
	SortNet    Sort = "net"
)

// sorts are all of them.
var sorts = []Sort{SortEnded, SortQueue, SortWall, SortCPU, SortMemory, SortDisk, SortNet}

// Page is a page of builds. It may hold fewer rows than asked, even none,
// though there is a next.
type Page struct {
	Rows []Row
	Next string // cursor of the next page, "" at the end
	Sums *Sums  // nil when not asked for
}

// Sums are of many builds. What a build does not know is not in the sum.
type Sums struct {
	Builds           int64
	Failed           int64
	Canceled         int64
	OOM              int64 // builds with a process killed for memory
	WallSeconds      float64
	CPUSeconds       float64
	ThrottledSeconds float64
	IOBytes          int64
	NetworkBytes     int64
	MemoryPeakBytes  cimeter.Opt[int64] // the largest
	Last             time.Time          // the latest end

	// The percentiles of seconds; absent where a source does not keep them.
	WallP50, WallP95   cimeter.Opt[float64]
	QueueP50, QueueP95 cimeter.Opt[float64]
	Partial            bool // of the latest builds only: there are more than were looked at
}

// HistoryQuery asks for the last builds of one job.
type HistoryQuery struct {
	Project string
	Name    string
	Ref     string    // "": of any
	Before  time.Time // that ended before; zero: until now
	Limit   int       // at most 300
}

// By is what builds are added up by.
type By string

// The dimensions.
const (
	ByProject    By = "project"
	ByJob        By = "job"         // project and name
	ByStage      By = "stage"       // project, name and stage; Builds counts runs of the stage
	ByMachine    By = "machine"     //
	ByMachineJob By = "machine_job" // project and name, of one machine
	ByRunner     By = "runner"      // runner and machine
)

// GroupQuery asks for builds added up; empty fields do not narrow.
type GroupQuery struct {
	By                     By
	Project, Name, Machine string
	From, To               time.Time
	Limit                  int
}

// Group is many builds added up; the names that its By does not have are empty.
type Group struct {
	Project, Name, Stage, Machine string
	Runner                        string // its key
	RunnerName                    string
	Sums
}

// BucketQuery asks for builds over time: of everything, or of what one of the
// fields names.
type BucketQuery struct {
	Project, Name, Machine, Runner string
	From, To                       time.Time
	Bucket                         time.Duration
}

// Bucket is the builds that ended from Start on.
type Bucket struct {
	Start time.Time
	Sums
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
	Unmetered   bool // no agent metered it: a CI server told of it, and what it used is not known
	CPUSeconds  cimeter.Opt[float64]
	CPUCores    cimeter.Opt[float64] // average
	CPULimit    cimeter.Opt[float64] // cores
	MemoryPeak  cimeter.Opt[uint64]  // bytes
	MemoryLimit cimeter.Opt[uint64]  // bytes
	DiskBytes   cimeter.Opt[uint64]  // read and written
	NetBytes    cimeter.Opt[uint64]  // received and sent
	Waited      cimeter.Opt[float64] // seconds in which some task of it waited for CPU, memory or disk, the largest of the three
	Verdicts    []string             // kinds, as in the record
	CPUSpark    []cimeter.Opt[int64] // at most 32 steps of millicores
}

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
	OS           string
	Pool         string              // as configured
	BootedAt     time.Time           // zero: not known
	AgentSince   time.Time           // when its agent started; zero: not known
	Containers   cimeter.Opt[uint64] // that are metered

	CPUBuilds, CPUOther, CPUOwn cimeter.Opt[float64] // cores now
	MemoryUsed                  cimeter.Opt[uint64]
	DiskRate, NetRate           cimeter.Opt[float64] // bytes a second
	Pressure                    cimeter.Opt[float64] // largest share of time in which some task waited
	PressureOf                  string               // cpu, memory or io
	Coverage                    cimeter.Opt[float64]
	OwnCPUMillis                cimeter.Opt[float64] // CPU milliseconds a second that the agent itself takes
	OwnMemoryBytes              cimeter.Opt[uint64]
	SpoolBytes                  cimeter.Opt[uint64]
	Runs                        int // builds that run; at least as many as Running holds
	Running                     []Running
	History                     []Moment // of the last minutes, oldest first
	// More fills Running and History in, for the few machines of many that are shown
	// with them. nil: they are there.
	More func(*Machine)
}

// load fills in what was left out.
func (m *Machine) load() *Machine {
	if m.More != nil {
		m.More(m)
		m.More = nil
	}
	return m
}

// runs is how many builds run on the machine.
func (m *Machine) runs() int { return max(m.Runs, len(m.Running)) }

// Running is a build that runs now.
type Running struct {
	Row
	Stage           string
	CPUNow          cimeter.Opt[float64] // cores
	MemoryNow       cimeter.Opt[uint64]
	DiskNow, NetNow cimeter.Opt[float64] // bytes a second
	CPUMinute       []cimeter.Opt[int64] // millicores of the last minute, oldest first
}
