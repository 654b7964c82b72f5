package web

import (
	"math"
	"net/url"

	"github.com/cimeter/cimeter"
)

// A trace has no kinds of memory and no operations: a record is to stay small. What the
// stages say of them is drawn instead, each stage's mean over its time.

// chartView is which of a build's charts show their other side: mem=kinds, disk=ops.
type chartView struct{ Kinds, Operations bool }

// viewOf reads the view of a URL. Where no stage knows what is asked for, it is not shown.
func viewOf(q url.Values, r *cimeter.Record) chartView {
	can := viewsOf(r)
	return chartView{Kinds: can.Kinds && q.Get("mem") == "kinds", Operations: can.Operations && q.Get("disk") == "ops"}
}

// viewsOf is what the stages of r know.
func viewsOf(r *cimeter.Record) (can chartView) {
	if r.Trace == nil {
		return can
	}
	for i := range r.Stages {
		u := &r.Stages[i].Usage
		can.Kinds = can.Kinds || u.MemoryBytes != nil && u.MemoryAnonBytes != nil
		can.Operations = can.Operations || u.IOOperationsPerSecond != nil
	}
	return can
}

// kind is one kind of memory, in bytes, or one direction of operations, a second.
type kind struct {
	label, class string
	of           func(*cimeter.Usage) opt
}

func meanOf(s *cimeter.Stat) opt {
	if s == nil {
		return opt{}
	}
	return some(s.Avg)
}

// kindsOf are the kinds of memory that r knows. Its containers' files and the kernel's
// own memory for them are what is not anonymous; swap is shown where there is some.
func kindsOf(r *cimeter.Record) []kind {
	kinds := []kind{
		{"anonymous", "mem", func(u *cimeter.Usage) opt { return meanOf(u.MemoryAnonBytes) }},
		{"files and kernel", "mem dash", func(u *cimeter.Usage) opt {
			if u.MemoryBytes == nil || u.MemoryAnonBytes == nil {
				return opt{}
			}
			return some(max(0, u.MemoryBytes.Avg-u.MemoryAnonBytes.Avg))
		}},
	}
	for i := range r.Stages {
		if s := r.Stages[i].Usage.MemorySwapBytes; s != nil && s.Max > 0 {
			return append(kinds, kind{"swap", "mem dot", func(u *cimeter.Usage) opt { return meanOf(u.MemorySwapBytes) }})
		}
	}
	return kinds
}

// operations are the two directions of operations.
func operations() []kind {
	return []kind{
		{"read", "disk", func(u *cimeter.Usage) opt {
			if u.IOOperationsPerSecond == nil {
				return opt{}
			}
			return some(u.IOOperationsPerSecond.Read.Avg)
		}},
		{"written", "disk dash", func(u *cimeter.Usage) opt {
			if u.IOOperationsPerSecond == nil {
				return opt{}
			}
			return some(u.IOOperationsPerSecond.Write.Avg)
		}},
	}
}

// stageSteps lays what stages say over the steps of the trace: in each the mean by the
// time that they take of it, with what ran alongside added. A level is a mean of the time
// that stages cover; a rate, of the whole step. NaN where no stage knows.
func stageSteps(r *cimeter.Record, level bool, value func(*cimeter.Usage) opt) []float64 {
	t := r.Trace
	if t == nil || !(t.StepSeconds > 0) {
		return nil
	}
	n := 0
	for _, c := range [][]cimeter.Opt[int64]{t.CPUMillicores, t.MemoryKiB, t.IOReadBytesPerSecond, t.NetworkReceivePerSec} {
		n = max(n, len(c))
	}
	sums, covered, beside := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range r.Stages {
		s := &r.Stages[i]
		v := value(&s.Usage)
		if !v.Known || s.StartedAt.IsZero() {
			continue
		}
		from, to := s.StartedAt.Sub(r.StartedAt).Seconds(), s.EndedAt.Sub(r.StartedAt).Seconds()
		cover := covered
		if s.Alongside {
			cover = beside
		}
		for k := max(0, int(from/t.StepSeconds)); k < n && float64(k)*t.StepSeconds < to; k++ {
			w := min(to, float64(k+1)*t.StepSeconds) - max(from, float64(k)*t.StepSeconds)
			sums[k] += v.Value * max(0, w)
			cover[k] += max(0, w)
		}
	}
	for k := range sums {
		switch c := max(covered[k], beside[k]); {
		case c <= 0:
			sums[k] = math.NaN()
		case level:
			sums[k] /= min(c, t.StepSeconds)
		default:
			sums[k] /= t.StepSeconds
		}
	}
	return sums
}

// seriesOf are kinds as lines; every other line goes below zero where mirrored.
func seriesOf(r *cimeter.Record, kinds []kind, level, mirrored bool) (ss []series) {
	for i, k := range kinds {
		ys := stageSteps(r, level, k.of)
		if mirrored && i%2 == 1 {
			for j := range ys {
				ys[j] = -ys[j]
			}
		}
		ss = append(ss, series{Label: k.label, Class: k.class, ys: ys})
	}
	return ss
}

// columnsOfKinds are kinds as columns for the script, in whole numbers of 1/scale.
func columnsOfKinds(r *cimeter.Record, kinds []kind, level bool, scale float64) (cols []jsonColumn) {
	for _, k := range kinds {
		ys := stageSteps(r, level, k.of)
		c := make(jsonColumn, len(ys))
		for j, y := range ys {
			if !math.IsNaN(y) {
				c[j] = cimeter.Some(int64(math.Round(y * scale)))
			}
		}
		cols = append(cols, c)
	}
	return cols
}
