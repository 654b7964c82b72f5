package queue

import (
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

// AgentBuild is a build as the agent that meters it tells.
type AgentBuild struct {
	Key       string
	Machine   string
	Stage     string    // that runs now
	BootedAt  time.Time // when its machine did; zero: not known
	PulledAt  time.Time // when the last image that it needed was there; zero: none was pulled
	StartedAt time.Time // when its first container started
	// PullingSince is not zero for a build that waits for an image, as its runner says:
	// nothing else is told of it then.
	PullingSince time.Time
	// Place and Attempt are those of the build where its server has another key for it:
	// see [cimeter.Build.Place]. "" and 0: it has the same, or it is not known.
	Place   string
	Attempt int
}

// startingTime is how long a build whose worker has it can be believed to wait for a
// machine. One that no agent has seen by then runs where there is none.
const startingTime = 15 * time.Minute

func matches(has, wanted, ci string) bool {
	if ci == "github" { // its labels are the same in any case
		return strings.EqualFold(has, wanted)
	}
	name, any := strings.CutSuffix(has, "=*")
	return any && strings.HasPrefix(wanted, name+"=")
}

// whyWaiting is what a build that waits for a worker waits for, as far as the
// server's workers tell. Nothing is told where some of them are not known.
func whyWaiting(j *cimeter.Job, workers *pool) Why {
	switch {
	case j.Tags == nil:
		return WhyUnknown
	case len(workers.workers) == 0 && !workers.every:
		return WhyUnknown
	}
	any, free, sure := false, false, true
	workers.fitting(j.Tags, func(w *cimeter.Worker) bool {
		is := full(w)
		any, free, sure = true, is.Known && !is.Value, sure && is.Known
		return !free
	})
	switch {
	case free: // why it does not take the build is not known
		return WhyUnknown
	case !any:
		return WhyNoWorker
	case sure:
		return WhyNoSlot
	}
	return WhyUnknown
}

// preparing reports whether a stage comes before a build's own commands.
func preparing(stage string) bool {
	return stage == "" || strings.HasPrefix(stage, "prepare")
}

// waitedOf is how long a build that started had waited, in seconds.
func waitedOf(j *cimeter.Job) cimeter.Opt[float64] {
	switch {
	case j.QueueSeconds.Known:
		return j.QueueSeconds
	case j.StartedAt.IsZero():
	case !j.QueuedAt.IsZero():
		return cimeter.Some(max(0, j.StartedAt.Sub(j.QueuedAt).Seconds()))
	}
	return cimeter.Opt[float64]{}
}

// queued is what was seen of a wait, within the wait: what was not seen is unknown.
func queued(spent Wait, waited cimeter.Opt[float64]) Wait {
	if !waited.Known {
		return Wait{NoWorker: spent.NoWorker, NoSlot: spent.NoSlot}
	}
	w := Wait{NoWorker: min(spent.NoWorker, waited.Value)}
	w.NoSlot = min(spent.NoSlot, waited.Value-w.NoWorker)
	w.Unknown = max(0, waited.Value-w.NoWorker-w.NoSlot)
	return w
}
