package summary_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/summary"
)

// What was not the same around two builds is told in the order of its weight, pressure
// as a share of their time; of a median only what a median has.
func TestDiffering(t *testing.T) {
	a := &cimeter.Record{Build: cimeter.Build{Key: "a", Machine: "ci-1", Ref: "main"}, Image: "golang:1.25", Usage: cimeter.Usage{WallSeconds: 200, PressureSeconds: &cimeter.PressureSeconds{CPUSome: cimeter.Some(10.0), IOSome: cimeter.Some(0.0)}}}
	b := &cimeter.Record{Build: cimeter.Build{Key: "b", Machine: "ci-2", Ref: "main"}, Image: "golang:1.26", ImagePulledAt: time.Unix(1, 0), Usage: cimeter.Usage{WallSeconds: 100, PressureSeconds: &cimeter.PressureSeconds{CPUSome: cimeter.Some(50.0), MemorySome: cimeter.Some(1.0), IOSome: cimeter.Some(0.2)}}}
	want := []summary.Differs{{Label: "machine", A: "ci-1", B: "ci-2"}, {Label: "image", A: "golang:1.25", B: "golang:1.26, pulled for it"}, {Label: "pressure", A: "CPU 5 %, disk 0 %", B: "CPU 50 %, memory 1 %, disk 0 %"}}
	if got := summary.Differing(a, b); !slices.Equal(got, want) {
		t.Errorf("got %q: want %q", got, want)
	}
	want = []summary.Differs{{Label: "pressure", A: "CPU 44 %, memory 1 %, disk 0 %", B: "CPU 50 %, memory 1 %, disk 0 %"}}
	if got := summary.Differing(summary.Median([]*cimeter.Record{b, a, b, {Usage: cimeter.Usage{WallSeconds: 125}}}), b); !slices.Equal(got, want) {
		t.Errorf("with a median: got %q: want %q", got, want)
	}
	if got := summary.Differing(a, a); len(got) > 0 {
		t.Errorf("the same build differs in %q", got)
	}
}
