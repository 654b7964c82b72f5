package agent

import (
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/process"
)

// While there is nothing to follow nothing is done between two looks for a runner, and
// these are rarer where they cost much, up to a bound.
func TestShells_nextTick(t *testing.T) {
	forest, err := process.Open("").NewForest(process.ForestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer forest.Close()
	now := time.Now()
	s := &shells{Agent: &Agent{opts: Options{Interval: time.Second}}, forest: forest, scanned: now}
	for _, c := range []struct{ cost, want time.Duration }{
		{-time.Millisecond, idleScan},
		{time.Millisecond, idleScan},
		{20 * time.Millisecond, 40 * time.Second},
		{time.Second, 2 * idleScan},
	} {
		s.scanCost = c.cost
		if got := s.nextTick(now).Sub(now); got != c.want {
			t.Errorf("after a look that cost %v the next is in %v, want %v", c.cost, got, c.want)
		}
	}
	s.list = []*shell{{}}
	if got := s.nextTick(now).Sub(now); got != time.Second {
		t.Errorf("with a family in %v, want 1 s", got)
	}
	s.list, s.holders = nil, map[string]int{"runner": 1}
	if got := s.nextTick(now).Sub(now); got != time.Second {
		t.Errorf("with a build that is held open in %v, want 1 s", got)
	}
}
