package tally_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/tally"
)

// Every observation is in the one fine bucket that its size belongs to, bounds
// included, and none is lost.
func TestHistogram_native(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	observed := []float64{0, 1.0 / 64, 1.0/64 + 1e-9, 1, 2, 4, math.Nextafter(2, 3), math.Nextafter(2, 1), math.Exp2(3.0 / 8), 86400, 1 << 23}
	for range 2000 {
		observed = append(observed, math.Exp2(r.Float64()*28-5))
	}
	for _, x := range observed {
		b := tally.New(tally.Options{}).Build(tally.BuildLabels{})
		b.Started()
		b.Ended("success", x, cimeter.Opt[float64]{})
		threshold, zero, first, counts := b.Duration(0).Native(nil)
		if n := zero; x <= threshold {
			if n != 1 {
				t.Errorf("%g is not at most at %g", x, threshold)
			}
			continue
		}
		found := 0
		for i, c := range counts {
			if c == 0 {
				continue
			}
			found++
			if low, high := math.Exp2(float64(first+i-1)/8), math.Exp2(float64(first+i)/8); c != 1 || x <= low || x > high {
				t.Errorf("%g is in (%g, %g]", x, low, high)
			}
		}
		if found != 1 || zero != 0 {
			t.Errorf("%g is in %d buckets and %d times at 0", x, found, zero)
		}
	}
}
