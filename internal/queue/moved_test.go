package queue_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

// A build whose server gives it another key when it starts is one build, in whatever
// order it is told of, and keeps since when and for what it waited.
func TestBoard_moved(t *testing.T) {
	waits, runs, ended := job(1, cimeter.JobWaiting), job(2, cimeter.JobRunning), job(2, cimeter.JobSuccess)
	waits.QueuedAt, waits.Tags = at(0), []string{"x"}
	runs.StartedAt, ended.StartedAt, ended.EndedAt = at(40), at(40), at(60)
	moved := []queue.Moved{{From: waits.Key, To: runs.Key}}
	reports := []queue.Report{one(1, waits), one(41, runs), one(61, ended)}
	reports[1].Moved, reports[2].Moved = moved, moved
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 9))
		all := slices.Concat(reports, reports[:r.IntN(3)])
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		b := newBoard()
		told := map[string]cimeter.Job{}
		for _, rep := range all {
			for _, j := range b.Add(server, false, rep) {
				told[j.Key] = j
			}
		}
		over := b.Look(at(70), nil)
		if len(over) != 1 || over[0].Key != runs.Key || over[0].Status != cimeter.JobSuccess {
			t.Fatalf("seed %d: %+v: want one build that ended", seed, over)
		}
		if j := told[runs.Key]; told[waits.Key].Status.Ended() || j.Status != cimeter.JobSuccess {
			t.Errorf("seed %d: told those who store it %+v", seed, told)
		}
		wantCounts(t, b, 70, "0 waiting, 0 blocked, 0 running")
	}
	b := newBoard()
	b.Add(server, true, queue.Report{At: at(0), WholeWorkers: true, Workers: []cimeter.Worker{{ID: "w", Tags: []string{"x"}, State: cimeter.WorkerBusy, Slots: cimeter.Some(1), Running: cimeter.Some(1)}}})
	b.Add(server, true, reports[0])
	for now := range 40 {
		b.Look(at(float64(now)), nil)
	}
	b.Add(server, true, reports[1])
	b.Add(server, true, reports[2])
	b.Add(server, true, reports[0]) // late
	if over := b.Look(at(70), nil); len(over) != 1 || over[0].Wait.NoSlot < 30 || !over[0].QueuedAt.Equal(at(0)) || fmt.Sprint(over[0].Tags) != "[x]" {
		t.Errorf("%+v: want 38 s without a slot", over)
	}
	if d := b.Dropped(); d != (queue.Dropped{}) {
		t.Errorf("%+v", d)
	}
}

// Two builds that would have one key, legs of a matrix, stay two: the first has it.
func TestBoard_movedTwice(t *testing.T) {
	first, second := job(1, cimeter.JobWaiting), job(2, cimeter.JobWaiting)
	b := newBoard()
	b.Add(server, false, one(1, first, second))
	start := func(t float64, from cimeter.Job, status cimeter.JobStatus) []cimeter.Job {
		j := job(9, status)
		r := one(t, j)
		r.Moved = []queue.Moved{{From: from.Key, To: j.Key}}
		return b.Add(server, false, r)
	}
	start(2, first, cimeter.JobRunning)
	start(3, first, cimeter.JobSuccess)
	if changed := start(4, second, cimeter.JobRunning); len(changed) != 1 || changed[0].Key != second.Key || changed[0].Status != cimeter.JobRunning {
		t.Errorf("%+v: want the second under its own key", changed)
	}
	wantCounts(t, b, 5, "0 waiting, 0 blocked, 1 running")
	start(6, second, cimeter.JobFailed)
	if over := b.Look(at(7), nil); len(over) != 2 || over[0].Status == over[1].Status {
		t.Errorf("%+v: want both ends", over)
	}
	for _, m := range []queue.Moved{{}, {From: "a"}, {To: "a"}, {From: "a", To: "a"}} {
		b.Add(server, false, queue.Report{At: at(8), Moved: []queue.Moved{m}})
	}
	if d := b.Dropped(); d.Unusable != 4 {
		t.Errorf("%+v: want four that are unusable", d)
	}
}
