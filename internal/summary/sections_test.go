package summary_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/section"
	"github.com/cimeter/cimeter/internal/summary"
)

// divided is the example with the sections of its script, one of them with a name that
// would be another's line.
func divided() (*cimeter.Record, *section.Parts) {
	r := example()
	i := 0
	for r.Stages[i].Name != "step_script" {
		i++
	}
	s := &r.Stages[i]
	if s.StartedAt.IsZero() {
		s.StartedAt = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
		s.EndedAt = s.StartedAt.Add(time.Duration(s.Usage.WallSeconds * float64(time.Second)))
	}
	at := func(share float64) time.Time {
		return s.StartedAt.Add(time.Duration(share * float64(s.EndedAt.Sub(s.StartedAt))))
	}
	part := func(name string, depth int, from, to, cpu float64) section.Part {
		return section.Part{Stage: s.Name, Attempt: s.Attempt, Name: name, Depth: depth, StartedAt: at(from), EndedAt: at(to), MemoryMaxBytes: cimeter.Some[uint64](900 << 20),
			Usage: cimeter.Usage{WallSeconds: at(to).Sub(at(from)).Seconds(), CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(cpu)}}}
	}
	return r, &section.Parts{ErrorSeconds: 1.2, Parts: []section.Part{part("compile", 0, 0, 0.5, 200), part("code\x1b[2Jgen\n/close", 1, 0.5, 0.7, 100), part("", 0, 0.7, 1, 43.4)}}
}

// Sections stand below the stage that they divide, and the text says how sure they are.
func TestText_sections(t *testing.T) {
	r, parts := divided()
	var s strings.Builder
	if err := summary.Text(&s, r, summary.TextOptions{Width: summary.Columns, Sections: parts}); err != nil {
		t.Fatal(err)
	}
	golden(t, "sections.txt", s.String())
	for l := range strings.SplitSeq(s.String(), "\n") {
		if display.Width(l) > summary.Columns || strings.HasPrefix(l, "/") || display.Clean(l) != l {
			t.Errorf("%q", l)
		}
	}
	// However many there are, the text stays short.
	for range 8 {
		parts.Parts = append(parts.Parts, parts.Parts...)
	}
	s.Reset()
	if err := summary.Text(&s, r, summary.TextOptions{Sections: parts}); err != nil || strings.Count(s.String(), "\n") > 45 || !strings.Contains(s.String(), " more rows\n") {
		t.Errorf("%v, %d lines", err, strings.Count(s.String(), "\n"))
	}
}
