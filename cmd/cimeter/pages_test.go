package main

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter/internal/queue"
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
