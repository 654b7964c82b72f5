package main

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/wire"
)

// Many who look at once cost one state, and none is older than a second.
func TestRecentQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		q := recentQueue{state: func() queue.State { asked++; return queue.State{At: time.Now()} }}
		for range 3 {
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if age := time.Since(q.State().At); age >= queueAge {
						t.Errorf("state of %v ago: want less than %v", age, queueAge)
					}
				})
			}
			all.Wait()
			time.Sleep(queueAge)
		}
		if asked != 3 {
			t.Errorf("asked %d times: want 3", asked)
		}
	})
}

// keptNeighbours is a store that knows of two builds beside any.
type keptNeighbours struct{ builds }

func (keptNeighbours) Neighbours(context.Context, *cimeter.Record) (store.Neighbours, error) {
	return store.Neighbours{Builds: 2, AtOnce: 1.5}, nil
}

// Beside a build ran what is kept, and what still runs on its machine alone.
func TestNeighbours(t *testing.T) {
	at := time.Unix(1e9, 0)
	s := pageSource{kept: keptNeighbours{}, agents: func() []httpapi.Agent {
		return []httpapi.Agent{
			{SeenAt: at.Add(time.Hour), Heartbeat: wire.Heartbeat{Machine: "ci-1", Running: []wire.Running{{Key: "own", StartedAt: at}, {Key: "half", StartedAt: at.Add(time.Minute)}, {Key: "later", StartedAt: at.Add(2 * time.Minute)}}}},
			{SeenAt: at.Add(time.Hour), Heartbeat: wire.Heartbeat{Machine: "ci-2", Running: []wire.Running{{Key: "elsewhere", StartedAt: at}}}},
		}
	}}
	n, atOnce, err := s.Neighbours(t.Context(), &cimeter.Record{Build: cimeter.Build{Key: "own", Machine: "ci-1"}, StartedAt: at, EndedAt: at.Add(2 * time.Minute)})
	if err != nil || n != 3 || atOnce != 2 {
		t.Errorf("%d builds, %v at once, %v: want 3, 2 at once", n, atOnce, err)
	}
}
