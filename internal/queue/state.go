package queue

import (
	"time"

	"github.com/cimeter/cimeter"
)

// State is what a [Board] knows at one instant: what the page Queue, the routes
// of the API and the terminal show. It belongs to the caller; what its slices hold
// is shared and never changes.
//
//	State
//	├─ Servers: one for each CI server, by name, also one that was never heard of
//	│   ├─ age and staleness of what is shown, the last failure
//	│   ├─ counts: waiting, blocked, running; workers by state
//	│   └─ History and Week: at most 1,440 points of a minute and 1,008 of ten, oldest first
//	├─ Builds: all that wait (the longest wait first), then those that are blocked,
//	│   then those that run
//	└─ Workers: by server and name
type State struct {
	At      time.Time `json:"at"`
	Servers []Server  `json:"servers"`
	Builds  []Build   `json:"builds"`
	Workers []Worker  `json:"workers"`
}

// Server is a CI server as its sources tell. Its counts are those of when it was
// heard of last.
type Server struct {
	Name    string    `json:"name"` // as the settings call it: the label server of the metrics
	CI      string    `json:"ci"`
	HeardAt time.Time `json:"heard_at,omitzero"` // the last good poll or webhook; zero: never
	AskedAt time.Time `json:"asked_at,omitzero"` // the last good poll; zero: never, or it is fed by webhooks alone

	AgeSeconds cimeter.Opt[float64] `json:"age_seconds,omitzero"` // since AskedAt, else HeardAt
	// Stale says that the last poll failed, or that none was good for three
	// intervals: numbers are the last good ones.
	Stale   bool      `json:"stale,omitempty"`
	Failure string    `json:"failure,omitempty"` // why the last poll failed; "" when it did not
	Reason  string    `json:"reason,omitempty"`  // the same in one word of Reasons
	Status  int       `json:"status,omitempty"`  // of HTTP, of that failure; 0: there was no answer
	FailsAt time.Time `json:"failing_since,omitzero"`
	// Elsewhere says that another server of this fleet asks this CI server and knows
	// its queue: here nothing is told of it.
	Elsewhere bool `json:"elsewhere,omitempty"`

	// The builds by status; absent until something was told of them.
	Waiting cimeter.Opt[int] `json:"waiting,omitzero"`
	Blocked cimeter.Opt[int] `json:"blocked,omitzero"`
	Running cimeter.Opt[int] `json:"running,omitzero"`
	// The workers by state, and the builds that those that are not offline can run
	// at once; absent where the server does not tell of workers.
	Workers cimeter.Opt[WorkerCount] `json:"workers,omitzero"`
	Slots   cimeter.Opt[int]         `json:"slots,omitzero"`

	LongestDay Longest `json:"longest_wait,omitzero"` // of the last 24 h; zero: none was seen
	History    []Point `json:"-"`                     // minutes of the last day
	Week       []Point `json:"-"`                     // tens of minutes of the last week
	ClockAhead float64 `json:"clock_ahead_seconds,omitempty"`
}

// WorkerCount is how many workers are in each state.
type WorkerCount struct {
	Idle     int `json:"idle"`
	Busy     int `json:"busy"`
	Offline  int `json:"offline"`
	Draining int `json:"draining"`
	Unknown  int `json:"unknown"`
}

// All is how many workers there are.
func (c WorkerCount) All() int { return c.Idle + c.Busy + c.Offline + c.Draining + c.Unknown }

// Longest is the longest wait that was seen.
type Longest struct {
	Key     string    `json:"key,omitempty"`
	Name    string    `json:"name,omitempty"`
	Project string    `json:"project,omitempty"`
	Seconds float64   `json:"seconds"`
	At      time.Time `json:"at,omitzero"` // when it ended, or was looked at last
}

// Build is one that waits, is blocked, or runs. Times are by our clock.
type Build struct {
	cimeter.Job
	On string `json:"on"` // name of its Server in State
	// Waited is how long it waits, or waited until it started; absent where nothing
	// tells when it began.
	Waited cimeter.Opt[float64] `json:"waited_seconds,omitzero"`
	Why    Why                  `json:"why,omitempty"` // what it waits for now, or does before its first stage
	Wait   Wait                 `json:"wait"`          // how its time so far is split
	Ran    cimeter.Opt[float64] `json:"ran_seconds,omitzero"`
	// Metered says that an agent meters it: where it runs is Machine and its stage
	// now is Stage.
	Metered bool   `json:"metered"`
	Stage   string `json:"stage,omitempty"`
	// Start is when it will run, as far as the last waits for the same tags tell;
	// absent with fewer than 20 of them.
	Start cimeter.Opt[Estimate] `json:"start,omitzero"`
}

// Estimate is in how many seconds from now a build will start: half of the builds
// that waited as long started before Seconds, half of those within the span.
type Estimate struct {
	Seconds float64 `json:"seconds"`
	Low     float64 `json:"low_seconds"`
	High    float64 `json:"high_seconds"`
	Samples int     `json:"samples"`
}

// Why is what a build waits for.
type Why string

// What a build waits for. Only the first two can be told from the CI server alone.
const (
	WhyUnknown   Why = ""
	WhyNoWorker  Why = "no_worker" // no worker that takes builds has the tags
	WhyNoSlot    Why = "no_slot"   // those that have the tags are full
	WhyStarting  Why = "starting"  // a worker took it, and no agent has seen anything of it: a machine starts
	WhyPull      Why = "pull"      // an image is pulled
	WhyPreparing Why = "preparing" // its first containers run, and its own commands do not
)

// Wait is how long a build waited for what, in seconds. What nothing told is
// Unknown; so the sum is the time from being queued to its own first command, or
// to now.
type Wait struct {
	NoWorker  float64 `json:"no_worker_seconds"`
	NoSlot    float64 `json:"no_slot_seconds"`
	Starting  float64 `json:"starting_seconds"`
	Pull      float64 `json:"pull_seconds"`
	Preparing float64 `json:"preparing_seconds"`
	Unknown   float64 `json:"unknown_seconds"`
}

// Sum is the seconds of all parts.
func (w Wait) Sum() float64 {
	return w.NoWorker + w.NoSlot + w.Starting + w.Pull + w.Preparing + w.Unknown
}

// Worker is one with the builds that it has, as far as they are known.
type Worker struct {
	cimeter.Worker
	On    string    `json:"on"`               // name of its Server in State
	At    time.Time `json:"told_at,omitzero"` // when it was told of last
	Stale bool      `json:"stale,omitempty"`  // as its server is
}

// Point is one minute of a server's history: means of what was seen in it. The
// percentiles are of the waits of the builds that were waiting at its end.
type Point struct {
	At      int64   `json:"at"` // seconds since 1970 of its end
	Waiting float32 `json:"waiting"`
	Blocked float32 `json:"blocked"`
	Running float32 `json:"running"`
	Slots   float32 `json:"slots"` // NaN is not known
	P50     float32 `json:"p50"`   // seconds; NaN: nothing waited
	P95     float32 `json:"p95"`
}
