package queue

import (
	"time"

	"github.com/cimeter/cimeter"
)

// beganBefore is how long an agent may see a build before its server says that it
// began: clocks of machines are that good.
const beganBefore = 30 * time.Second

// settles is how long a build runs until a server that is not asked can be believed to
// have told of the end of the one before it.
const settles = 15 * time.Second

// place finds the builds of a server that agents know under another key: see
// [cimeter.Build.Place]. What an agent tells is then there under the server's key too,
// as long as one build alone of those that run is where the agent's is. It is a view:
// nothing is kept of it, and the next look finds out anew.
func (b *Board) place(s *server, agents []AgentBuild, now time.Time) {
	at := map[string]*AgentBuild{}
	for i := range agents {
		a := &agents[i]
		if a.Place == "" {
			continue
		}
		if _, twice := at[a.Place]; twice {
			at[a.Place] = nil
		} else {
			at[a.Place] = a
		}
	}
	if len(at) == 0 {
		return
	}
	type one struct {
		key string // "": several run there
		job cimeter.Job
		e   *entry
	}
	run := map[string]one{}
	for key, e := range s.jobs {
		if e.rank() != rankRunning || !s.active(e) {
			continue
		}
		j, _, _ := e.job(s.ahead())
		p := j.Place()
		if at[p] == nil {
			continue
		}
		if _, twice := run[p]; twice {
			key = ""
		}
		run[p] = one{key, j, e}
	}
	for p, r := range run {
		a := at[p]
		// The pod of a runner (ARC), which knows no attempt, is there before its one job.
		early := a.Attempt != 0 && a.StartedAt.Before(r.job.StartedAt.Add(-beganBefore))
		if r.key == "" || r.job.StartedAt.IsZero() || early || !r.job.SameAttempt(&cimeter.Build{Attempt: a.Attempt}) {
			continue
		}
		// Else it may be the one before, whose end was not told yet.
		if told := latest(r.e.at(), r.e.polled); s.Interval > 0 && told.Before(a.StartedAt) || s.Interval == 0 && now.Sub(a.StartedAt) < settles {
			continue
		}
		b.agents[r.key] = *a
	}
}

// keyOf is the key under which a build is shown: an agent's, where one meters it.
func (b *Board) keyOf(key string) string {
	if a, ok := b.agents[key]; ok {
		return a.Key
	}
	return key
}
