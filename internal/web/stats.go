package web

import (
	"math"
	"slices"

	"github.com/cimeter/cimeter"
)

// minPeers is how many builds of a job there must be before one is compared
// with them.
const minPeers = 5

// spread is the middle of a job's builds and how far they lie apart.
type spread struct {
	n           int
	median, mad float64
	lo, hi      float64
}

func spreadOf(vs []float64) spread {
	s := spread{n: len(vs)}
	if s.n == 0 {
		return s
	}
	vs = slices.Sorted(slices.Values(vs))
	s.lo, s.hi, s.median = vs[0], vs[len(vs)-1], middle(vs)
	away := make([]float64, len(vs))
	for i, v := range vs {
		away[i] = math.Abs(v - s.median)
	}
	slices.Sort(away)
	s.mad = middle(away)
	return s
}

func middle(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// percentile is the value that a share p of values stay at or under, by nearest rank.
func percentile(sorted []float64, p float64) float64 {
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

// beyond reports whether v is far enough from the median to mean something:
// three times the median deviation, and a tenth of the median.
func (s spread) beyond(v float64) bool {
	d := math.Abs(v - s.median)
	return s.n >= minPeers && d > 3*s.mad && d >= 0.1*math.Abs(s.median)
}

// change is a difference with its mark: by sign and word, and by colour only
// when it means something.
type change struct {
	Text  string // ▲ 12 %
	Word  string // more, less
	Class string // more, less, or "" within the spread
}

// changeOf compares v with what was before; "" when there is nothing to compare.
func changeOf(v, before float64, means bool) change {
	if before <= 0 || math.IsNaN(v) {
		return change{}
	}
	d := v/before - 1
	var c change
	switch {
	case math.Abs(d) < 0.005:
		return change{Text: "±0 %", Word: "the same"}
	case d > 9.995:
		c = change{Text: "▲ ×" + sig3(v/before), Word: "more"}
	case d > 0:
		c = change{Text: "▲ " + percent(d), Word: "more"}
	default:
		c = change{Text: "▼ " + percent(-d), Word: "less"}
	}
	if means {
		c.Class = c.Word
	}
	return c
}

func known(rows []Row, f func(*Row) cimeter.Opt[float64]) []float64 {
	var vs []float64
	for i := range rows {
		if v := f(&rows[i]); v.Known {
			vs = append(vs, v.Value)
		}
	}
	return vs
}
