package server

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/wire"
)

const (
	maxAgents   = 20_000 // ten times the fleet that is aimed for
	maxFleet    = 50_000 // running builds that are kept, over all agents
	missedBeats = 3      // after so many an agent counts as away
	keepAway    = 24 * time.Hour
	lookEvery   = 5 * time.Second
)

// agent is what one agent said last. Nothing that its slices and pointers lead
// to is changed: who is given them needs no lock.
type agent struct {
	beat    wire.Heartbeat
	seen    time.Time
	now     *httpapi.HostRates
	builds  []httpapi.BuildRates
	history []httpapi.HostPoint
}

// take takes a heartbeat that came at now.
func (a *agent) take(h wire.Heartbeat, now time.Time) {
	seconds := span(&a.beat, &h, a.seen, now)
	a.now = hostRates(a.beat.Host, h.Host, seconds)
	a.builds = buildRates(a.beat.Running, a.builds, h.Running, seconds)
	if n := len(a.history); a.now != nil && (n == 0 || now.Unix()-a.history[n-1].At >= int64(pointEvery.Seconds())) {
		a.history = push(a.history, pointOf(a.now, now), maxPoints)
	}
	a.beat, a.seen = h, now
}

// fleet is what the agents say, in memory: it is told anew every few seconds.
type fleet struct {
	known, running, dropped *tally.Value

	mu     sync.Mutex
	agents map[string]*agent
	order  []*agent // the same, by machine and agent
	builds int
}

func compareAgents(a, b *agent) int {
	return cmp.Or(cmp.Compare(a.beat.Machine, b.beat.Machine), cmp.Compare(a.beat.Agent, b.beat.Agent))
}

// place puts a where it belongs in the order, or takes it out. f.mu is held.
func (f *fleet) place(a *agent, in bool) {
	at, _ := slices.BinarySearchFunc(f.order, a, compareAgents)
	if in {
		f.order = slices.Insert(f.order, at, a)
	} else if at < len(f.order) && f.order[at] == a {
		f.order = slices.Delete(f.order, at, at+1)
	}
}

func (a *agent) away(now time.Time) bool {
	return now.Sub(a.seen).Seconds() > missedBeats*a.beat.IntervalSeconds+1
}

// Heartbeat implements [httpapi.Ingest].
func (s *Server) Heartbeat(h wire.Heartbeat) {
	s.heartbeats.Add(1)
	now := s.o.Now()
	f := &s.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.agents[h.Agent]
	moved := a == nil || a.beat.Machine != h.Machine
	if a == nil {
		if len(f.agents) >= maxAgents {
			f.dropped.Add(1)
			return
		}
		a = &agent{}
		f.agents[h.Agent] = a
	} else if moved {
		f.place(a, false)
	}
	f.builds -= len(a.beat.Running)
	if room := max(0, maxFleet-f.builds); len(h.Running) > room {
		h.Running = h.Running[:room]
	}
	a.take(h, now)
	if moved {
		f.place(a, true)
	}
	f.builds += len(h.Running)
}

// show counts the agents that are not away, and their builds. f.mu is held.
func (f *fleet) show(now time.Time) {
	agents, builds := 0, 0
	for _, a := range f.agents {
		if !a.away(now) {
			agents++
			builds += len(a.beat.Running)
		}
	}
	f.known.Set(float64(agents))
	f.running.Set(float64(builds))
}

// Agents returns what every agent said last, by machine.
func (s *Server) Agents() []httpapi.Agent {
	now := s.o.Now()
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	all := make([]httpapi.Agent, 0, len(s.fleet.order))
	for _, a := range s.fleet.order {
		all = append(all, httpapi.Agent{Heartbeat: a.beat, SeenAt: a.seen, Away: a.away(now), Now: a.now, Builds: a.builds, History: a.history})
	}
	return all
}

// watch counts the agents, and drops those that have been away for long.
func (s *Server) watch(ctx context.Context) {
	tick := time.NewTicker(s.beat())
	defer tick.Stop()
	for {
		s.alive(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := s.o.Now()
		s.fleet.mu.Lock()
		for id, a := range s.fleet.agents {
			if now.Sub(a.seen) > keepAway {
				s.fleet.builds -= len(a.beat.Running)
				s.fleet.place(a, false)
				delete(s.fleet.agents, id)
			}
		}
		s.fleet.show(now)
		s.fleet.mu.Unlock()
	}
}
