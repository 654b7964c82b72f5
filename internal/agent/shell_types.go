package agent

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/process"
	"github.com/cimeter/cimeter/internal/procevents"
)

// Processes say how builds are found that run in no container.
type Processes struct {
	// Events asks for the kernel's process events where they may be had. Without
	// them processes are found by looking once in an interval.
	Events bool
	// Must says that nothing but events will do.
	Must bool
	// Runner tells by a program's name whether it is a CI runner.
	Runner func(comm []byte) process.RunnerKind
	// Variables are the only ones that are read of a process's environment, for
	// Identify.
	Variables []string
	Identify  ci.ProcessIdentifier
	// Stage tells by the command line of a process, which is compared and not
	// kept, the stage of its build: for good (fixed), or as evidence for a
	// Stager. first is set for a process that the runner itself started. open is
	// false where command lines of that CI system tell nothing.
	Stage func(ci string, first bool, cmdline []byte) (stage string, fixed, ok, open bool)
	// Container stands for a container's name in what a Stager is told.
	Container string
	// OneJob reports whether a runner of that CI system has one job in its life:
	// the build lasts as long.
	OneJob func(ci string) bool
	// OneAtATime reports whether a runner runs the programs of a build of that CI
	// system one after the other.
	OneAtATime func(ci string) bool
	// Leaves reports whether what a runner of that CI system starts leaves it at once
	// and works on.
	Leaves func(ci string) bool
	// Pauses reports whether builds of that CI system have times in which no
	// process of theirs runs.
	Pauses func(ci string) bool
}

const (
	// resumeFor is how long after a start a build's processes are taken up again: whose
	// they are may be told by the next of them only.
	resumeFor = 5 * time.Second
	// idleScan is the time between two looks for a runner while there is none: a
	// look at 3,000 processes takes 10 to 30 ms. A runner that waits for builds counts.
	idleScan = 30 * time.Second
	// scanCostTimes is how many times as long as a look took there is none, while there
	// is no runner: it costs 0.05 % of a core, up to a time of twice idleScan.
	scanCostTimes = 2000
	// gatherOthers and gatherYoung are how long events are left to gather that are
	// other processes' for the most part; the latter within quickFor of a runner's or a
	// family's birth, or its end: what a runner itself starts for a stage tells which it is, and one
	// stage follows another. To wake for each would cost more than all that is done for
	// it. It is not done while a family is not known for whose it is: its processes tell
	// that, and may be short.
	gatherOthers = 40 * time.Millisecond
	gatherYoung  = 20 * time.Millisecond
	quickFor     = 5 * time.Second
	// checkScan is the time between two looks at all processes beside events.
	checkScan = 2 * time.Minute
	// fullScan is the same where there are none: in between, children of those that
	// are known are looked for.
	fullScan = 5 * time.Second
	// eventsAgain is the time after which events are asked for again that could
	// not be had, and after which they are not asked for any more without a runner.
	eventsAgain = time.Minute
	// giveUpAfter is how long it is waited for a family's processes to tell whose it is.
	giveUpAfter = 30 * time.Second
	// stageLooks is how many processes of a family are looked at for the stage that
	// it is: what a runner itself starts in a stage comes first.
	stageLooks = 24
	// leftOver is how long after the end of the last process that a runner
	// started for a build what is left of it (daemons) still counts.
	leftOver = 10 * time.Second
	// leavesFor is the same where the CI system has its programs leave the runner: it
	// ends by itself what a build leaves behind, unless the build forbids that.
	leavesFor = 24 * time.Hour
	// pauseFor is how long a build may have no process, where the CI system makes such
	// pauses; agent.quiet where that is less.
	pauseFor = time.Minute
	// maxFamilyFds bounds the pidfds that tell of ends where events do not.
	maxFamilyFds = 1024
)

// shells follow the builds that run in no container. Its goroutine has the
// forest; the list, and what is in it, is under the lock.
type shells struct {
	*Agent
	opts    *Processes
	forest  *process.Forest
	conn    *procevents.Conn // nil: no events
	epoll   int
	wake    int
	pidfds  map[int]int // of first processes, to pidfd
	events  [256]procevents.Event
	ready   [64]unix.EpollEvent
	pause   [1]unix.PollFd
	lost    bool // events were: all processes are to be looked at
	refused bool // that variables may not be read was logged
	// Of the events that were read last: how many were of processes that are
	// followed, and whether that is most of them, or a family is not known yet.
	own     int
	ours    bool
	unknown int  // families of which it is not known whose they are
	first   bool // the first scan is being done
	gauges  shellGauges
	counts  process.ForestStats

	scanned, asked, runnerSeen time.Time
	scanCost                   time.Duration // CPU time of the last scan
	stirred                    time.Time     // when a runner last came, or a family came or ended

	ends map[runnersBuild]time.Duration // see contest

	inboxMu sync.Mutex
	inbox   []func() // to be called by the goroutine
	done    bool     // it does not any more

	mu      sync.Mutex
	list    []*shell
	holders map[string]int // runners that hold a build open, to their pid
	freed   []string       // those of them that have ended, not told to the ledger yet

	pausing []pause // the meter's
}

// pause is a build that may go on though no process of it runs.
type pause struct {
	id    string // of its last family
	until time.Time
}

// shell is a family of processes.
type shell struct {
	family *process.Family // the goroutine's of the forest; the rest is under the lock

	id       string
	start    uint64
	started  time.Time
	ended    time.Time // zero while it lives
	exit     cimeter.Opt[int]
	late     bool // it ran before the agent
	scanned  bool // it was followed by looking, at least for a time
	known    bool // identity is
	identity cimeter.Identity
	holder   string // what holds the build open: its runner; "": nothing
	command  string // stage that a command line told
	fixed    bool   // command is the stage, not only evidence for it
	sample   cimeter.Sample
	dropped  bool // of no build
	// How the sample's memory is told (see process.Family); and as what the ledger
	// has been told of it.
	proportional bool
	memory       string

	counted   bool // in shells.unknown
	contested bool // another one claims its build: nothing of it is told

	// The meter's.
	segment *attrib.Segment
	told    bool // command was told to the ledger
}
