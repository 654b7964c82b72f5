package httpapi

import (
	"github.com/cimeter/cimeter"
)

// figure is one cost in two builds. A side that does not know it is absent, and
// then there is no difference.
type figure struct {
	Name  string               `json:"name"` // as in a record, with a dot for what is within
	A     cimeter.Opt[float64] `json:"a,omitzero"`
	B     cimeter.Opt[float64] `json:"b,omitzero"`
	Delta cimeter.Opt[float64] `json:"delta,omitzero"` // b less a
	Ratio cimeter.Opt[float64] `json:"ratio,omitzero"` // b to a; absent when a is 0
}

type stagePair struct {
	Name    string   `json:"name"`
	InA     bool     `json:"in_a"`
	InB     bool     `json:"in_b"`
	Figures []figure `json:"figures"`
}

type comparison struct {
	A       cimeter.Build `json:"a"`
	B       cimeter.Build `json:"b"`
	Figures []figure      `json:"figures"`
	Stages  []stagePair   `json:"stages"` // in the order of a, then what only b has
}

// newComparison lays two builds side by side. Stages are matched by name and by
// their place among those of the same name.
func newComparison(a, b *cimeter.Record) comparison {
	c := comparison{A: a.Build, B: b.Build, Figures: figures(&a.Usage, &b.Usage), Stages: []stagePair{}}
	type id struct {
		name string
		nth  int
	}
	inB := map[id]*cimeter.Stage{}
	seen := map[string]int{}
	for i := range b.Stages {
		s := &b.Stages[i]
		inB[id{s.Name, seen[s.Name]}] = s
		seen[s.Name]++
	}
	matched := map[*cimeter.Stage]bool{}
	clear(seen)
	for i := range a.Stages {
		s := &a.Stages[i]
		other := inB[id{s.Name, seen[s.Name]}]
		seen[s.Name]++
		pair := stagePair{Name: s.Name, InA: true, InB: other != nil}
		if other != nil {
			matched[other] = true
			pair.Figures = figures(&s.Usage, &other.Usage)
		} else {
			pair.Figures = figures(&s.Usage, nil)
		}
		c.Stages = append(c.Stages, pair)
	}
	for i := range b.Stages {
		if s := &b.Stages[i]; !matched[s] {
			c.Stages = append(c.Stages, stagePair{Name: s.Name, InB: true, Figures: figures(nil, &s.Usage)})
		}
	}
	return c
}

// figures returns the costs that one of two usages knows; nil knows none.
func figures(a, b *cimeter.Usage) []figure {
	of := func(u *cimeter.Usage, get func(*cimeter.Usage) cimeter.Opt[float64]) cimeter.Opt[float64] {
		if u == nil {
			return cimeter.Opt[float64]{}
		}
		return get(u)
	}
	all := []figure{}
	for _, cost := range costs() {
		f := figure{Name: cost.name, A: of(a, cost.get), B: of(b, cost.get)}
		va, knownA := f.A.Get()
		vb, knownB := f.B.Get()
		if knownA && knownB {
			f.Delta = cimeter.Some(vb - va)
			if va != 0 {
				f.Ratio = cimeter.Some(vb / va)
			}
		}
		if knownA || knownB {
			all = append(all, f)
		}
	}
	return all
}

type cost struct {
	name string
	get  func(*cimeter.Usage) cimeter.Opt[float64]
}

func costs() []cost {
	whole := func(n cimeter.Opt[uint64]) cimeter.Opt[float64] {
		return cimeter.Opt[float64]{Value: float64(n.Value), Known: n.Known}
	}
	return []cost{
		{"wall_seconds", func(u *cimeter.Usage) cimeter.Opt[float64] { return cimeter.Some(u.WallSeconds) }},
		{"cpu_seconds.total", func(u *cimeter.Usage) cimeter.Opt[float64] { return u.CPUSeconds.Total }},
		{"cpu_throttled_seconds", func(u *cimeter.Usage) cimeter.Opt[float64] { return u.CPUThrottledSeconds }},
		{"memory_bytes.peak", func(u *cimeter.Usage) (n cimeter.Opt[float64]) {
			if u.MemoryBytes != nil {
				n = whole(u.MemoryBytes.Peak)
			}
			return n
		}},
		{"io_bytes.read", func(u *cimeter.Usage) (n cimeter.Opt[float64]) {
			if u.IOBytes != nil {
				n = cimeter.Some(float64(u.IOBytes.Read))
			}
			return n
		}},
		{"io_bytes.write", func(u *cimeter.Usage) (n cimeter.Opt[float64]) {
			if u.IOBytes != nil {
				n = cimeter.Some(float64(u.IOBytes.Write))
			}
			return n
		}},
		{"network_bytes.receive", func(u *cimeter.Usage) (n cimeter.Opt[float64]) {
			if u.NetworkBytes != nil {
				n = cimeter.Some(float64(u.NetworkBytes.Receive))
			}
			return n
		}},
		{"network_bytes.transmit", func(u *cimeter.Usage) (n cimeter.Opt[float64]) {
			if u.NetworkBytes != nil {
				n = cimeter.Some(float64(u.NetworkBytes.Transmit))
			}
			return n
		}},
	}
}
