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
	StartedAt time.Time // when its first container started
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
	if len(workers.workers) == 0 || j.Tags == nil {
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

// WaitOf is how the time of a finished build from being queued to its own first
// command was split, as far as a CI server's account of it and the agent's record of
// the same build tell. What was seen while it waited is spent, as [Board.State] had it;
// the zero Wait is nothing.
func WaitOf(j *cimeter.Job, r *cimeter.Record, spent Wait) Wait {
	w := queued(spent, waitedOf(j))
	if r == nil || j.StartedAt.IsZero() || r.StartedAt.IsZero() {
		return w
	}
	w.Starting = max(0, r.StartedAt.Sub(j.StartedAt).Seconds())
	for i := range r.Stages {
		if s := &r.Stages[i]; s.Name != "" && preparing(s.Name) {
			w.Preparing += max(0, s.EndedAt.Sub(s.StartedAt).Seconds())
		}
	}
	return w
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
