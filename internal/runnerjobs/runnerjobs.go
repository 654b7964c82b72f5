// Package runnerjobs knows which job a runner of Actions Runner Controller has.
//
// It owns a bounded table of runners that somebody asked for and the goroutines that
// watch them, one for each runner that has no job yet and at most [maxWatches]. It
// never asks for one that nobody asked for, and never makes its caller wait. Start with
// [New] and Run; the rest is safe for concurrent use.
package runnerjobs

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/github"
)

// Source is where runners are watched: see kubeapi.Client.
type Source interface {
	WatchRunner(ctx context.Context, namespace, name string, fn func(github.Ephemeral)) error
}

const (
	// maxWatches is more than the runners of one node that wait for a job.
	maxWatches = 64
	// maxRunners is how many runners are remembered, the oldest forgotten first: more
	// than a node has while records of their builds are open.
	maxRunners = 1024
	// firstDelay and lastDelay bound the time between two watches of a runner.
	firstDelay = time.Second
	lastDelay  = time.Minute
	// patience is how long a runner is waited for when the server does not answer:
	// its build is told without it then.
	patience = 30 * time.Second
)

// Table knows. Make it with New.
type Table struct {
	source Source
	log    *slog.Logger
	wanted chan runner

	mu      sync.Mutex
	runners map[runner]*state
	order   []runner // the oldest first
	failure string   // as it was logged last
}

type runner struct{ namespace, name string }

type state struct {
	job    github.Ephemeral
	over   bool      // nothing more will be known
	failed time.Time // since when the server has not answered; zero while it does
}

// hopeless reports whether nothing more is to be waited for.
func (s *state) hopeless(now time.Time) bool {
	return s.over || !s.failed.IsZero() && now.Sub(s.failed) > patience
}

// New returns a table that knows nothing yet.
func New(source Source, log *slog.Logger) *Table {
	return &Table{source: source, log: log, wanted: make(chan runner, maxWatches), runners: make(map[runner]*state)}
}

// Job returns what is known of a runner's job, and whether more may be: false when
// the server says that there is no such runner, may not be asked, or does not answer.
// The first call for a runner has it watched.
func (t *Table) Job(namespace, name string) (job github.Ephemeral, asked bool) {
	r := runner{namespace, name}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.runners[r]; s != nil {
		return s.job, s.job.Known() || !s.hopeless(time.Now())
	}
	select {
	case t.wanted <- r:
	default:
		return github.Ephemeral{}, true // asked for again soon
	}
	t.runners[r] = &state{}
	t.order = append(t.order, r)
	if len(t.order) > maxRunners {
		delete(t.runners, t.order[0])
		t.order = t.order[1:]
	}
	return github.Ephemeral{}, true
}

// Run watches until ctx ends.
func (t *Table) Run(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	slots := make(chan struct{}, maxWatches)
	for {
		select {
		case <-ctx.Done():
			return nil
		case slots <- struct{}{}:
		}
		select {
		case <-ctx.Done():
			return nil
		case r := <-t.wanted:
			watches.Go(func() {
				defer func() { <-slots }()
				t.watch(ctx, r)
			})
		}
	}
}

// watch follows one runner until it has a job, or there is nothing more to know.
func (t *Table) watch(ctx context.Context, r runner) {
	delay := firstDelay
	for ctx.Err() == nil {
		began := time.Now()
		one, stop := context.WithCancel(ctx)
		known := false
		err := t.source.WatchRunner(one, r.namespace, r.name, func(e github.Ephemeral) {
			known = known || e.Known()
			t.set(r, e)
			if known {
				stop()
			}
		})
		stop()
		switch {
		case known, ctx.Err() != nil:
			t.said(nil)
			return
		case errors.Is(err, cimeter.ErrNotFound), errors.Is(err, cimeter.ErrUnauthorized), errors.Is(err, cimeter.ErrInvalid):
			t.said(err)
			t.end(r)
			return
		case !t.remembers(r):
			return
		}
		t.said(err)
		t.answered(r, err == nil)
		if err == nil || time.Since(began) > lastDelay {
			delay = firstDelay
		}
		timer := time.NewTimer(delay/2 + rand.N(delay/2))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		delay = min(2*delay, lastDelay)
	}
}

func (t *Table) set(r runner, e github.Ephemeral) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.runners[r]; s != nil && (e.Known() || !s.job.Known()) {
		s.job, s.failed = e, time.Time{}
	}
}

// answered notes whether the server did.
func (t *Table) answered(r runner, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch s := t.runners[r]; {
	case s == nil:
	case ok:
		s.failed = time.Time{}
	case s.failed.IsZero():
		s.failed = time.Now()
	}
}

func (t *Table) end(r runner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.runners[r]; s != nil {
		s.over = true
	}
}

func (t *Table) remembers(r runner) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.runners[r] != nil
}

// said logs a failure when it is another one than the last. That a runner is gone is
// none.
func (t *Table) said(err error) {
	text := ""
	if err != nil && !errors.Is(err, cimeter.ErrNotFound) {
		text = code(err)
	}
	t.mu.Lock()
	changed := text != t.failure
	t.failure = text
	t.mu.Unlock()
	if changed && text != "" {
		t.log.Warn("jobs of GitHub's runners not known", "err", err)
	}
}

// code is what kind of failure err is: its text names a runner.
func code(err error) string {
	for _, is := range [...]error{cimeter.ErrUnauthorized, cimeter.ErrInvalid, cimeter.ErrUnavailable} {
		if errors.Is(err, is) {
			return is.Error()
		}
	}
	return "failed"
}
