package summary

import (
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
)

func TestPartNotes(t *testing.T) {
	part := func(kind cimeter.PartKind, count int, by cimeter.Attribution, cpu float64) cimeter.Part {
		return cimeter.Part{Kind: kind, Count: count, Counted: by == cimeter.AttributedNested, Attribution: by, Confidence: by.Confidence(),
			CPUSeconds: cimeter.Some(cpu), MemoryPeakBytes: cimeter.Some(uint64(cpu * 1e8))}
	}
	r := &cimeter.Record{}
	r.Parts = []cimeter.Part{
		part(cimeter.PartContainer, 0, cimeter.AttributedNested, 12), part(cimeter.PartContainer, 41, cimeter.AttributedNested, 0.5),
		part(cimeter.PartBuildStep, 0, cimeter.AttributedNested, 3), part(cimeter.PartContainer, 0, cimeter.AttributedSole, 4),
		part(cimeter.PartBuildStep, 0, cimeter.AttributedSole, 1), part(cimeter.PartContainer, 2, cimeter.AttributedVolume, 0.25),
		{Kind: cimeter.PartContainer, Attribution: cimeter.AttributedClient, Confidence: cimeter.Likely}, // nothing was read
	}
	var got []string
	for _, n := range partNotes(r) {
		got = append(got, n.label+" "+n.text)
		if len(n.text) > Columns-7 {
			t.Errorf("too long for a line: %q", n.text)
		}
	}
	want := `parts nested in it: 42 containers, 1 build step, 15.5 s of CPU, up to 1.12 GiB
parts beside, not counted: 2 containers, 0.25 s of CPU (strong)
parts beside, not counted: 1 container (likely)
parts beside, not counted: 1 container, 1 build step, 5.0 s of CPU (possible)`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
	if ns := partNotes(&cimeter.Record{}); len(ns) > 0 {
		t.Errorf("a build without parts: %q", ns)
	}
}
