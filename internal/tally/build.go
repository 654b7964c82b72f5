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
	e.duration.get(b.bounds.duration).observe(durationSeconds, of)
	if q, ok := queueSeconds.Get(); ok {
		b.queue.get(b.bounds.queue).observe(q, of)
	}
	b.running.Add(-1)
}

// Queued counts how long a build had queued, where that is told apart from its
// end, in seconds.
func (b *Build) Queued(seconds float64) { b.queue.get(b.bounds.queue).observe(seconds, Exemplar{}) }

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
