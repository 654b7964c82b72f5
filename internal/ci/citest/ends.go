package citest

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/queue"
)

// Ends counts how builds end as a server of cimeter does: by a board that is told by
// polls and webhooks. Make it with NewEnds.
type Ends struct {
	Times map[string]int // how often each build was counted, by key
	Last  map[string]queue.Ended
	board *queue.Board
}

// NewEnds returns one that has counted nothing since start.
func NewEnds(start time.Time) *Ends {
	return &Ends{
		Times: map[string]int{}, Last: map[string]queue.Ended{},
		board: queue.NewBoard(queue.Options{Servers: []queue.Source{{Name: "ci", CI: "ci", Interval: 10 * time.Second}}, Start: start}),
	}
}

// Poll polls once and counts. The error is the poll's.
func (e *Ends) Poll(t testing.TB, p Poller, at time.Time) (queue.Report, error) {
	t.Helper()
	r, err := p.Poll(t.Context())
	if err != nil {
		e.board.Failed("ci", at, err)
	} else {
		r.At = at
		e.board.Add("ci", true, r)
	}
	e.look(t, at)
	return r, err
}

// Hook counts what a webhook told.
func (e *Ends) Hook(t testing.TB, r queue.Report, at time.Time) {
	t.Helper()
	r.At = at
	e.board.Add("ci", false, r)
	e.look(t, at)
}

func (e *Ends) look(t testing.TB, at time.Time) {
	t.Helper()
	for _, j := range e.board.Look(at, nil) {
		e.Times[j.Key]++
		e.Last[j.Key] = j
		if n := e.Times[j.Key]; n > 1 {
			t.Errorf("%s was counted %d times", j.Key, n)
		}
	}
}

// Want fails a test unless these builds were counted, and no others, each as long as is
// said and with that result.
func (e *Ends) Want(t testing.TB, want map[string]Ended) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		w, j := want[key], e.Last[key]
		switch {
		case e.Times[key] != 1:
			t.Errorf("%s was counted %d times, want once", key, e.Times[key])
		case j.Status != w.Status || j.EndedAt.Sub(j.StartedAt) != w.Ran:
			t.Errorf("%s is %s after %v, want %s after %v", key, j.Status, j.EndedAt.Sub(j.StartedAt), w.Status, w.Ran)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(e.Times)) {
		if _, ok := want[key]; !ok {
			t.Errorf("%s was counted, and is none", key)
		}
	}
}

// Ended is how a build is to have ended.
type Ended struct {
	Status cimeter.JobStatus
	Ran    time.Duration
}

// Clocked puts questions by the clock of a stand-in, so that it is not taken for one that
// runs fast.
type Clocked struct {
	ask.Doer
	Now func() time.Time
}

// Do implements [ask.Doer].
func (c Clocked) Do(ctx context.Context, r ask.Request) (ask.Answer, error) {
	a, err := c.Doer.Do(ctx, r)
	a.At = c.Now()
	return a, err
}
