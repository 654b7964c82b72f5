package store

import (
	"math"
	"slices"

	"github.com/cimeter/cimeter"
)

// Spread is what is usual of a figure: the median of N builds and the median
// absolute deviation from it, in the figure's unit.
type Spread struct {
	Median float64
	MAD    float64
	N      int
}

// Beyond reports whether v differs from the median by more than the job's own
// spread: three times the deviation, and at least a tenth.
func (s Spread) Beyond(v float64) bool {
	d := math.Abs(v - s.Median)
	return s.N > 0 && d > 3*s.MAD && d >= 0.1*math.Abs(s.Median)
}

// Usual is what is usual of a job. A figure that no build knows has N 0.
type Usual struct {
	Builds          int
	WallSeconds     Spread
	CPUSeconds      Spread
	MemoryPeakBytes Spread
	IOBytes         Spread
	NetworkBytes    Spread
	QueueSeconds    Spread
	Stages          []UsualStage // in the order in which they first appear, newest build first
}

// UsualStage is what is usual of one stage.
type UsualStage struct {
	Name            string
	WallSeconds     Spread
	CPUSeconds      Spread
	MemoryPeakBytes Spread
}

// UsualOf tells what is usual of builds. The caller chooses them: the build
// that is compared, and those that failed early, do not belong among them.
func UsualOf(records []*cimeter.Record) Usual {
	u := Usual{Builds: len(records)}
	var build figures
	var queue []float64
	var names []string
	stages := map[string]*figures{}
	for _, r := range records {
		build.add(&r.Usage)
		if !r.QueuedAt.IsZero() {
			queue = append(queue, max(0, r.StartedAt.Sub(r.QueuedAt).Seconds()))
		}
		for i := range r.Stages {
			s := &r.Stages[i]
			if stages[s.Name] == nil {
				stages[s.Name] = &figures{}
				names = append(names, s.Name)
			}
			stages[s.Name].add(&s.Usage)
		}
	}
	u.WallSeconds, u.CPUSeconds, u.MemoryPeakBytes = SpreadOf(build.wall), SpreadOf(build.cpu), SpreadOf(build.mem)
	u.IOBytes, u.NetworkBytes, u.QueueSeconds = SpreadOf(build.io), SpreadOf(build.net), SpreadOf(queue)
	for _, n := range names {
		s := stages[n]
		u.Stages = append(u.Stages, UsualStage{n, SpreadOf(s.wall), SpreadOf(s.cpu), SpreadOf(s.mem)})
	}
	return u
}

type figures struct{ wall, cpu, mem, io, net []float64 }

func (f *figures) add(u *cimeter.Usage) {
	f.wall = append(f.wall, u.WallSeconds)
	if v, ok := u.CPUSeconds.Total.Get(); ok {
		f.cpu = append(f.cpu, v)
	}
	s := usage("", u)
	for _, x := range []struct {
		to *[]float64
		v  int64
	}{{&f.mem, s.MemPeak}, {&f.io, s.IO}, {&f.net, s.Net}} {
		if x.v >= 0 {
			*x.to = append(*x.to, float64(x.v))
		}
	}
}

// SpreadOf is the spread of values.
func SpreadOf(values []float64) Spread {
	s := Spread{N: len(values)}
	if s.N == 0 {
		return s
	}
	s.Median = median(values)
	off := make([]float64, len(values))
	for i, v := range values {
		off[i] = math.Abs(v - s.Median)
	}
	s.MAD = median(off)
	return s
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
