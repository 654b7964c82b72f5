// Package agent is the role that meters the builds on one machine.
//
// It owns the goroutines of metering and their schedule: the meter, which alone
// touches counters and the ledger and never waits for anything but the kernel's
// own events; a follower and an inspector for each container engine; the follower
// of processes outside of containers; two pollers of the runners' job lists, for
// stages and for pulls of images; and the writer of records and checkpoints. Their
// number is fixed. Retry, back-off, bounds and logging live here; adapters make
// one try each.
//
// The entry point is [New], then [Agent.Run]. Data flows one way: the kernel
// tells the meter of cgroups and exits, the engine tells whose they are, the
// ledger books what was spent, and finished records go to the writer.
package agent

import (
	"context"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/tally"
)

// Options are what an agent needs. Tally, Records and Identify must be set.
type Options struct {
	Machine    string
	Interval   time.Duration // between two rounds of sampling
	FullEvery  int           // every how many rounds the dear files are read
	Grace      time.Duration // see attrib.Options
	Quiet      time.Duration // see attrib.Options
	CgroupRoot string
	ProcRoot   string
	SysRoot    string
	// WakeBlockIO asks for block IO to be counted on cgroup v1, where some
	// kernels count nothing until asked.
	WakeBlockIO bool
	// ContainerInfo exports a series for each running container of a build.
	ContainerInfo bool
	// NoTrace leaves the shape over time out of the records.
	NoTrace bool

	Engines  []NamedEngine // none: no container engine is followed
	Identify ci.Identifier
	// InspectAll asks for every container's environment: rules match on it.
	InspectAll bool
	Stager     func(ci string) attrib.Stager
	// CommandStage tells the stage that a process is part of by its command
	// line, which is compared and not kept. The identity's zero value: it is not known
	// whose the container is.
	CommandStage func(id *cimeter.Identity, cmdline []byte) CommandTold
	// Processes say how builds are found that run in no container; nil: not at all.
	Processes *Processes
	// JobLists are the live lists of jobs of the runners on this machine.
	JobLists []JobList

	Tally   *tally.Table
	Records Records

	// Alive is called by the goroutine that meters, at least every AliveEvery: for the
	// first time when the containers that run are known. nil: nobody asks.
	Alive      func(now time.Time)
	AliveEvery time.Duration
}

// NamedEngine is an engine with its name for logs and metrics. No two have one.
type NamedEngine struct {
	Name string
	Engine
}

// Engine is a container engine: it says what the containers are. Each call is
// one try; errors wrap the domain's codes.
type Engine interface {
	// List returns all containers, running or not.
	List(ctx context.Context) ([]cimeter.Container, error)
	// Inspect returns one container. cimeter.ErrNotFound: it is gone.
	Inspect(ctx context.Context, id string) (cimeter.Container, error)
	// Follow calls fn for each event from since on until the stream breaks.
	Follow(ctx context.Context, since time.Time, connected func(), fn func(cimeter.ContainerEvent)) error
}

// JobList asks one runner which of its jobs are in which stage, once.
type JobList interface {
	Jobs(ctx context.Context) ([]Job, error)
}

// Job is one running job as its runner tells it.
type Job struct {
	Key   string // build key
	Stage string // "" before its first stage
	Pulls bool   // it waits for an image that its runner pulls
}

// Records keeps finished records and the checkpoints of running builds. An
// acknowledged write is durable. Safe for concurrent use.
type Records interface {
	// Put is idempotent by key; cimeter.ErrConflict: another record has the key.
	Put(r *cimeter.Record) error
	Checkpoint(key string, state []byte) error
	DropCheckpoint(key string) error
	Checkpoints(fn func(key string, state []byte) error) error
}
