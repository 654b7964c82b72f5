package summary

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cimeter/cimeter"
)

// Whole is a build of which several machines, or one more than once, told their parts,
// as one record: what the first part knows, from the first start to the last end, with
// the usage of [Together], how often it was throttled and killed, and the stages, gaps,
// nested parts and verdicts of all. The limits are those of the part with the largest
// peak of memory. What no machine can tell of another is absent: a trace, rates, levels.
// The first part is the one with the build's own key, which is the shortest. parts stay
// as they are; there is at least one.
func Whole(parts []*cimeter.Record) *cimeter.Record {
	parts = slices.SortedStableFunc(slices.Values(parts), func(x, y *cimeter.Record) int { return x.StartedAt.Compare(y.StartedAt) })
	if len(parts) == 1 {
		return parts[0]
	}
	r := *slices.MinFunc(parts, func(x, y *cimeter.Record) int {
		return cmp.Or(cmp.Compare(len(x.Key), len(y.Key)), strings.Compare(x.Key, y.Key))
	})
	waited := r.StartedAt.Sub(r.QueuedAt)
	r.StartedAt = parts[0].StartedAt
	if !r.QueuedAt.IsZero() {
		r.QueuedAt = r.StartedAt.Add(-max(0, waited))
	}
	r.Complete, r.Coverage, r.Usage, r.Trace = true, cimeter.Opt[float64]{}, Together(parts), nil
	r.Gaps, r.Stages, r.Parts, r.Verdicts = []cimeter.Gap{}, []cimeter.Stage{}, nil, nil
	peak := uint64(0)
	for _, p := range parts {
		if p.EndedAt.After(r.EndedAt) {
			r.EndedAt = p.EndedAt
		}
		if r.Result == "" {
			r.Result, r.FailedFor = p.Result, p.FailedFor
		}
		r.Complete = r.Complete && p.Complete
		if p.Coverage.Known && (!r.Coverage.Known || p.Coverage.Value < r.Coverage.Value) {
			r.Coverage = p.Coverage
		}
		if m := p.Usage.MemoryBytes; m != nil && m.Peak.Value > peak {
			peak, r.Limits = m.Peak.Value, p.Limits
		}
		u := &p.Usage
		for _, sum := range []struct{ to, of *cimeter.Opt[uint64] }{
			{&r.Usage.CPUPeriods, &u.CPUPeriods}, {&r.Usage.CPUThrottledPeriods, &u.CPUThrottledPeriods},
			{&r.Usage.OOMKills, &u.OOMKills}, {&r.Usage.OOMKillsNested, &u.OOMKillsNested},
		} {
			if sum.of.Known {
				*sum.to = cimeter.Some(sum.to.Value + sum.of.Value)
			}
		}
		if s := u.CPUThrottledSeconds; s.Known {
			r.Usage.CPUThrottledSeconds = cimeter.Some(r.Usage.CPUThrottledSeconds.Value + s.Value)
		}
		r.Gaps, r.Stages = append(r.Gaps, p.Gaps...), append(r.Stages, p.Stages...)
		r.Parts, r.Verdicts = append(r.Parts, p.Parts...), append(r.Verdicts, p.Verdicts...)
	}
	slices.SortStableFunc(r.Stages, func(x, y cimeter.Stage) int { return x.StartedAt.Compare(y.StartedAt) })
	return &r
}
