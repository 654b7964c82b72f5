package summary

import (
	"fmt"
	"strings"

	"github.com/cimeter/cimeter"
)

// partNotes tell of what is nested in a build's containers, which its totals hold,
// and of what is beside them, which they do not.
func partNotes(r *cimeter.Record) []note {
	var ns []note
	if s := partsText(r, func(p *cimeter.Part) bool { return p.Counted }, true); s != "" {
		ns = append(ns, note{"parts", "nested in it: " + s})
	}
	// Each confidence for itself: it is a part of what is said.
	for _, c := range []cimeter.Confidence{cimeter.Strong, cimeter.Likely, cimeter.Possible} {
		if s := partsText(r, func(p *cimeter.Part) bool { return !p.Counted && p.Confidence == c }, false); s != "" {
			ns = append(ns, note{"parts", fmt.Sprintf("beside, not counted: %s (%s)", s, c)})
		}
	}
	return ns
}

// partsText is: 4 containers, 1 build step, 12.1 s of CPU, up to 340 MiB.
func partsText(r *cimeter.Record, these func(*cimeter.Part) bool, memory bool) string {
	var containers, steps int
	var cpu, peak opt
	for i := range r.Parts {
		p := &r.Parts[i]
		if !these(p) {
			continue
		}
		n := max(p.Count, 1)
		if p.Kind == cimeter.PartBuildStep {
			steps += n
		} else {
			containers += n
		}
		if v, ok := p.CPUSeconds.Get(); ok {
			cpu = some(cpu.Value + v)
		}
		if v, ok := p.MemoryPeakBytes.Get(); ok && memory {
			peak = some(max(peak.Value, float64(v)))
		}
	}
	var what []string
	for _, w := range []struct {
		n    int
		name string
	}{{containers, "container"}, {steps, "build step"}} {
		switch {
		case w.n == 1:
			what = append(what, "1 "+w.name)
		case w.n > 1:
			what = append(what, fmt.Sprintf("%d %ss", w.n, w.name))
		}
	}
	if len(what) == 0 {
		return ""
	}
	if cpu.Known {
		what = append(what, seconds(cpu.Value)+" of CPU")
	}
	if peak.Known {
		what = append(what, "up to "+size(peak.Value))
	}
	return strings.Join(what, ", ")
}
