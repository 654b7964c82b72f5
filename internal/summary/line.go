package summary

import (
	"fmt"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// Columns is the width of a receipt; nothing but a URL is longer.
const Columns = 80

// Short is the summary in one line, without a line break: what the build used,
// or the stage that was killed for memory.
func Short(r *cimeter.Record) string { return display.Fit(display.ASCII(first(r)), Columns, cut) }

// cut ends a name that was cut inside a line.
const cut = "~"

// name bounds a user's string to width columns inside a line.
func name(s string, width int) string { return display.Fit(s, width, cut) }

// first is the first line of every text, not yet clean.
func first(r *cimeter.Record) string {
	if stage, ok := killed(r); ok {
		return "cimeter: " + killedLine(r, stage)
	}
	return "cimeter: " + used(r)
}

// used says what a build used, its own units shared where it can be:
// 392 s CPU (1.55 of 2 cores), 3.10 of 4.00 GiB, disk 3.58, net 1.34 GiB.
func used(r *cimeter.Record) string {
	parts := []string{usedCPU(r), usedMemory(r)}
	d, n := disk(&r.Usage), net(&r.Usage)
	shared, u := unit(max(d.Value, n.Value))
	diskUnit := ""
	if d.Known && !n.Known {
		diskUnit = " " + shared
	}
	for _, p := range []struct {
		what, unit string
		v          opt
	}{{"disk ", diskUnit, d}, {"net ", " " + shared, n}} {
		if p.v.Known {
			parts = append(parts, p.what+sig3(p.v.Value/u)+p.unit)
		} else {
			parts = append(parts, p.what+dash)
		}
	}
	return strings.Join(parts, ", ")
}

func usedCPU(r *cimeter.Record) string {
	total, ok := r.Usage.CPUSeconds.Total.Get()
	if !ok {
		return "CPU " + dash
	}
	s := sig3(total) + " s CPU"
	if total > 0 && total < 0.0995 {
		s = sig3(total*1000) + " ms CPU"
	}
	if r.Usage.CPUCores == nil {
		return s
	}
	requested := ""
	if r.Limits != nil && r.Limits.Requested.CPUCores.Known {
		requested = ", requested " + short(r.Limits.Requested.CPUCores.Value)
	}
	if limit, ok := cpuLimit(r); ok {
		return fmt.Sprintf("%s (%.2f of %s cores%s)", s, r.Usage.CPUCores.Avg, short(limit), requested)
	}
	return fmt.Sprintf("%s (%.2f cores%s)", s, r.Usage.CPUCores.Avg, requested)
}

func usedMemory(r *cimeter.Record) string {
	p := peak(&r.Usage)
	if a := r.Usage.MemoryAnonBytes; !p.Known && a != nil {
		return "memory " + size(a.Max) + " anon" // of processes without a cgroup of their own
	}
	if !p.Known {
		return "memory " + dash
	}
	if limit, ok := memoryLimit(r); ok {
		return ofLimit(p.Value, limit)
	}
	return "memory " + size(p.Value)
}

// ofLimit writes 3.10 of 4.00 GiB.
func ofLimit(v, limit float64) string {
	in, u := unit(max(v, limit))
	return fmt.Sprintf("%s of %s %s", sig3(v/u), sig3(limit/u), in)
}

func cpuLimit(r *cimeter.Record) (cores float64, ok bool) {
	if r.Limits == nil {
		return 0, false
	}
	return r.Limits.CPUCores.Get()
}

func memoryLimit(r *cimeter.Record) (bytes float64, ok bool) {
	if r.Limits == nil {
		return 0, false
	}
	return known(r.Limits.MemoryBytes).Get()
}

// killed returns the stage of which a process was killed for memory.
func killed(r *cimeter.Record) (stage string, ok bool) {
	for _, v := range r.Verdicts {
		if v.Kind == "oom" {
			return v.Stage, true
		}
	}
	for i := range r.Stages {
		if r.Stages[i].Usage.OOMKills.Value > 0 {
			return r.Stages[i].Name, true
		}
	}
	return "", r.Usage.OOMKills.Value > 0
}

// killedLine is: step_script was killed for memory: 4.00 of 4.00 GiB set by /docker/094e…
func killedLine(r *cimeter.Record, stage string) string {
	if stage == "" {
		stage = "the build"
	}
	line := name(stage, 24) + " was killed for memory"
	limit, limited := memoryLimit(r)
	p := peak(&r.Usage)
	for i := range r.Stages {
		if s := &r.Stages[i]; s.Name == stage && peak(&s.Usage).Known {
			p = peak(&s.Usage)
		}
	}
	switch {
	case limited && p.Known:
		line += ": " + ofLimit(p.Value, limit)
	case limited:
		line += ": limit " + size(limit)
	case p.Known:
		return line + ": " + size(p.Value)
	default:
		return line
	}
	if r.Limits.MemorySetBy != "" {
		line += " set by " + r.Limits.MemorySetBy
	}
	return line
}
