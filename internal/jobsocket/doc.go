// Package jobsocket is the unix socket on which a job asks the agent of its
// machine what it has cost so far; both ends of it.
//
// It owns the socket's file, who may be answered, and the bounds: connections,
// bytes, deadlines, questions a second. A caller is known by what the kernel
// says of its process and by nothing that it sends: there is one question, and
// no name, path or id in it. It never tells one build of another, never waits
// for a slow caller longer than a second, and never holds up the meter.
//
// The exchange, so that no process can be taken for another:
//
//	job    connects; the agent takes hold of the process that SO_PEERCRED names
//	agent  cimeter-job 1 <nonce>\n
//	job    summary <nonce>\n
//	agent  one [Answer] as JSON, and ends
//
// The kernel stamps the question with the process that sent it (SCM_CREDENTIALS).
// It was sent after the nonce, so after the hold; if it has the held process's
// number and that process still lives, it was that process, whatever became of
// the one that connected.
//
// Entry points: [Listen] and [Server.Serve] in the agent, [Ask] in a job. A
// Server has a goroutine for each connection and at most two that ask for
// history; Serve returns when all are gone.
package jobsocket

import (
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/summary"
)

// DefaultPath is where a job finds the socket when nothing else is said.
const DefaultPath = "/run/cimeter/job.sock"

// Answer is what a job is told: the account so far of its own build.
type Answer struct {
	Record  *cimeter.Record `json:"record"`
	Stage   string          `json:"stage,omitempty"`   // that runs now
	Usual   *summary.Usual  `json:"usual,omitempty"`   // nil: not known
	Machine cimeter.Limits  `json:"machine,omitzero"`  // what the machine has
	URL     string          `json:"url,omitempty"`     // the build's page
	Problem string          `json:"problem,omitempty"` // why there is no record
}

// The bounds.
const (
	maxConnections = 8                      // at once: a job asks once or twice in its life
	maxOfOne       = 2                      // of them from one scope (see Caller)
	maxQuestion    = 64                     // bytes
	maxGreeting    = 64                     // bytes
	maxAnswer      = 4 << 20                // bytes: a build of a thousand stages
	deadline       = time.Second            // of one connection, all in all
	historyTime    = 150 * time.Millisecond // that an answer waits for what is usual
	askAgain       = 200 * time.Millisecond // until then a scope gets the same answer
	perSecond      = 200                    // connections: one costs the agent 0.1 ms
	burst          = 32
)

// The problems that a job is told of. They say nothing of other builds.
const (
	problemUnknown = "the agent knows no build of which this process is a part"
	problemUnseen  = "the agent cannot see this process: it must run in the host's process namespace"
	problemBusy    = "the agent did not answer in time"
)
