package summary

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
)

// Pair is a stage in two builds; nil where a build does not have it.
type Pair struct {
	Name  string // of the stage
	Label string // as a table shows it, once it is made safe
	A, B  *cimeter.Usage
}

// Pairs joins the stages of two builds by name and by their place among those
// of the same name: in the order of a, then what only b has.
func Pairs(a, b *cimeter.Record) []Pair {
	type id struct {
		name string
		nth  int
	}
	pairs := make([]Pair, 0, len(a.Stages))
	at := make(map[id]int, len(a.Stages))
	seen := map[string]int{}
	for i := range a.Stages {
		s := &a.Stages[i]
		at[id{s.Name, seen[s.Name]}] = i
		seen[s.Name]++
		pairs = append(pairs, Pair{Name: s.Name, Label: stageName(s), A: &s.Usage})
	}
	clear(seen)
	for i := range b.Stages {
		s := &b.Stages[i]
		if j, ok := at[id{s.Name, seen[s.Name]}]; ok {
			pairs[j].B = &s.Usage
		} else {
			pairs = append(pairs, Pair{Name: s.Name, Label: stageName(s), B: &s.Usage})
		}
		seen[s.Name]++
	}
	return pairs
}

// Median is a record whose figures are the medians of rs, which holds one at
// least, stage by stage, each among the builds that know it. Disk is booked as
// written and network as sent.
func Median(rs []*cimeter.Record) *cimeter.Record {
	m := &cimeter.Record{
		Schema: cimeter.RecordSchema, Complete: true, Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{}, Limits: rs[0].Limits,
		Build: cimeter.Build{CI: rs[0].CI, Project: rs[0].Project, Name: rs[0].Name},
	}
	type id struct {
		name    string
		attempt int
	}
	var totals []*cimeter.Usage
	var queues []float64
	by := map[id][]*cimeter.Usage{}
	var order []id
	for _, r := range rs {
		totals = append(totals, &r.Usage)
		if q := queued(r); q.Known {
			queues = append(queues, q.Value)
		}
		for i := range r.Stages {
			s := &r.Stages[i]
			k := id{s.Name, s.Attempt}
			if by[k] == nil {
				order = append(order, k)
				m.Stages = append(m.Stages, cimeter.Stage{Name: s.Name, Attempt: s.Attempt, Alongside: s.Alongside})
			}
			by[k] = append(by[k], &s.Usage)
		}
	}
	if len(queues) > 0 { // the times say nothing but their distance
		m.StartedAt = rs[0].StartedAt
		m.QueuedAt = m.StartedAt.Add(-time.Duration(median(queues) * float64(time.Second)))
	}
	m.Usage = medianUsage(totals)
	for i, k := range order {
		m.Stages[i].Usage = medianUsage(by[k])
	}
	return m
}

func medianUsage(us []*cimeter.Usage) cimeter.Usage {
	of := func(f func(*cimeter.Usage) opt) opt {
		var vs []float64
		for _, u := range us {
			if v := f(u); v.Known {
				vs = append(vs, v.Value)
			}
		}
		if len(vs) == 0 {
			return opt{}
		}
		return some(median(vs))
	}
	u := cimeter.Usage{WallSeconds: of(func(u *cimeter.Usage) opt { return some(u.WallSeconds) }).Value}
	u.CPUSeconds.Total = of(cpuSeconds)
	u.CPUThrottledSeconds = of(func(u *cimeter.Usage) opt { return u.CPUThrottledSeconds })
	waited := func(f func(*cimeter.PressureSeconds) opt) opt {
		return of(func(u *cimeter.Usage) opt {
			if u.PressureSeconds == nil {
				return opt{}
			}
			return f(u.PressureSeconds)
		})
	}
	if p := (cimeter.PressureSeconds{
		CPUSome:    waited(func(p *cimeter.PressureSeconds) opt { return p.CPUSome }),
		MemorySome: waited(func(p *cimeter.PressureSeconds) opt { return p.MemorySome }),
		IOSome:     waited(func(p *cimeter.PressureSeconds) opt { return p.IOSome }),
	}); p != (cimeter.PressureSeconds{}) {
		u.PressureSeconds = &p
	}
	if p := of(peak); p.Known {
		u.MemoryBytes = &cimeter.MemoryStat{Peak: cimeter.Some(uint64(p.Value))}
	}
	if d := of(disk); d.Known {
		u.IOBytes = &cimeter.ReadWrite[uint64]{Write: uint64(d.Value)}
	}
	if n := of(net); n.Known {
		u.NetworkBytes = &cimeter.ReceiveTransmit[uint64]{Transmit: uint64(n.Value)}
	}
	return u
}

func median(vs []float64) float64 {
	vs = slices.Sorted(slices.Values(vs))
	if n := len(vs); n%2 == 0 {
		return (vs[n/2-1] + vs[n/2]) / 2
	}
	return vs[len(vs)/2]
}

// deviation is the median distance from the median; 0 of nothing.
func deviation(vs []float64) float64 {
	if len(vs) == 0 {
		return 0
	}
	m := median(vs)
	away := make([]float64, len(vs))
	for i, v := range vs {
		away[i] = math.Abs(v - m)
	}
	return median(away)
}

// cpuSeconds is a usage's CPU time; absent for no usage.
func cpuSeconds(u *cimeter.Usage) opt {
	if u == nil {
		return opt{}
	}
	return u.CPUSeconds.Total
}

// difference is a pair with what its CPU time differs by.
type difference struct {
	Pair
	by    opt  // B less A, CPU seconds
	means bool // it is beyond the job's own spread
}

// differ returns the pairs of two builds, the largest difference of CPU time
// first, then the totals. before are the job's builds before B.
func differ(a, b *cimeter.Record, before []*cimeter.Record) (stages []difference, total difference) {
	of := func(p Pair, usual []float64, least float64) difference {
		d := difference{Pair: p}
		x, y := cpuSeconds(p.A), cpuSeconds(p.B)
		if x.Known && y.Known {
			d.by = some(y.Value - x.Value)
			far := math.Abs(d.by.Value)
			d.means = far > 3*deviation(usual) && far >= 0.1*x.Value && far >= least
		}
		return d
	}
	var totals []float64
	usual := map[string][]float64{}
	for _, r := range before {
		if v, ok := cpuSeconds(&r.Usage).Get(); ok {
			totals = append(totals, v)
		}
		for i := range r.Stages {
			if v, ok := cpuSeconds(&r.Stages[i].Usage).Get(); ok {
				usual[r.Stages[i].Name] = append(usual[r.Stages[i].Name], v)
			}
		}
	}
	for _, p := range Pairs(a, b) {
		stages = append(stages, of(p, usual[p.Name], 0.05))
	}
	weight := func(d difference) float64 { // of a stage that only one has: all of it
		return math.Abs(cpuSeconds(d.B).Value - cpuSeconds(d.A).Value)
	}
	slices.SortStableFunc(stages, func(x, y difference) int { return cmp.Compare(weight(y), weight(x)) })
	return stages, of(Pair{Label: "total", A: &a.Usage, B: &b.Usage}, totals, 0)
}
