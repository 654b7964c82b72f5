package queue

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

const (
	maxSamples = 100 // waits that are kept of one set of tags: the last ones tell best
	maxTagSets = 1000
	minSamples = 20 // fewer tell nothing of when a build starts
)

// minute adds up what is seen in a minute.
type minute struct {
	at                                         int64 // its number since 1970
	looks, slotLooks                           int
	waiting, blocked, running, slots, p50, p95 float64
}

// samples are the last waits of builds with the same tags, in seconds, oldest first.
type samples struct{ waits []float64 }

// Ended is a build that ended.
type Ended struct {
	cimeter.Job
	On   string `json:"on"` // name of its Server in State
	Wait Wait   `json:"wait"`
}

// Look looks at the board as it is at now: it counts what builds wait for, keeps the
// history, forgets what is old, and returns the builds that ended since it looked
// last, each once, by our clock. agents is what the agents run now. It is called every few
// seconds by one caller.
func (b *Board) Look(now time.Time, agents []AgentBuild) (ended []Ended) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.agents, b.pulls = make(map[string]AgentBuild, len(agents)), map[string]time.Time{}
	for _, a := range agents {
		if a.PullingSince.IsZero() {
			b.agents[a.Key] = a
		} else {
			b.pulls[a.Key] = a.PullingSince
		}
	}
	for _, s := range b.order {
		b.place(s, agents, now)
		workers := s.list()
		reasons, pool := map[string]Why{}, newPool(workers, s.everyWorker)
		var waits []float64
		waiting, blocked, running := 0, 0, 0
		for key, e := range s.jobs {
			is := e.rank()
			if a, ok := b.agents[key]; ok {
				s.metered = true
				e.meet(&a, now)
			}
			switch {
			case !s.active(e):
				if j, ok := b.over(s, e, is, now); ok {
					ended = append(ended, Ended{j, s.Name, e.wait(&j, waitedOf(&j))})
				}
				if now.Sub(e.at()) > keepDetails {
					delete(s.jobs, key)
					b.builds--
					if is == rankEnded {
						s.ended[strings.Clone(key)] = e.at()
					}
				}
				continue
			case is == rankBlocked:
				blocked++
			case is == rankWaiting:
				waiting++
				j, told, at := e.job(s.ahead())
				if w := waitedUntil(&j, told, at, now); w.Known {
					waits = append(waits, w.Value)
					s.long(&j, w.Value, now)
				}
				e.spend(&j, reason(&j, pool, reasons), now)
			case is == rankRunning:
				running++
				if !e.started {
					j, _, _ := e.job(s.ahead())
					b.sample(s, e, &j, now)
				}
			}
			if most := map[bool]time.Duration{true: keepBlocked, false: keepUnheard}[is == rankBlocked]; now.Sub(e.at()) > most {
				delete(s.jobs, key)
				b.builds--
			}
		}
		s.note(now, waiting, blocked, running, slotsOf(workers), waits)
		s.forget(now)
		for id, w := range s.workers {
			if !s.present(w) && now.Sub(lastAt(w.told)) > keepDetails {
				delete(s.workers, id)
				b.workers--
			}
		}
	}
	slices.SortFunc(ended, func(x, y Ended) int { return cmp.Or(x.EndedAt.Compare(y.EndedAt), cmp.Compare(x.Key, y.Key)) })
	return ended
}

// over counts a build that ended, once.
func (b *Board) over(s *server, e *entry, is rank, now time.Time) (j cimeter.Job, counts bool) {
	if is != rankEnded || e.counted {
		return j, false
	}
	e.counted = true
	j, _, _ = e.job(s.ahead())
	if !j.EndedAt.IsZero() && j.EndedAt.Before(b.start) {
		return j, false
	}
	b.sample(s, e, &j, now)
	return j, true
}

// sample keeps the wait of a build that started, once.
func (b *Board) sample(s *server, e *entry, j *cimeter.Job, now time.Time) {
	if e.started {
		return
	}
	e.started = true
	w := waitedOf(j)
	if !w.Known || j.StartedAt.IsZero() {
		return
	}
	s.long(j, w.Value, now)
	if j.Tags == nil {
		return
	}
	set := s.Name + "\n" + tagSet(j.Tags)
	of := b.waits[set]
	if of == nil {
		if len(b.waits) >= maxTagSets {
			clear(b.waits) // they are learned anew
		}
		of = &samples{}
		b.waits[set] = of
	}
	if of.waits = append(of.waits, w.Value); len(of.waits) > maxSamples {
		of.waits = slices.Delete(of.waits, 0, 1)
	}
}

// estimate is when a build that waited so long will start.
func (b *Board) estimate(s *server, j *cimeter.Job, waited float64) (e cimeter.Opt[Estimate]) {
	of := b.waits[s.Name+"\n"+tagSet(j.Tags)]
	if of == nil || len(of.waits) < minSamples {
		return e
	}
	var longer []float64
	for _, w := range of.waits {
		if w >= waited {
			longer = append(longer, w-waited)
		}
	}
	if len(longer) < 5 {
		return e // hardly any waited as long
	}
	slices.Sort(longer)
	return cimeter.Some(Estimate{Seconds: quantile(longer, 0.5), Low: quantile(longer, 0.25), High: quantile(longer, 0.75), Samples: len(of.waits)})
}

func tagSet(tags []string) string {
	sorted := slices.Clone(tags)
	slices.Sort(sorted)
	return strings.Join(sorted, "\x00")
}

// reason is whyWaiting, worked out once for each set of tags.
func reason(j *cimeter.Job, workers *pool, known map[string]Why) Why {
	if j.Tags == nil {
		return WhyUnknown
	}
	set := tagSet(j.Tags)
	why, ok := known[set]
	if !ok {
		why = whyWaiting(j, workers)
		known[set] = why
	}
	return why
}

// maxLook is the longest time between two looks that counts: over a longer one, as
// when a machine slept, nothing was seen.
const maxLook = time.Minute

// spend adds the time since the last look to what the build waits for.
func (e *entry) spend(j *cimeter.Job, why Why, now time.Time) {
	if d := now.Sub(latest(e.seen, j.QueuedAt)); !e.seen.IsZero() && d > 0 && d <= maxLook {
		switch why {
		case WhyNoWorker:
			e.spent.NoWorker += d.Seconds()
		case WhyNoSlot:
			e.spent.NoSlot += d.Seconds()
		}
	}
	e.seen = now
}

// meet keeps what an agent tells of when a build's own commands began. It is as exact
// as heartbeats and looks are frequent.
func (e *entry) meet(a *AgentBuild, now time.Time) {
	if e.began.IsZero() {
		e.began = a.StartedAt
	}
	if e.pulled.IsZero() {
		e.booted, e.pulled = a.BootedAt, a.PulledAt
	}
	if e.ready.IsZero() && !e.began.IsZero() && !preparing(a.Stage) {
		e.ready = latest(now, e.began)
		if e.prepared.IsZero() { // it was never seen to prepare
			e.ready = e.began
		}
	}
	if preparing(a.Stage) {
		e.prepared = now
	}
}

// wait is how a build's wait is split, until its own first command.
func (e *entry) wait(j *cimeter.Job, waited cimeter.Opt[float64]) Wait {
	w := queued(e.spent, waited)
	if j.StartedAt.IsZero() || e.began.IsZero() {
		return w
	}
	w.Starting = max(0, e.began.Sub(j.StartedAt).Seconds())
	if from := latest(j.StartedAt, e.booted); e.pulled.After(from) && !e.pulled.After(e.began) {
		w.Pull = e.pulled.Sub(from).Seconds()
		w.Starting = max(0, w.Starting-w.Pull)
	}
	if !e.ready.IsZero() {
		w.Preparing = e.ready.Sub(e.began).Seconds()
	}
	return w
}

// waitedUntil is how long a build waits at now, in seconds; told is what its server
// counted at that instant.
func waitedUntil(j *cimeter.Job, told cimeter.Opt[float64], at, now time.Time) cimeter.Opt[float64] {
	switch {
	case !j.QueuedAt.IsZero():
		return cimeter.Some(max(0, now.Sub(j.QueuedAt).Seconds()))
	case told.Known:
		return cimeter.Some(told.Value + max(0, now.Sub(at).Seconds()))
	case !j.CreatedAt.IsZero():
		return cimeter.Some(max(0, now.Sub(j.CreatedAt).Seconds()))
	}
	return cimeter.Opt[float64]{}
}

// long keeps the longest wait of each hour of the last day.
func (s *server) long(j *cimeter.Job, waited float64, now time.Time) {
	hour := now.Truncate(time.Hour)
	n := len(s.longest)
	if n == 0 || s.longest[n-1].At.Truncate(time.Hour).Before(hour) {
		s.longest = append(s.longest, Longest{At: now})
		if n++; n > 24 {
			s.longest = slices.Delete(s.longest, 0, 1)
			n--
		}
	}
	if l := &s.longest[n-1]; waited > l.Seconds || waited == l.Seconds && (l.Key == "" || j.Key <= l.Key) {
		*l = Longest{Key: j.Key, Name: j.Name, Project: j.Project, Seconds: waited, At: now}
	}
}

// note adds what is seen now to the history.
func (s *server) note(now time.Time, waiting, blocked, running int, slots cimeter.Opt[int], waits []float64) {
	if !s.toldJobs || s.elsewhere {
		return
	}
	m := &s.minute
	if number := now.Unix() / 60; number != m.at {
		if m.looks > 0 {
			s.keep(m.point())
		}
		*m = minute{at: number}
	}
	m.looks++
	m.waiting += float64(waiting)
	m.blocked += float64(blocked)
	m.running += float64(running)
	if slots.Known {
		m.slotLooks++
		m.slots += float64(slots.Value)
	}
	slices.Sort(waits)
	m.p50, m.p95 = quantile(waits, 0.5), quantile(waits, 0.95)
}

func (m *minute) point() Point {
	n := float64(m.looks)
	return Point{
		At: (m.at + 1) * 60, Waiting: float32(m.waiting / n), Blocked: float32(m.blocked / n), Running: float32(m.running / n),
		Slots: float32(m.slots / float64(m.slotLooks)), P50: float32(m.p50), P95: float32(m.p95), // 0/0 is NaN: not known
	}
}

// forget drops the oldest keys of builds that ended.
func (s *server) forget(now time.Time) {
	for key, at := range s.ended {
		if now.Sub(at) > keepEnded {
			delete(s.ended, key)
		}
	}
	if len(s.ended) <= maxEnded {
		return
	}
	var times []time.Time
	for _, at := range s.ended {
		times = append(times, at)
	}
	slices.SortFunc(times, time.Time.Compare)
	for key, at := range s.ended {
		if at.Before(times[len(times)-maxEnded*9/10]) {
			delete(s.ended, key)
		}
	}
}

// list are the workers of now, by name.
func (s *server) list() []cimeter.Worker {
	var all []cimeter.Worker
	for _, e := range s.workers {
		if s.present(e) {
			all = append(all, e.worker(s.ahead()))
		}
	}
	return sorted(all, func(x, y *cimeter.Worker) int { return cmp.Or(compareNames(x.Name, y.Name), cmp.Compare(x.ID, y.ID)) })
}

// slotsOf is how many builds the workers can run at once, where all of them tell.
func slotsOf(workers []cimeter.Worker) (slots cimeter.Opt[int]) {
	for i := range workers {
		w := &workers[i]
		if w.State == cimeter.WorkerOffline {
			continue
		}
		if !w.Slots.Known {
			return cimeter.Opt[int]{}
		}
		slots = cimeter.Some(slots.Value + w.Slots.Value)
	}
	return slots
}

// quantile of sorted values; NaN of none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 >= len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

func compareNames(a, b string) int {
	return cmp.Or(cmp.Compare(strings.ToLower(a), strings.ToLower(b)), cmp.Compare(a, b))
}
