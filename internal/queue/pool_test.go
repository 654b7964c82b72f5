package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cimeter/cimeter"
)

// The pool finds for each build exactly the workers that a look at all of them
// finds, whatever the tags: of any case at GitHub, with stars at Woodpecker.
func TestPool(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	words := []string{"docker", "Docker", "DOCKER", "arch=amd64", "arch=*", "arch=arm=7", "arch=arm=*", "=*", "=", "a=*=*", "", "ſize", "size", "SIZE", "K8s", "\u212a8s", "k8s"}
	some := func(n int) []string {
		tags := []string{}
		for range r.IntN(n + 1) {
			tags = append(tags, words[r.IntN(len(words))])
		}
		return tags
	}
	found := 0
	for round := range 3000 {
		var workers []cimeter.Worker
		for n := range r.IntN(8) {
			workers = append(workers, cimeter.Worker{ID: fmt.Sprint(n), CI: []string{"github", "woodpecker", "gitlab"}[r.IntN(3)], Tags: some(4),
				State: []cimeter.WorkerState{cimeter.WorkerIdle, cimeter.WorkerBusy, cimeter.WorkerOffline, cimeter.WorkerDraining}[r.IntN(4)]})
		}
		tags := some(3)
		var want, got []string
		for i := range workers {
			if w := &workers[i]; w.State != cimeter.WorkerOffline && w.State != cimeter.WorkerDraining && fits(w, tags) {
				want = append(want, w.ID)
			}
		}
		newPool(workers, false).fitting(tags, func(w *cimeter.Worker) bool {
			got = append(got, w.ID)
			return true
		})
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Fatalf("round %d: %q of %+v: %q; want %q", round, tags, workers, got, want)
		}
		found += len(want)
	}
	if found < 1000 {
		t.Errorf("%d workers fitted: the rounds are no test", found)
	}
}
