package queue

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
)

// The bounds of what a board holds.
const (
	// maxBuilds is the builds whose details are held, over all servers: more than
	// wait anywhere, and some 200 MB.
	maxBuilds = 100_000
	// maxEnded is the keys of builds that ended which are remembered, so that what
	// comes late does not bring them back: a day of a fleet that ends three a second.
	maxEnded   = 250_000
	maxWorkers = 50_000

	keepDetails = 10 * time.Minute // of a build that ended
	keepEnded   = 24 * time.Hour   // its key
	// keepUnheard is how long a build that waits or runs is believed to do so where no
	// list has it and no webhook ended it: GitLab itself gives up after a day.
	keepUnheard = 25 * time.Hour
	keepBlocked = 7 * 24 * time.Hour // the same for one that waits for a person
	missedPolls = 3                  // after so many a source is stale
)

// Source is one CI server of a board.
type Source struct {
	Name string
	CI   string
	// Interval is the time between two polls; 0: it is not asked, webhooks tell.
	Interval time.Duration
}

// Options of a Board.
type Options struct {
	Servers []Source
	// Start is when the counters were 0: what ended before is not told of by Look.
	Start time.Time
}

// Board is what the CI servers tell, merged. Its outcome depends on what was told and
// when, and not on the order in which it is learned nor on how often.
type Board struct {
	start time.Time

	mu      sync.Mutex
	servers map[string]*server
	order   []*server
	dropped Dropped
	builds  int
	workers int
	agents  map[string]AgentBuild
	pulls   map[string]time.Time // since when builds wait for an image, by key
	waits   map[string]*samples
}

// Dropped is how much a board did not take, since it was made.
type Dropped struct {
	Builds   uint64 // there were too many
	Workers  uint64
	Unusable uint64 // had no key, or one that is too long
}

type server struct {
	Source
	jobs    map[string]*entry
	ended   map[string]time.Time // builds without details, by when they were told of last
	workers map[string]*workerEntry
	moved   map[string]string // keys of before, by those of now

	wholeJobs, wholeWorkers time.Time // when a whole list was asked for last
	toldJobs, toldWorkers   bool
	everyWorker             bool                // as Report.EveryWorker last said
	clock                   told[time.Duration] // that was told last
	off                     time.Duration       // how far it is ahead of ours, steady: see near
	heard, asked            time.Time

	failure   error
	failedAt  time.Time
	failsFrom time.Time
	elsewhere bool
	metered   bool // an agent had one of its builds

	longest []Longest // by hour, of the last day
	points  []Point   // append-only: readers share it
	coarse  []Point   // likewise
	minute  minute
	fresh   []KeptPoint // that nobody took yet
}

// NewBoard returns a board that nothing was told to.
func NewBoard(o Options) *Board {
	b := &Board{start: o.Start, servers: map[string]*server{}, waits: map[string]*samples{}}
	for _, s := range o.Servers {
		one := &server{Source: s, jobs: map[string]*entry{}, ended: map[string]time.Time{}, workers: map[string]*workerEntry{}, moved: map[string]string{}}
		if b.servers[s.Name] == nil {
			b.order = append(b.order, one)
		}
		b.servers[s.Name] = one
	}
	slices.SortFunc(b.order, func(x, y *server) int { return compareNames(x.Name, y.Name) })
	return b
}

// Add merges what a server of that name told and returns the builds that are other
// now than they were, as they are, by our clock: for those who store them. Reports of
// a server that the options do not name are dropped.
func (b *Board) Add(name string, polled bool, r Report) (changed []cimeter.Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.servers[name]
	if s == nil {
		return nil
	}
	if r.Clock.Known {
		if t := (told[time.Duration]{at: r.At, value: r.Clock.Value}); s.clock.before(&t) <= 0 {
			s.clock, s.off = t, s.near(t.value)
		}
	}
	s.heard = latest(s.heard, r.At)
	if polled {
		s.asked = latest(s.asked, r.At)
		if !r.At.Before(s.failedAt) {
			s.failure, s.failsFrom = nil, time.Time{}
		}
	}
	if r.WholeJobs {
		s.wholeJobs = latest(s.wholeJobs, r.At)
	}
	if r.WholeWorkers {
		s.wholeWorkers = latest(s.wholeWorkers, r.At)
		s.everyWorker = r.EveryWorker
	}
	s.toldJobs = s.toldJobs || r.WholeJobs || len(r.Jobs) > 0
	s.toldWorkers = s.toldWorkers || r.WholeWorkers || len(r.Workers) > 0
	for i := range r.Workers {
		b.addWorker(s, &r, &r.Workers[i])
	}
	stay := b.moves(s, &r)
	for i := range r.Jobs {
		if e := b.addJob(s, &r, keyed(&r.Jobs[i], stay)); e != nil {
			if j, _, _ := e.job(s.ahead()); !sameJob(&j, &e.last) {
				e.last = j
				changed = append(changed, j)
			}
		}
	}
	return changed
}

func (b *Board) addJob(s *server, r *Report, from *cimeter.Job) *entry {
	j := *from
	if !tidy(&j) {
		b.dropped.Unusable++
		return nil
	}
	if j.CI == "" {
		j.CI = s.CI
	}
	if at, ok := s.ended[j.Key]; ok {
		s.ended[j.Key] = latest(at, r.At)
		return nil
	}
	e := s.jobs[j.Key]
	if e == nil {
		if b.builds >= maxBuilds {
			b.dropped.Builds++
			return nil
		}
		b.builds++
		e = &entry{}
		s.jobs[j.Key] = e
	}
	t := told[cimeter.Job]{at: r.At, rank: rankOf(j.Status), raw: !r.Clock.Known, value: j}
	if r.Clock.Known {
		shift(&t.value, s.near(r.Clock.Value))
	}
	if r.WholeJobs {
		e.polled = latest(e.polled, r.At)
	}
	if at := &e.firsts[t.rank]; at.IsZero() || r.At.Before(*at) {
		*at = r.At
	}
	e.told = learn(e.told, t, fillJob)
	return e
}

func (b *Board) addWorker(s *server, r *Report, from *cimeter.Worker) {
	w := *from
	if !tidyWorker(&w) {
		b.dropped.Unusable++
		return
	}
	e := s.workers[w.ID]
	if e == nil {
		if b.workers >= maxWorkers {
			b.dropped.Workers++
			return
		}
		b.workers++
		e = &workerEntry{}
		s.workers[w.ID] = e
	}
	if r.Clock.Known && !w.ContactedAt.IsZero() {
		w.ContactedAt = w.ContactedAt.Add(-s.near(r.Clock.Value))
	}
	e.told = learn(e.told, told[cimeter.Worker]{at: r.At, raw: !r.Clock.Known, value: w}, fillWorker)
}

// Failed says that a poll which began at that time failed: what the server told last
// is stale.
func (b *Board) Failed(name string, at time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.servers[name]; s != nil && !at.Before(s.asked) {
		if s.failure == nil {
			s.failsFrom = at
		}
		s.failure, s.failedAt = err, at
	}
}

// Elsewhere says whether another server asks the CI server of that name.
func (b *Board) Elsewhere(name string, yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.servers[name]; s != nil {
		s.elsewhere = yes
	}
}

// Dropped tells how much was not taken.
func (b *Board) Dropped() Dropped {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}

func (s *server) ahead() time.Duration { return s.off }

// near is the difference of clocks that a report tells, or the one that is known when
// it is hardly another: times must not waver with how long an answer took.
func (s *server) near(clock time.Duration) time.Duration {
	if (clock - s.off).Abs() <= sameClock {
		return s.off
	}
	return clock
}

// active reports whether a build waits, is blocked or runs, and has not left. One that
// the last whole list does not have is there only when what was told since is news: a
// webhook that comes late tells of what was before the list.
func (s *server) active(e *entry) bool {
	is := e.rank()
	switch {
	case is != rankBlocked && is != rankWaiting && is != rankRunning:
		return false
	case !e.polled.Before(s.wholeJobs):
		return true
	case e.at().Before(s.wholeJobs):
		return false
	}
	j, _, _ := e.job(s.ahead())
	since := map[rank]time.Time{rankBlocked: j.CreatedAt, rankWaiting: j.QueuedAt, rankRunning: j.StartedAt}[is]
	if !since.IsZero() {
		switch after := since.Sub(s.wholeJobs); {
		case after > 0:
			return true
		case after < -sameClock-time.Second: // servers tell whole seconds
			return false
		}
	}
	// If it was there before the list, the list would have it.
	for _, r := range [...]rank{rankBlocked, rankWaiting, rankRunning} {
		if at := e.firsts[r]; !at.IsZero() && at.Before(s.wholeJobs) {
			return false
		}
	}
	return true
}

func (s *server) present(w *workerEntry) bool { return !lastAt(w.told).Before(s.wholeWorkers) }

// stale reports whether the numbers are those of another time.
func (s *server) stale(now time.Time) bool {
	if s.Interval == 0 || s.elsewhere {
		return false
	}
	return s.failure != nil || s.asked.IsZero() || now.Sub(s.asked) > missedPolls*s.Interval+time.Minute
}

func statusOf(err error) int {
	var e *SourceError
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// sameJob reports whether two accounts of a build are one.
func sameJob(a, b *cimeter.Job) bool {
	return a.Build == b.Build && a.Status == b.Status && slices.Equal(a.Tags, b.Tags) && a.CreatedAt.Equal(b.CreatedAt) &&
		a.QueuedAt.Equal(b.QueuedAt) && a.StartedAt.Equal(b.StartedAt) && a.EndedAt.Equal(b.EndedAt) && a.QueueSeconds == b.QueueSeconds &&
		a.FailureReason == b.FailureReason && a.Worker == b.Worker
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
