package queue

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// The steps in which history is kept: minutes for a day, tens of minutes for a week.
const (
	FineStep   = time.Minute
	CoarseStep = 10 * time.Minute
	KeepFine   = 24 * time.Hour
	KeepCoarse = 7 * 24 * time.Hour
)

const (
	maxPoints = int(KeepFine / FineStep)
	maxCoarse = int(KeepCoarse / CoarseStep)
	// maxFresh bounds the points that nobody took: more than an hour of a hundred servers.
	maxFresh = 10_000
)

// KeptPoint is a point of a server's history as a store keeps it: means over a step
// that ends at it.
type KeptPoint struct {
	Server string // as the settings call it
	Step   time.Duration
	Point
}

// Fresh returns the points of the history that are whole since it was asked last, for
// those who store them.
func (b *Board) Fresh() (points []KeptPoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.order {
		points = append(points, s.fresh...)
		s.fresh = nil
	}
	return points
}

// Restore adds points that a store kept to the history. Of points of one time those
// stay that are there; points of servers that the options do not name are left out.
func (b *Board) Restore(points []KeptPoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	type lists struct{ fine, coarse []Point }
	of := map[string]*lists{}
	for _, p := range points {
		l := of[p.Server]
		if l == nil {
			l = &lists{}
			of[p.Server] = l
		}
		switch p.Step {
		case FineStep:
			l.fine = append(l.fine, p.Point)
		case CoarseStep:
			l.coarse = append(l.coarse, p.Point)
		}
	}
	for name, l := range of {
		if s := b.servers[name]; s != nil {
			s.points = merged(s.points, l.fine, maxPoints)
			s.coarse = merged(s.coarse, l.coarse, maxCoarse)
		}
	}
}

// merged are points of two lists in order, the last most of them; readers may hold
// the first list.
func merged(have, more []Point, most int) []Point {
	all := slices.Concat(have, more)
	slices.SortStableFunc(all, func(x, y Point) int { return cmp.Compare(x.At, y.At) })
	all = slices.CompactFunc(all, func(x, y Point) bool { return x.At == y.At })
	return all[max(0, len(all)-most):]
}

// keep adds a minute to the history, and the ten that are whole with it.
func (s *server) keep(p Point) {
	if n := len(s.points); n > 0 && windowOf(s.points[n-1].At) != windowOf(p.At) {
		window := windowOf(s.points[n-1].At)
		first := n
		for first > 0 && windowOf(s.points[first-1].At) == window {
			first--
		}
		whole := meanOf(s.points[first:], (window+1)*int64(CoarseStep/time.Second))
		if m := len(s.coarse); m == 0 || s.coarse[m-1].At < whole.At {
			s.coarse = bounded(append(s.coarse, whole), maxCoarse)
			s.tell(KeptPoint{s.Name, CoarseStep, whole})
		}
	}
	s.points = bounded(append(s.points, p), maxPoints)
	s.tell(KeptPoint{s.Name, FineStep, p})
}

// windowOf is the number of the coarse step that a point is in.
func windowOf(at int64) int64 { return (at - 1) / int64(CoarseStep/time.Second) }

func bounded(points []Point, most int) []Point { return points[max(0, len(points)-most):] }

func (s *server) tell(p KeptPoint) {
	if s.fresh = append(s.fresh, p); len(s.fresh) > maxFresh {
		s.fresh = s.fresh[1:]
	}
}

// meanOf is the mean of points, of each value where it is known; that of percentiles
// is no percentile, but what a line of them looks like from afar.
func meanOf(points []Point, at int64) Point {
	mean := func(value func(*Point) float32) float32 {
		sum, n := 0.0, 0
		for i := range points {
			if v := float64(value(&points[i])); !math.IsNaN(v) {
				sum, n = sum+v, n+1
			}
		}
		return float32(sum / float64(n)) // 0/0 is NaN: not known
	}
	return Point{
		At: at, Waiting: mean(func(p *Point) float32 { return p.Waiting }), Blocked: mean(func(p *Point) float32 { return p.Blocked }),
		Running: mean(func(p *Point) float32 { return p.Running }), Slots: mean(func(p *Point) float32 { return p.Slots }),
		P50: mean(func(p *Point) float32 { return p.P50 }), P95: mean(func(p *Point) float32 { return p.P95 }),
	}
}
