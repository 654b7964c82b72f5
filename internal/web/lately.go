package web

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

// Moment is a machine at one time of the last minutes; NaN is not known.
type Moment struct {
	At                     time.Time
	Builds, Other, Cimeter float64 // cores
	MemoryUsed             float64 // bytes
	Disk, Net              float64 // bytes a second
	Pressure               float64 // the largest share of time in which some task waited
}

// lately is one figure of a machine over the last minutes.
type lately struct {
	Name, Class        string
	Now, Average, Most string
	Path               string
}

// latelyRows are the figures that a machine's history knows something of.
func latelyRows(m *Machine) []lately {
	cores := func(v float64) string { return sig3(v) + " cores" }
	rate := func(v float64) string { return amount(v) + "/s" }
	var rows []lately
	for _, f := range []struct {
		name, class string
		of          func(*Moment) float64
		top         float64 // 0: the largest
		text        func(float64) string
	}{
		{"CPU of builds", "cpu", func(p *Moment) float64 { return p.Builds }, float64(m.CPUs), cores},
		{"CPU of the rest", "other", func(p *Moment) float64 { return p.Other }, float64(m.CPUs), cores},
		{"CPU of cimeter", "own", func(p *Moment) float64 { return p.Cimeter }, float64(m.CPUs), cores},
		{"memory", "mem", func(p *Moment) float64 { return p.MemoryUsed }, float64(m.MemoryBytes), amount},
		{"disk", "disk", func(p *Moment) float64 { return p.Disk }, 0, rate},
		{"network", "net", func(p *Moment) float64 { return p.Net }, 0, rate},
		{"time in which something waited", "other", func(p *Moment) float64 { return p.Pressure }, 1, percent},
	} {
		vs := make([]cimeter.Opt[int64], len(m.History))
		sum, most, known, last := 0.0, 0.0, 0, math.NaN()
		for i := range m.History {
			v := f.of(&m.History[i])
			if math.IsNaN(v) {
				continue
			}
			sum, most, known, last = sum+v, max(most, v), known+1, v
		}
		if known < 2 {
			continue
		}
		top := max(f.top, most)
		for i := range m.History {
			if v := f.of(&m.History[i]); !math.IsNaN(v) && top > 0 {
				vs[i] = cimeter.Some(int64(1000 * v / top))
			}
		}
		rows = append(rows, lately{
			Name: f.name, Class: f.class, Now: f.text(last), Average: f.text(sum / float64(known)), Most: f.text(most),
			Path: scaledPath(squeeze(vs, sparkSteps), 1000),
		})
	}
	return rows
}

// machineSpark is the CPU that a machine used lately, of all that it has.
func machineSpark(m *Machine) string {
	vs := make([]cimeter.Opt[int64], len(m.History))
	for i := range m.History {
		p := &m.History[i]
		if busy := p.Builds + p.Other + p.Cimeter; !math.IsNaN(busy) {
			vs[i] = cimeter.Some(int64(1000 * busy))
		}
	}
	if len(vs) < 2 || m.CPUs == 0 {
		return ""
	}
	return scaledPath(squeeze(vs, sparkSteps), int64(1000*m.CPUs))
}

// scaledPath is the area under vs as [sparkPath] draws it, but top is the top.
func scaledPath(vs []cimeter.Opt[int64], top int64) string {
	if len(vs) == 0 || top <= 0 {
		return ""
	}
	var b strings.Builder
	step := float64(sparkSteps) / float64(len(vs))
	bottom := "V" + strconv.Itoa(sparkHeight) + "z"
	open := false
	for i, v := range vs {
		if !v.Known {
			if open {
				b.WriteString(bottom)
			}
			open = false
			continue
		}
		x := float64(i) * step
		if !open {
			b.WriteString("M" + coord(x) + " " + strconv.Itoa(sparkHeight))
			open = true
		}
		b.WriteString("V" + coord(sparkHeight*(1-clamp(float64(v.Value)/float64(top)))) + "H" + coord(x+step))
	}
	if open {
		b.WriteString(bottom)
	}
	return b.String()
}
