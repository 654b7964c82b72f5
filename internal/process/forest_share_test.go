package process_test

import (
	"testing"

	"github.com/cimeter/cimeter"
)

// Memory that two processes share is told once.
func TestForest_sharedMemory(t *testing.T) {
	g := grow(t)
	c, f := g.first() // a copy of this test: both have its program resident
	memory := func() uint64 {
		var s cimeter.Sample
		f.Set(&s)
		v, _ := s.Gauge(cimeter.MemoryCurrent)
		return v
	}
	g.Round(false)
	resident := memory()
	if resident == 0 || f.Proportional() {
		t.Fatalf("%d bytes, proportional %t: want what is resident at first", resident, f.Proportional())
	}
	for i := 0; i < 100 && !f.Proportional(); i++ {
		g.Round(false)
	}
	share := memory()
	if !f.Proportional() || share > resident-1<<20 || share < 100<<10 {
		t.Errorf("proportional %t: %d bytes of the %d that are resident, want a MiB less at least", f.Proportional(), share, resident)
	}
	do(t, c, "burn 1")
}
