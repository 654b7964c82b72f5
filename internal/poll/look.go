package poll

import (
	"context"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/tally"
)

// lookEvery is the time between two looks at the board: reasons and history are as
// fine as that.
const lookEvery = 5 * time.Second

// maxInfos bounds the workers that have an info series.
const maxInfos = 2000

// look looks at the board until ctx ends.
func (p *Poller) look(ctx context.Context) {
	for sleep(ctx, lookEvery) {
		p.Look()
	}
}

// Look looks at the board once: metrics are as it is then. Run does so every few
// seconds.
func (p *Poller) Look() {
	now := p.o.Now()
	var agents []queue.AgentBuild
	if p.o.Agents != nil {
		agents = p.o.Agents()
	}
	ended := p.board.Look(now, agents)
	leads := p.leads()
	if leads { // else another server counts them
		for i := range ended {
			p.shown.ended(&ended[i])
		}
	}
	p.shown.state(p.board.State(now), leads)
	p.shown.dropped(p.board.Dropped())
}

// shown is what the metrics show.
type shown struct {
	tally   *tally.Table
	workers map[string][6]string // labels of the infos, by key
	told    queue.Dropped
}

func (s *shown) state(st queue.State, leads bool) {
	for i := range st.Servers {
		v := &st.Servers[i]
		set := func(metric, label string, n cimeter.Opt[int]) {
			if g := s.tally.Value(metric, v.Name, label); n.Known && leads {
				g.Set(float64(n.Value))
			} else {
				g.Clear()
			}
		}
		set(catalog.QueueBuilds, "waiting", v.Waiting)
		set(catalog.QueueBuilds, "blocked", v.Blocked)
		set(catalog.QueueBuilds, "running", v.Running)
		c := v.Workers.Value
		for state, n := range map[string]int{"idle": c.Idle, "busy": c.Busy, "offline": c.Offline, "draining": c.Draining, "unknown": c.Unknown} {
			set(catalog.Workers, state, cimeter.Opt[int]{Value: n, Known: v.Workers.Known && (n > 0 || state != "unknown")})
		}
	}
	seen := map[string][6]string{}
	for i := range st.Workers[:min(len(st.Workers), maxInfos)] {
		if w := &st.Workers[i]; leads {
			key, labels := w.On+"\n"+w.ID, [6]string{w.On, w.ID, w.Name, w.Runner.Key(), w.Version, w.Platform}
			seen[key] = labels
			if s.workers[key] != labels {
				s.tally.SetInfo(catalog.WorkerInfo, key, labels[:]...)
			}
		}
	}
	for key := range s.workers {
		if _, ok := seen[key]; !ok {
			s.tally.RemoveInfo(catalog.WorkerInfo, key)
		}
	}
	s.workers = seen
}

func (s *shown) ended(j *queue.Ended) {
	server, result := j.On, string(j.Status)
	of := tally.Exemplar{Build: j.Key, At: j.EndedAt}
	switch {
	case j.StartedAt.IsZero():
		return // it never ran: neither a wait that ended nor a duration
	case j.QueueSeconds.Known:
		s.tally.Distribution(catalog.JobQueue, server, j.Project, result).Observe(j.QueueSeconds.Value, of)
	case !j.QueuedAt.IsZero():
		s.tally.Distribution(catalog.JobQueue, server, j.Project, result).Observe(j.StartedAt.Sub(j.QueuedAt).Seconds(), of)
	}
	for reason, seconds := range map[string]float64{
		"no_worker": j.Wait.NoWorker, "no_slot": j.Wait.NoSlot, "starting": j.Wait.Starting, "pull": j.Wait.Pull, "preparing": j.Wait.Preparing, "unknown": j.Wait.Unknown,
	} {
		s.tally.Value(catalog.QueueWaited, server, reason).Add(seconds)
	}
	if !j.EndedAt.IsZero() {
		s.tally.Distribution(catalog.JobDuration, server, j.Project, result).Observe(j.EndedAt.Sub(j.StartedAt).Seconds(), of)
	}
}

func (s *shown) dropped(d queue.Dropped) {
	for _, c := range []struct {
		reason   string
		was, now uint64
	}{{"builds", s.told.Builds, d.Builds}, {"workers", s.told.Workers, d.Workers}, {"unusable", s.told.Unusable, d.Unusable}} {
		s.tally.Value(catalog.ServerSourceDropped, c.reason).Add(float64(c.now - c.was))
	}
	s.told = d
}
