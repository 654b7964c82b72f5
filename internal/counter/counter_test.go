package counter_test

import (
	"math/rand/v2"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/counter"
)

func advance(t *testing.T, b *counter.Baseline, c cimeter.Counter, v uint64, want uint64) {
	t.Helper()
	var s cimeter.Sample
	s.SetCounter(c, v)
	var d counter.Delta
	b.Advance(&s, &d)
	if got, ok := d.Get(c); !ok || got != want {
		t.Fatalf("reading %d: rise %d (known %v), want %d", v, got, ok, want)
	}
	for o := range cimeter.NumCounters {
		if _, ok := d.Get(o); ok && o != c {
			t.Fatalf("counter %d is known, but the sample lacks it", o)
		}
	}
}

func TestBaseline_Advance(t *testing.T) {
	t.Run("from birth the first reading counts from 0", func(t *testing.T) {
		b := counter.Baseline{FromBirth: true}
		advance(t, &b, cimeter.CPUTotal, 70, 70)
		advance(t, &b, cimeter.CPUTotal, 100, 30)
	})
	t.Run("not from birth the first reading is the base", func(t *testing.T) {
		var b counter.Baseline
		advance(t, &b, cimeter.CPUTotal, 70, 0)
		advance(t, &b, cimeter.CPUTotal, 100, 30)
	})
	t.Run("a counter that appears late", func(t *testing.T) {
		b := counter.Baseline{FromBirth: true}
		advance(t, &b, cimeter.CPUTotal, 5, 5)
		advance(t, &b, cimeter.IOWriteBytes, 4096, 4096)
	})
	t.Run("a small step back is held", func(t *testing.T) {
		b := counter.Baseline{FromBirth: true}
		advance(t, &b, cimeter.CPUUser, 1000, 1000)
		advance(t, &b, cimeter.CPUUser, 990, 0)
		advance(t, &b, cimeter.CPUUser, 1010, 10)
	})
	t.Run("a deep fall is a reset", func(t *testing.T) {
		b := counter.Baseline{FromBirth: true}
		advance(t, &b, cimeter.IOReadBytes, 1<<30, 1<<30)
		advance(t, &b, cimeter.IOReadBytes, 512, 512)
	})
	t.Run("values above 2^47 are exact", func(t *testing.T) { // cases A15
		var b counter.Baseline
		advance(t, &b, cimeter.IOWriteBytes, 227002702848000, 0)
		advance(t, &b, cimeter.IOWriteBytes, 227003599380480, 896532480)
	})
	t.Run("an absent reading is covered by the next", func(t *testing.T) {
		b := counter.Baseline{FromBirth: true}
		advance(t, &b, cimeter.CPUTotal, 10, 10)
		advance(t, &b, cimeter.CPUUser, 4, 4)
		advance(t, &b, cimeter.CPUTotal, 25, 15)
	})
}

// The sum of all rises of a counter that only rises is its last reading,
// whatever subset of samples shows it.
func TestBaseline_sumIsTotal(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		b := counter.Baseline{FromBirth: true}
		var kernel [cimeter.NumCounters]uint64
		var shown [cimeter.NumCounters]uint64
		var sum counter.Delta
		for range 50 {
			var s cimeter.Sample
			for c := range cimeter.NumCounters {
				kernel[c] += rng.Uint64N(1 << 40)
				if rng.IntN(3) > 0 {
					s.SetCounter(c, kernel[c])
					shown[c] = kernel[c]
				}
			}
			var d counter.Delta
			b.Advance(&s, &d)
			sum.Add(&d)
		}
		if sum.Values != shown {
			t.Fatalf("seed %d: sum %v, want %v", seed, sum.Values, shown)
		}
	}
}

func TestBaseline_Advance_allocations(t *testing.T) {
	var s cimeter.Sample
	s.SetCounter(cimeter.CPUTotal, 1)
	var b counter.Baseline
	var d, sum counter.Delta
	if n := testing.AllocsPerRun(100, func() { b.Advance(&s, &d); sum.Add(&d) }); n != 0 {
		t.Fatalf("%v allocations, want 0", n)
	}
}
