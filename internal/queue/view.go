package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
)

// State returns what is known at now.
func (b *Board) State(now time.Time) State {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := State{At: now, Servers: []Server{}, Builds: []Build{}, Workers: []Worker{}}
	for _, s := range b.order {
		if s.elsewhere { // what its webhooks told here is a part of the truth
			st.Servers = append(st.Servers, Server{Name: s.Name, CI: s.CI, HeardAt: s.heard, Elsewhere: true,
				History: s.points[:len(s.points):len(s.points)], Week: s.coarse[:len(s.coarse):len(s.coarse)]})
			continue
		}
		workers := s.list()
		builds, on := b.view(s, workers, now)
		if len(b.order) == 1 {
			st.Builds = builds // the usual case, and the largest part of it
		} else {
			st.Builds = append(st.Builds, builds...)
		}
		for i := range workers {
			st.Workers = append(st.Workers, b.viewWorker(s, workers[i], on, now))
		}
		st.Servers = append(st.Servers, s.view(st.Workers[len(st.Workers)-len(workers):], builds, now))
	}
	st.Builds = sorted(st.Builds, compareBuilds)
	return st
}

// sorted returns large values in order, moving each once.
func sorted[T any](all []T, compare func(x, y *T) int) []T {
	order := make([]*T, len(all))
	for i := range all {
		order[i] = &all[i]
	}
	slices.SortFunc(order, compare)
	out := make([]T, 0, len(all))
	for _, v := range order {
		out = append(out, *v)
	}
	return out
}

// compareBuilds puts those that wait first, the longest wait at the top, then those
// that are blocked, then those that run, the oldest at the top.
func compareBuilds(x, y *Build) int {
	place := func(b *Build) int {
		switch b.Status {
		case cimeter.JobWaiting:
			return 0
		case cimeter.JobBlocked:
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(place(x), place(y)), cmp.Compare(y.Ran.Value, x.Ran.Value), cmp.Compare(y.Waited.Value, x.Waited.Value), cmp.Compare(x.Key, y.Key))
}

// view is the builds of a server, and of each worker the keys of those it has.
func (b *Board) view(s *server, workers []cimeter.Worker, now time.Time) (builds []Build, on map[string][]string) {
	on = map[string][]string{}
	builds = make([]Build, 0, len(s.jobs))
	reasons, pool := map[string]Why{}, newPool(workers, s.everyWorker)
	for _, e := range s.jobs {
		if !s.active(e) {
			continue
		}
		j, told, at := e.job(s.ahead())
		v := Build{Job: j, On: s.Name}
		switch e.rank() {
		case rankWaiting:
			v.Waited = waitedUntil(&j, told, at, now)
			v.Why = reason(&j, pool, reasons)
			v.Wait = queued(e.spent, v.Waited)
			if v.Waited.Known {
				v.Start = b.estimate(s, &j, v.Waited.Value)
			}
		case rankRunning:
			v.Waited = waitedOf(&j)
			v.Wait = e.wait(&j, v.Waited)
			if !j.StartedAt.IsZero() {
				v.Ran = cimeter.Some(max(0, now.Sub(j.StartedAt).Seconds()))
			}
			b.join(s, &v, now)
			if j.Worker != "" {
				on[j.Worker] = append(on[j.Worker], v.Key)
			}
		}
		builds = append(builds, v)
	}
	for id := range on {
		slices.Sort(on[id])
	}
	return builds, on
}

// join adds what the agents tell of a build that runs.
func (b *Board) join(s *server, v *Build, now time.Time) {
	a, metered := b.agents[v.Key]
	switch {
	case metered:
		v.Metered, v.Stage, v.Key = true, a.Stage, a.Key
		if v.Machine == "" {
			v.Machine = a.Machine
		}
		if preparing(a.Stage) {
			v.Why = WhyPreparing
			if !a.StartedAt.IsZero() {
				v.Wait.Preparing = max(0, now.Sub(a.StartedAt).Seconds())
			}
		}
	case s.metered && v.Ran.Known && v.Ran.Value <= startingTime.Seconds():
		v.Why = WhyStarting
		v.Wait.Starting = v.Ran.Value
	}
	if since, pulls := b.pulls[v.Key]; pulls && (!metered || v.Why == WhyPreparing) {
		v.Why, v.Wait.Pull = WhyPull, max(0, now.Sub(since).Seconds())
		if !metered && !v.StartedAt.IsZero() {
			v.Wait.Starting = max(0, since.Sub(v.StartedAt).Seconds())
		}
		v.Wait.Preparing = max(0, v.Wait.Preparing-v.Wait.Pull)
	}
}

func (b *Board) viewWorker(s *server, w cimeter.Worker, on map[string][]string, now time.Time) Worker {
	keys := slices.Clone(on[w.ID])
	for _, key := range w.Builds {
		_, over := s.ended[key]
		if e := s.jobs[key]; e != nil {
			over = !s.active(e) || e.rank() != rankRunning
		}
		if key = b.keyOf(key); !over && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	w.Builds = keys
	if len(keys) > 0 {
		if w.State == cimeter.WorkerIdle || w.State == cimeter.WorkerUnknown {
			w.State = cimeter.WorkerBusy
		}
		if w.Running.Value < len(keys) {
			w.Running = cimeter.Some(len(keys))
		}
	}
	return Worker{Worker: w, On: s.Name, At: lastAt(s.workers[w.ID].told), Stale: s.stale(now)}
}

func (s *server) view(workers []Worker, builds []Build, now time.Time) Server {
	v := Server{
		Name: s.Name, CI: s.CI, HeardAt: s.heard, AskedAt: s.asked, Stale: s.stale(now),
		ClockAhead: s.ahead().Seconds(), History: s.points[:len(s.points):len(s.points)], Week: s.coarse[:len(s.coarse):len(s.coarse)],
	}
	if told := latest(s.asked, time.Time{}); s.Interval > 0 && !told.IsZero() {
		v.AgeSeconds = cimeter.Some(max(0, now.Sub(told).Seconds()))
	} else if !s.heard.IsZero() {
		v.AgeSeconds = cimeter.Some(max(0, now.Sub(s.heard).Seconds()))
	}
	if s.failure != nil {
		v.Failure, v.Reason, v.Status, v.FailsAt = cut(s.failure.Error()), Reason(s.failure), statusOf(s.failure), s.failsFrom
	}
	if s.toldJobs {
		n := [3]int{}
		for i := range builds {
			switch builds[i].Status {
			case cimeter.JobWaiting:
				n[0]++
			case cimeter.JobBlocked:
				n[1]++
			default:
				n[2]++
			}
		}
		v.Waiting, v.Blocked, v.Running = cimeter.Some(n[0]), cimeter.Some(n[1]), cimeter.Some(n[2])
	}
	if s.toldWorkers {
		var c WorkerCount
		plain := make([]cimeter.Worker, 0, len(workers))
		for i := range workers {
			plain = append(plain, workers[i].Worker)
			switch workers[i].State {
			case cimeter.WorkerIdle:
				c.Idle++
			case cimeter.WorkerBusy:
				c.Busy++
			case cimeter.WorkerOffline:
				c.Offline++
			case cimeter.WorkerDraining:
				c.Draining++
			default:
				c.Unknown++
			}
		}
		v.Workers, v.Slots = cimeter.Some(c), slotsOf(plain)
	}
	for _, l := range s.longest {
		if now.Sub(l.At) <= 24*time.Hour && l.Seconds > v.LongestDay.Seconds {
			v.LongestDay = l
		}
	}
	return v
}
