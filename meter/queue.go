package meter

import (
	"sync"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/output/expvar"
	"github.com/cimeter/cimeter/internal/tally"
)

// Queue tells how many builds wait: cimeter_queue_builds. A number that nobody
// told is absent, not 0.
type Queue struct{ length, blocked *tally.Value }

func newQueue(t *tally.Table, server string) *Queue {
	return &Queue{t.Value(catalog.QueueBuilds, server, "waiting"), t.Value(catalog.QueueBuilds, server, "blocked")}
}

// Enqueued counts one build more that waits for a worker.
func (q *Queue) Enqueued() {
	if q != nil {
		q.length.Add(1)
	}
}

// Dequeued counts one build less that waits for a worker.
func (q *Queue) Dequeued() {
	if q != nil {
		q.length.Add(-1)
	}
}

// SetLength says how many builds wait for a worker.
func (q *Queue) SetLength(n int) {
	if q != nil {
		q.length.Set(float64(n))
	}
}

// SetBlocked says how many builds wait for something else: an earlier build, a
// person, a lock.
func (q *Queue) SetBlocked(n int) {
	if q != nil {
		q.blocked.Set(float64(n))
	}
}

// Workers tells how many workers there are and what they do: cimeter_workers. A
// server that knows each of its workers calls Join; one that only counts them
// calls Set.
type Workers struct {
	idle, busy *tally.Value

	mu       sync.Mutex // guards what follows
	busyOnes []*Worker  // in the order in which they became busy
}

func newWorkers(t *tally.Table, server string) *Workers {
	return &Workers{idle: t.Value(catalog.Workers, server, "idle"), busy: t.Value(catalog.Workers, server, "busy")}
}

// Set says how many workers there are, and how many of them have a build.
func (w *Workers) Set(count, busy int) {
	if w != nil {
		w.idle.Set(float64(count - busy))
		w.busy.Set(float64(busy))
	}
}

// Job is what a worker works on, as /debug/vars shows it. Empty fields are not
// shown.
type Job struct{ Repo, Branch, Commit, Build string }

// Worker is one worker that joined.
type Worker struct {
	of *Workers

	// Guarded by of.mu.
	job  Job
	has  bool
	left bool
}

// Join counts one worker more, which is idle. It allocates.
func (w *Workers) Join() *Worker {
	if w == nil {
		return nil
	}
	w.busy.Add(0) // there is a number now
	w.idle.Add(1)
	return &Worker{of: w}
}

// Start says that the worker has a build. It may wait for a moment while somebody
// reads /debug/vars.
func (w *Worker) Start(job Job) {
	if w == nil {
		return
	}
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if w.left {
		return
	}
	w.job = job
	if w.has {
		return
	}
	w.has = true
	w.of.busyOnes = append(w.of.busyOnes, w)
	w.of.idle.Add(-1)
	w.of.busy.Add(1)
}

// Done says that the worker has no build any more.
func (w *Worker) Done() {
	if w == nil {
		return
	}
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.done()
}

func (w *Worker) done() {
	if !w.has {
		return
	}
	w.has, w.job = false, Job{}
	for i, o := range w.of.busyOnes {
		if o == w {
			w.of.busyOnes = append(w.of.busyOnes[:i], w.of.busyOnes[i+1:]...)
			break
		}
	}
	w.of.busy.Add(-1)
	w.of.idle.Add(1)
}

// Leave counts one worker less, whatever it did. A second call does nothing.
func (w *Worker) Leave() {
	if w == nil {
		return
	}
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if w.left {
		return
	}
	w.done()
	w.left = true
	w.of.idle.Add(-1)
}

// drawn fills in the workers of a queue.
func (w *Workers) drawn(q *expvar.Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	idle, ok := w.idle.Get()
	busy, known := w.busy.Get()
	if !ok || !known {
		return
	}
	q.Workers, q.Waiting, q.Working = cimeter.Some(int(idle+busy)), cimeter.Some(int(idle)), cimeter.Some(int(busy))
	for _, o := range w.busyOnes {
		q.Builds = append(q.Builds, expvar.Build{Repo: o.job.Repo, Branch: o.job.Branch, Commit: o.job.Commit, Build: o.job.Build})
	}
}
