package jobsocket

import (
	"context"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/summary"
)

// History returns the last builds of the job of a build that succeeded, at most
// usualBuilds, the latest first.
type History func(ctx context.Context, of *cimeter.Build, limit int) ([]*cimeter.Record, error)

// The bounds of what is remembered of jobs.
const (
	usualBuilds  = 20
	maxHistories = 128              // jobs: some kilobytes each
	historyAge   = 10 * time.Minute // a median of 20 does not change sooner
	failedAge    = time.Minute      // a server that is down is not asked by each job
	askTime      = 5 * time.Second  // one question for history
	askingAtOnce = 2
)

// job names what has a history.
type job struct{ ci, server, project, name string }

// entry is a job's history. ready is closed when the rest is there.
type entry struct {
	ready   chan struct{}
	history *summary.History // nil: not known
	until   time.Time
}

// histories remembers the history of jobs, and asks for it without keeping an
// answer waiting long.
type histories struct {
	ask   History
	slots chan struct{}

	mu   sync.Mutex
	wg   *sync.WaitGroup // nil: not running
	ctx  context.Context // of the questions under way
	jobs map[job]*entry
}

func newHistories(ask History) *histories {
	return &histories{ask: ask, slots: make(chan struct{}, askingAtOnce), jobs: map[job]*entry{}}
}

// run lets questions be asked, by goroutines of wg, until the returned function
// is called.
func (h *histories) run(ctx context.Context, wg *sync.WaitGroup) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	h.mu.Lock()
	h.wg, h.ctx = wg, ctx
	h.mu.Unlock()
	return func() {
		cancel()
		h.mu.Lock()
		h.wg = nil
		h.mu.Unlock()
	}
}

// usual is what is usual of the stages that r has; nil when it is not known, or
// not soon enough.
func (h *histories) usual(ctx context.Context, r *cimeter.Record) *summary.Usual {
	if h.ask == nil || r.Project == "" || r.Name == "" {
		return nil
	}
	e := h.entry(&r.Build, time.Now())
	if e == nil {
		return nil
	}
	t := time.NewTimer(historyTime)
	defer t.Stop()
	select {
	case <-e.ready:
	case <-t.C:
		return nil
	case <-ctx.Done():
		return nil
	}
	return e.history.Usual(r)
}

// entry returns a job's entry, which is asked for when it is missing or old.
func (h *histories) entry(b *cimeter.Build, now time.Time) *entry {
	k := job{b.CI, b.Server, b.Project, b.Name}
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.jobs[k]; e != nil && (e.until.IsZero() || now.Before(e.until)) {
		return e
	}
	if h.wg == nil {
		return nil
	}
	select {
	case h.slots <- struct{}{}:
	default:
		return nil // others are asked for
	}
	h.makeRoom(now)
	e := &entry{ready: make(chan struct{})}
	h.jobs[k] = e
	build := *b
	ctx := h.ctx
	h.wg.Go(func() {
		defer func() { <-h.slots }()
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		records, err := h.ask(ctx, &build, usualBuilds)
		h.mu.Lock()
		defer h.mu.Unlock()
		e.until = time.Now().Add(historyAge)
		if err != nil {
			e.until, records = time.Now().Add(failedAge), nil
		}
		e.history = summary.NewHistory(records)
		close(e.ready)
	})
	return e
}

// makeRoom drops what is old, else the one that is the oldest.
func (h *histories) makeRoom(now time.Time) {
	if len(h.jobs) < maxHistories {
		return
	}
	var oldest job
	var until time.Time
	for k, e := range h.jobs {
		switch {
		case e.until.IsZero(): // being asked for
		case now.After(e.until):
			delete(h.jobs, k)
		case until.IsZero() || e.until.Before(until):
			oldest, until = k, e.until
		}
	}
	if len(h.jobs) >= maxHistories && !until.IsZero() {
		delete(h.jobs, oldest)
	}
}
