package store

import (
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
)

// Put is one record to keep, with who sent it and when it came.
type Put struct {
	Record     *cimeter.Record
	ReceivedAt time.Time // the server's clock
	Agent      string
}

// PutResult counts what became of a batch. All of it is durable.
type PutResult struct {
	Stored     int
	Parts      int // of those: of builds that an earlier record counts, see Further
	Duplicates int // told before: nothing was changed
	Expired    int // ended before what retention keeps: not stored
	// Fresh says of each record of the batch in turn whether it was stored by
	// this Put: of many servers on one store one alone sees a record fresh. Part says
	// of which of those an earlier record counts the build; nil: of none.
	Fresh, Part []bool
}

// IsPart reports whether record i of the batch was stored as a part of a build that an
// earlier record counts.
func (r *PutResult) IsPart(i int) bool { return i < len(r.Part) && r.Part[i] }

// MarkPart says that record i of a batch of n was stored as such a part.
func (r *PutResult) MarkPart(i, n int) {
	if r.Part == nil {
		r.Part = make([]bool, n)
	}
	r.Part[i] = true
	r.Parts++
}

// Bounds of questions.
const (
	MaxLimit   = 500  // builds in a page
	MaxGroups  = 1000 // groups, buckets and names in an answer
	MaxHistory = 300  // builds of one job's history
	// MaxBatch is how many records one Put takes: what a server holds in memory
	// while it waits for the disk.
	MaxBatch = 1000
	// MaxExamine bounds how many builds a page of a list looks at, so that its
	// time is bounded whatever the filter is; a page may therefore be short.
	MaxExamine = 10000
	// sumRows bounds the builds that Sum adds up.
	sumRows = 10000
)

// Sort is what a list is sorted by.
type Sort string

// The sorts.
const (
	SortEnded  Sort = "ended"
	SortCPU    Sort = "cpu"
	SortMemory Sort = "mem" // peak
	SortWall   Sort = "wall"
	SortIO     Sort = "io"  // bytes read and written
	SortNet    Sort = "net" // bytes received and sent
	SortQueue  Sort = "queue"
)

// sortColumns is the only place from which a name in an ORDER BY comes.
var sortColumns = map[Sort]string{
	SortEnded: "at", SortCPU: "cpu_us", SortMemory: "mem_peak", SortWall: "wall_us", SortIO: "io_bytes", SortNet: "net_bytes", SortQueue: "queue_us",
}

// Query asks for a page of builds.
type Query struct {
	Filter filter.Filter // resolved: times are absolute
	Sort   Sort          // "" is SortEnded
	Asc    bool          // smallest first; a build that does not know its value is the smallest
	Cursor string        // of the page before; "" for the first
	Limit  int           // 1 to MaxLimit; 0 is 50
	Trace  bool          // with the traces of the records
	// Examine is how many builds the page may look at: 1 to MaxExamine, which 0 is.
	Examine int
}

// Page is an answer to a Query.
type Page struct {
	Records []*cimeter.Record
	// Next is the cursor of the page behind this one, "" on the last. A page may
	// hold fewer records than asked, even none, though there is a next: one page
	// looks at a bounded number of builds.
	Next string
}

// Totals are sums over builds. What a build does not know is not in the sum.
type Totals struct {
	Builds           int64
	Failed           int64
	Canceled         int64
	OOM              int64 // builds in which something was killed for memory
	WallSeconds      float64
	CPUSeconds       float64
	QueueSeconds     float64
	Queued           int64 // builds whose queue time is known
	ThrottledSeconds float64
	IOBytes          int64
	NetworkBytes     int64
	MemoryPeakBytes  cimeter.Opt[int64] // the largest
	Last             time.Time          // the latest end
}

// Sum is the totals and the spread of the builds that meet a filter.
type Sum struct {
	Totals
	WallP50, WallP95   cimeter.Opt[float64] // seconds
	QueueP50, QueueP95 cimeter.Opt[float64] // seconds
	// Partial says that there are more builds than were looked at: the figures
	// are of the latest ones.
	Partial bool
}

// Point is what a build cost, whatever its machines; without its names.
type Point struct {
	EndedAt          time.Time // of the last of its parts
	Result           string
	OOM              bool // something of it was killed for memory
	WallSeconds      cimeter.Opt[float64]
	CPUSeconds       cimeter.Opt[float64]
	MemoryPeakBytes  cimeter.Opt[int64]
	MemoryLimitBytes cimeter.Opt[int64]
}

// By is what builds are grouped by.
type By string

// The groupings.
const (
	ByProject    By = "project"
	ByJob        By = "job"         // project and name
	ByStage      By = "stage"       // project, name and stage; Builds counts runs of the stage
	ByMachine    By = "machine"     //
	ByMachineJob By = "machine_job" // project and name, of one machine
	ByRunner     By = "runner"      // runner and machine
)

// GroupQuery asks for totals by group over a range of time.
type GroupQuery struct {
	By      By
	Project string // only groups of it; for ByJob and ByStage
	Name    string // only groups of it; for ByStage, with Project
	Machine string // only groups of it; for ByMachineJob
	From    time.Time
	To      time.Time
	Sort    Sort // SortEnded is by the latest end; always the largest first; "" is SortCPU
	Limit   int  // 1 to MaxGroups; 0 is 100
}

// Groups is the answer. Over a range longer than two days, and always by stage,
// the totals are of whole days (UTC): From and To say which range was taken.
type Groups struct {
	From, To time.Time
	Groups   []Group
	More     bool // there are more groups than asked for
}

// Group is one group; the names that its By does not have are empty.
type Group struct {
	Project    string
	Name       string
	Stage      string
	Machine    string
	Runner     string
	RunnerName string
	Totals
}

// BucketQuery asks for totals over time: of everything, or of what one of the
// fields names. Buckets shorter than a day are answered for everything over any
// range, else over at most two days.
type BucketQuery struct {
	Project  string
	Name     string // with Project
	Machine  string
	Runner   string // its key
	From, To time.Time
	Bucket   time.Duration // an hour to 30 days; whole hours
}

// Bucket is the totals of the builds that ended from Start on.
type Bucket struct {
	Start time.Time
	Totals
}

// HistoryQuery asks for the last builds of one job.
type HistoryQuery struct {
	Project string
	Name    string
	Ref     string // "": of any
	Before  time.Time
	Limit   int // 1 to MaxHistory; 0 is 20
	Trace   bool
}

// Retention says what to delete. A zero bound does not bound.
type Retention struct {
	KeepFrom   time.Time // delete builds that ended before
	MaxBytes   int64     // delete the oldest until the store is not larger
	TotalsFrom time.Time // delete rollups of days before
}

// Retained counts what a run of retention deleted. More says that it stopped at
// its bound and that another run will find more.
type Retained struct {
	Builds int64
	Bytes  int64 // size of the store after it
	More   bool
}

// Stats is what a store tells about itself.
type Stats struct {
	Version int   // of the schema
	Builds  int64 // each once, however many records there are of it
	Bytes   int64
	Oldest  time.Time // zero: no builds
	Newest  time.Time
	// Unjoined counts, since this process opened the store, accounts of builds that
	// several of the other side's fitted: see Join.
	Unjoined int64
}
