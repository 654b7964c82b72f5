// Package attrib attributes what segments spend to the stages of builds and
// makes the record of a build when it is over.
//
// It owns the ledger: which builds run, which segment (the life of one cgroup)
// belongs to which of their stages, and the accounts of both. It does no input
// or output, reads no clock, starts no goroutine and logs nothing: every method
// takes the time at which its caller observed what it says. It is not safe for
// concurrent use; the agent's meter goroutine owns it.
//
// The entry point is [New]. A [Segment] comes to be when its cgroup is seen and
// is advanced by samples from then on; [Ledger.Bind] gives it to a build as
// soon as its identity is known, which may be after its end. Two sums hold by
// construction: what the parts of a segment spent is the segment's rise, and
// what the segments of a build spent is the build's total.
package attrib

import (
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/tally"
)

// Options are what a ledger needs to know. Tally must be set.
type Options struct {
	Machine string
	// Interval is the nominal time between ticks. After more than five of them
	// (and at least five seconds) without a tick the build has a gap.
	Interval time.Duration
	// Grace is how long a build whose containers are gone stays open for more.
	Grace time.Duration
	// Quiet is how long a build whose containers exist, but do not run, stays
	// open: between two steps a runner may pull an image for minutes.
	Quiet time.Duration
	// Tally takes the counters of running stages.
	Tally *tally.Table
	// Stager returns what tells the stages of a build of the given CI system
	// whose containers do not tell it themselves, or nil.
	Stager func(ci string) Stager
}

// Bounds of what one ledger and one build hold.
const (
	// maxBuilds is far over what a machine can run: a flood of forged identities
	// ends here.
	maxBuilds = 4096
	// rememberFinished is how long a build that is over is known as such:
	// longer than a runner's clean-up may lag behind.
	rememberFinished = time.Hour
	// maxParts is over any real build's number of container starts and stage
	// boundaries; further ones join the last.
	maxParts = 1024
	// maxStages keeps a record far below what is stored and sent of one, 1 MiB, at
	// 2 KiB a stage; further stages are added up as one.
	maxStages = 256
	// maxEvidence bounds what is kept to tell a stager again after a restart.
	maxEvidence = 4 * maxParts
	// maxGaps keeps a flapping agent from growing a record.
	maxGaps = 64
	// exitAfter is how long the end of a segment waits for its exit code before
	// the stager is told without.
	exitAfter = 2 * time.Second
	// decideAfter is how long the usage of a running segment may wait for a
	// final stage name before the best guess is taken for the counters.
	decideAfter = 3 * time.Second
)

// Stager tells the stages of one build's segments from evidence. Segments are
// numbered in the order in which they start. A Stager is pure and owned by the
// ledger.
type Stager interface {
	// Missed says that the build began before its first segment that is told.
	Missed()
	// Started says that segment seg, a start of the named container, began.
	Started(seg int, role cimeter.Role, container string)
	// Command says that a process in seg is one that the runner runs in stage.
	Command(seg int, stage string)
	// JobList says that the runner's list of jobs showed stage while seg ran,
	// asked for after seg began.
	JobList(seg int, stage string)
	// Ended says that segment seg ended, with the container's exit code.
	Ended(seg int, exit cimeter.Opt[int])
	// Finish says that the build is over.
	Finish()
	// Stage tells the stage of seg as known so far.
	Stage(seg int) StageName
}

// StageName is what a Stager says of a segment.
type StageName struct {
	Name    string
	Attempt int
	Source  cimeter.Boundary
	Final   bool // nothing later can change it
}
