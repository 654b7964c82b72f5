package web

import (
	"slices"

	"github.com/cimeter/cimeter"
)

// sparkSteps is how many steps a sparkline in a list has: more cannot be told
// apart in its width.
const sparkSteps = 32

// RowOf is the row of a record in a list.
func RowOf(r *cimeter.Record) Row {
	row := Row{Build: r.Build, QueuedAt: r.QueuedAt, StartedAt: r.StartedAt, EndedAt: r.EndedAt, Result: r.Result, Complete: r.Complete,
		Coverage: r.Coverage, WallSeconds: wall(&r.Usage, r), Unmetered: unmetered(r), CPUSeconds: r.Usage.CPUSeconds.Total, Waited: waited(r.Usage.PressureSeconds)}
	if s := r.Usage.CPUCores; s != nil {
		row.CPUCores = some(s.Avg)
	}
	if r.Limits != nil {
		row.CPULimit, row.MemoryLimit = r.Limits.CPUCores, r.Limits.MemoryBytes
	}
	if m := r.Usage.MemoryBytes; m != nil {
		row.MemoryPeak = m.Peak
		if !m.Peak.Known {
			row.MemoryPeak = cimeter.Some(uint64(m.Max))
		}
	}
	if b := r.Usage.IOBytes; b != nil {
		row.DiskBytes = cimeter.Some(b.Read + b.Write)
	}
	if b := r.Usage.NetworkBytes; b != nil {
		row.NetBytes = cimeter.Some(b.Receive + b.Transmit)
	}
	for _, v := range r.Verdicts {
		if !slices.Contains(row.Verdicts, v.Kind) {
			row.Verdicts = append(row.Verdicts, v.Kind)
		}
	}
	if r.Trace != nil {
		row.CPUSpark = squeeze(r.Trace.CPUMillicores, sparkSteps)
	}
	return row
}

// Queue is how long the build waited, in seconds; absent when the CI system did
// not tell or its clock was ahead.
func (r *Row) Queue() cimeter.Opt[float64] {
	if r.QueuedAt.IsZero() || r.StartedAt.Before(r.QueuedAt) {
		return opt{}
	}
	return some(r.StartedAt.Sub(r.QueuedAt).Seconds())
}

// unmetered reports whether only a CI server told of a build.
func unmetered(r *cimeter.Record) bool { return r.Metered == cimeter.Some(false) }

// Wall is how long the build took, in seconds; absent of one that only a CI server
// told of and that never started.
func (r *Row) Wall() cimeter.Opt[float64] {
	if r.Unmetered && r.WallSeconds <= 0 {
		return opt{}
	}
	return some(r.WallSeconds)
}

// wall is a build's time, else the distance of its bounds.
func wall(u *cimeter.Usage, r *cimeter.Record) float64 {
	if u.WallSeconds > 0 || r.StartedAt.IsZero() || !r.EndedAt.After(r.StartedAt) {
		return u.WallSeconds
	}
	return r.EndedAt.Sub(r.StartedAt).Seconds()
}

// squeeze makes at most n steps of vs: the mean of what is known in each.
func squeeze(vs []cimeter.Opt[int64], n int) []cimeter.Opt[int64] {
	if len(vs) <= n {
		return vs
	}
	out := make([]cimeter.Opt[int64], n)
	for i := range out {
		var sum, known int64
		for _, v := range vs[i*len(vs)/n : (i+1)*len(vs)/n] {
			if v.Known {
				sum += v.Value
				known++
			}
		}
		if known > 0 {
			out[i] = cimeter.Some(sum / known)
		}
	}
	return out
}
