package summary

import (
	"testing"

	"github.com/cimeter/cimeter"
)

// What a pod asked for stands beside what its build used.
func TestUsedCPU_requested(t *testing.T) {
	r := &cimeter.Record{
		Usage:  cimeter.Usage{CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(392.0)}, CPUCores: &cimeter.Stat{Avg: 1.55}},
		Limits: &cimeter.Limits{Requested: cimeter.Requests{CPUCores: cimeter.Some(0.5)}},
	}
	if got, want := usedCPU(r), "392 s CPU (1.55 cores, requested 0.5)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.Limits.CPUCores = cimeter.Some(2.0)
	if got, want := usedCPU(r), "392 s CPU (1.55 of 2 cores, requested 0.5)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
