package tally

import (
	"slices"
	"sync/atomic"

	"github.com/cimeter/cimeter"
)

// Build holds how the builds of one label set went.
type Build struct {
	labels  BuildLabels
	bounds  *buildBounds
	table   *Table
	whole   bool // room for its histograms is taken: it is a fold
	running atomic.Int64
	ended   []ended     // by result, in the catalogue's order; the last is unknown
	told    atomic.Bool // a result was known
	queue   lazyHistogram
}

type ended struct {
	count    atomic.Uint64
	duration lazyHistogram
}

type buildBounds struct {
	results         []string
	duration, queue []float64
}

// Labels returns the label set.
func (b *Build) Labels() BuildLabels { return b.labels }

// Started counts a build that runs now.
func (b *Build) Started() { b.running.Add(1) }

// Ended counts the end of a build that Started counted: its result (success,
// failed or canceled; anything else is unknown), how long it took, and how
// long it had queued where that is known, both in seconds.
func (b *Build) Ended(result string, durationSeconds float64, queueSeconds cimeter.Opt[float64]) {
	b.EndedOf(Exemplar{}, result, durationSeconds, queueSeconds)
}

// EndedOf is Ended of a build that is named: Build and At of the exemplar.
func (b *Build) EndedOf(of Exemplar, result string, durationSeconds float64, queueSeconds cimeter.Opt[float64]) {
	i := slices.Index(b.bounds.results, result)
	if i < 0 {
		i = len(b.bounds.results) - 1
	}
	if i < len(b.bounds.results)-1 && !b.told.Load() {
		b.told.Store(true)
	}
	e := &b.ended[i]
	e.count.Add(1)
	b.duration(i).observe(durationSeconds, of)
	if q, ok := queueSeconds.Get(); ok {
		b.queued().observe(q, of)
	}
	b.running.Add(-1)
}

// Queued counts how long a build had queued, where that is told apart from its
// end, in seconds.
func (b *Build) Queued(seconds float64) { b.queued().observe(seconds, Exemplar{}) }

func (b *Build) duration(result int) *Histogram {
	return b.histogram(b.bounds.duration, func(b *Build) *lazyHistogram { return &b.ended[result].duration })
}

func (b *Build) queued() *Histogram {
	return b.histogram(b.bounds.queue, func(b *Build) *lazyHistogram { return &b.queue })
}

// histogram returns one of b's histograms, which finds its room when something
// is first counted, and without room that of b's fold: most builds of a project
// end in one way, and room for all ways would leave little for stages.
func (b *Build) histogram(bounds []float64, of func(*Build) *lazyHistogram) *Histogram {
	if h := of(b).p.Load(); h != nil {
		return h
	}
	t := b.table
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n := len(bounds) + 3; { // and +Inf, sum and count
	case b.whole || of(b).p.Load() != nil:
	case t.room(n, t.reserve+t.budget/8):
		t.take(n)
	default:
		t.countFold(true)
		b = t.build(b.labels.fold())
	}
	return of(b).get(bounds)
}

// Abandoned takes a build that Started counted out of those that run, without
// an end: the agent stops, or the build turned out to be another one's part.
func (b *Build) Abandoned() { b.running.Add(-1) }

// Running returns how many builds run now.
func (b *Build) Running() int64 { return max(0, b.running.Load()) }

// Count returns how many builds ended with result i of the catalogue, and
// whether that can be told: no build failed only where something tells results.
// So a result's series is there, with 0, before the first build ends that way,
// and a rate over it misses none.
func (b *Build) Count(i int) (uint64, bool) {
	n, known := b.ended[i].count.Load(), false
	if i < len(b.ended)-1 {
		known = b.told.Load()
	}
	return n, known || n > 0
}

// Duration returns how long builds with result i took, or nil without any.
func (b *Build) Duration(i int) *Histogram { return b.ended[i].duration.p.Load() }

// Queue returns how long builds queued, or nil when nothing told it yet.
func (b *Build) Queue() *Histogram { return b.queue.p.Load() }
