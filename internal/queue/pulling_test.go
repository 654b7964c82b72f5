package queue_test

import (
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

// While a runner says that it pulls an image, that is what its build waits for: before
// any container of it is there, and while it is prepared, but not beside its own commands.
func TestBoard_pulling(t *testing.T) {
	j := job(1, cimeter.JobRunning)
	j.StartedAt = at(10)
	pulls := queue.AgentBuild{Key: j.Key, PullingSince: at(14)}
	runs := queue.AgentBuild{Key: j.Key, Machine: "ci-7", StartedAt: at(12), Stage: "prepare_script"}
	script := runs
	script.Stage = "step_script"
	other := queue.AgentBuild{Key: job(2, "").Key, PullingSince: at(14)}
	for name, test := range map[string]struct {
		agents  []queue.AgentBuild
		why     queue.Why
		metered bool
		wait    queue.Wait
	}{
		"before its containers": {[]queue.AgentBuild{pulls}, queue.WhyPull, false, queue.Wait{Starting: 4, Pull: 16}},
		"while it is prepared":  {[]queue.AgentBuild{runs, pulls}, queue.WhyPull, true, queue.Wait{Starting: 2, Preparing: 2, Pull: 16}},
		"beside its commands":   {[]queue.AgentBuild{pulls, script}, queue.WhyUnknown, true, queue.Wait{Starting: 2}},
		"of another":            {[]queue.AgentBuild{runs, other}, queue.WhyPreparing, true, queue.Wait{Starting: 2, Preparing: 18}},
	} {
		b := newBoard()
		b.Add(server, false, one(11, j))
		b.Look(at(30), test.agents)
		got := b.State(at(30)).Builds[0]
		if got.Why != test.why || got.Metered != test.metered || got.Wait != test.wait {
			t.Errorf("%s: %q, metered %v, %+v: want %q, %v, %+v", name, got.Why, got.Metered, got.Wait, test.why, test.metered, test.wait)
		}
		b.Look(at(31), nil)
		if got := b.State(at(31)).Builds[0]; got.Why == queue.WhyPull {
			t.Errorf("%s: it waits for its image though nobody says so", name)
		}
	}
}
