package queue_test

import (
	"fmt"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

// placed is a job of GitHub that runs on a runner since some second.
func placed(id int, runner string, since float64) cimeter.Job {
	return cimeter.Job{
		Build: cimeter.Build{Key: fmt.Sprintf("github/github.com/Org/app/77/job/%d", id), CI: "github", Server: "github.com", Project: "Org/app", Number: fmt.Sprint(id), Name: "Any name", Attempt: 2, Pipeline: "77",
			Runner: cimeter.Runner{Name: runner}},
		Status: cimeter.JobRunning, CreatedAt: at(0), QueuedAt: at(0), StartedAt: at(since), Worker: runner,
	}
}

// A build that its agent knows under another key is shown as the build that it is, under
// that key, while run, runner and time leave no doubt.
func TestBoard_place(t *testing.T) {
	j := placed(1, "big-1", 10)
	place := j.Place()
	agent := queue.AgentBuild{Key: "github/github.com/Org/app/77/2/big-1/test", Machine: "ci-7", Stage: "__run", StartedAt: at(14), Place: place, Attempt: 2}
	change := func(change func(*queue.AgentBuild)) []queue.AgentBuild {
		a := agent
		change(&a)
		return []queue.AgentBuild{a}
	}
	ended := j
	ended.Status, ended.EndedAt = cimeter.JobSuccess, at(19)
	for name, test := range map[string]struct {
		told   float64 // when the server said that it runs
		hooks  bool    // the server is not asked
		jobs   []cimeter.Job
		agents []queue.AgentBuild
		joined bool
	}{
		"sure":                              {20, false, []cimeter.Job{j}, []queue.AgentBuild{agent}, true},
		"a pod that waited for its job":     {20, false, []cimeter.Job{j}, change(func(a *queue.AgentBuild) { a.Attempt, a.StartedAt = 0, at(-4000) }), true},
		"clocks a bit apart":                {20, false, []cimeter.Job{j}, change(func(a *queue.AgentBuild) { a.StartedAt = at(-5) }), true},
		"by webhooks":                       {11, true, []cimeter.Job{j}, []queue.AgentBuild{agent}, true},
		"by webhooks, it has just begun":    {11, true, []cimeter.Job{j}, change(func(a *queue.AgentBuild) { a.StartedAt = at(29) }), false},
		"told before the agent saw it":      {12, false, []cimeter.Job{j}, []queue.AgentBuild{agent}, false},
		"another attempt":                   {20, false, []cimeter.Job{j}, change(func(a *queue.AgentBuild) { a.Attempt = 1 }), false},
		"another runner":                    {20, false, []cimeter.Job{placed(1, "big-2", 10)}, []queue.AgentBuild{agent}, false},
		"a build from before":               {20, false, []cimeter.Job{j}, change(func(a *queue.AgentBuild) { a.StartedAt = at(-40) }), false},
		"two that run there":                {20, false, []cimeter.Job{j, placed(2, "big-1", 11)}, []queue.AgentBuild{agent}, false},
		"two that are metered there":        {20, false, []cimeter.Job{j}, append(change(func(a *queue.AgentBuild) { a.Key += "/x" }), agent), false},
		"one that ended, and one that runs": {20, false, []cimeter.Job{ended, placed(2, "big-1", 13)}, []queue.AgentBuild{agent}, true},
		"an agent that knows no place":      {20, false, []cimeter.Job{j}, change(func(a *queue.AgentBuild) { a.Place = "" }), false},
	} {
		source := queue.Source{Name: "s", CI: "github", Interval: 10e9}
		if test.hooks {
			source.Interval = 0
		}
		b := queue.NewBoard(queue.Options{Start: at(-1), Servers: []queue.Source{source}})
		r := queue.Report{At: at(test.told), Jobs: test.jobs, WholeJobs: !test.hooks, WholeWorkers: true}
		r.Workers = []cimeter.Worker{{ID: "big-1", Name: "big-1", State: cimeter.WorkerBusy, Builds: []string{test.jobs[len(test.jobs)-1].Key}}}
		b.Add("s", !test.hooks, r)
		b.Look(at(30), test.agents)
		st := b.State(at(30))
		last := st.Builds[len(st.Builds)-1]
		if last.Metered != test.joined || last.Metered && (last.Key != agent.Key || last.Machine != "ci-7" || last.Stage != "__run") || !last.Metered && last.Key == agent.Key {
			t.Errorf("%s: %+v: want it joined %v", name, last, test.joined)
		}
		if w := st.Workers[0]; test.joined && (len(w.Builds) != 1 || w.Builds[0] != agent.Key) {
			t.Errorf("%s: the worker has %v", name, w.Builds)
		}
	}
	// The end is told of under the server's own key, with what the agent saw.
	b := queue.NewBoard(queue.Options{Start: at(-1), Servers: []queue.Source{{Name: "s", CI: "github", Interval: 10e9}}})
	b.Add("s", true, queue.Report{At: at(20), WholeJobs: true, Jobs: []cimeter.Job{j}})
	b.Look(at(21), []queue.AgentBuild{agent})
	b.Add("s", true, queue.Report{At: at(22), Jobs: []cimeter.Job{ended}})
	if over := b.Look(at(25), nil); len(over) != 1 || over[0].Key != j.Key || over[0].Wait.Starting != 4 {
		t.Errorf("%+v: want one that was starting for 4 s", over)
	}
}
