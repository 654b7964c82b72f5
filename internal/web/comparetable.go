package web

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/summary"
)

func cpuOf(u *cimeter.Usage) opt {
	if u == nil {
		return opt{}
	}
	return u.CPUSeconds.Total
}

func wallOf(u *cimeter.Usage) opt {
	if u == nil {
		return opt{}
	}
	if u.WallSeconds == 0 && u.CPUSeconds.Total == (opt{}) {
		return opt{}
	}
	return some(u.WallSeconds)
}

func peakOf(u *cimeter.Usage) opt {
	if u == nil {
		return opt{}
	}
	return peak(u)
}

func (v *compareView) fill(a, b side, before []*cimeter.Record) error {
	ps := summary.Pairs(a.Record, b.Record)
	ua, ub := &a.Record.Usage, &b.Record.Usage
	var cpus, walls, mems []opt
	for _, p := range append(ps, summary.Pair{A: ua, B: ub}) {
		cpus, walls, mems = append(cpus, cpuOf(p.A), cpuOf(p.B)), append(walls, wallOf(p.A), wallOf(p.B)), append(mems, peakOf(p.A), peakOf(p.B))
	}
	cc, wc, mc := timeColumn(largest(cpus...)), timeColumn(largest(walls...)), bytesColumn(largest(mems...))
	v.Units = compareColumns{cc.Unit, wc.Unit, mc.Unit}
	make := func(p summary.Pair, means bool) compareRow {
		ca, cb := cpuOf(p.A), cpuOf(p.B)
		row := compareRow{Name: orElse(name(p.Label), "(no name)"), CPUA: cc.cell(ca), CPUB: cc.cell(cb), CPU: dash, WallA: wc.cell(wallOf(p.A)), WallB: wc.cell(wallOf(p.B)), MemoryA: mc.cell(peakOf(p.A)), MemoryB: mc.cell(peakOf(p.B))}
		if ca.Known && cb.Known {
			d := cb.Value - ca.Value
			row.by, row.CPU = d, signed(d, cc)
			row.CPUBy = changeOf(cb.Value, ca.Value, means)
		} else {
			row.by = cb.Value - ca.Value
		}
		if x, y := wallOf(p.A), wallOf(p.B); x.Known && y.Known {
			row.WallBy = changeOf(y.Value, x.Value, false)
		}
		if x, y := peakOf(p.A), peakOf(p.B); x.Known && y.Known {
			row.MemoryBy = changeOf(y.Value, x.Value, math.Abs(y.Value-x.Value) >= 0.1*x.Value)
		}
		switch {
		case p.A == nil:
			row.Only = "only in B"
		case p.B == nil:
			row.Only = "only in A"
		default:
			row.Small = !means
		}
		return row
	}
	for _, p := range ps {
		s := spreadOf(stageValues(before, p.Name))
		d := math.Abs(cpuOf(p.B).Value - cpuOf(p.A).Value)
		means := d > 3*s.mad && d >= 0.1*cpuOf(p.A).Value && d >= 0.05
		v.Rows = append(v.Rows, make(p, means))
	}
	slices.SortStableFunc(v.Rows, func(x, y compareRow) int { return cmp.Compare(math.Abs(y.by), math.Abs(x.by)) })
	total := spreadOf(totalValues(before))
	d := math.Abs(cpuOf(ub).Value - cpuOf(ua).Value)
	v.Totals = []compareRow{make(summary.Pair{Label: "total", A: ua, B: ub}, d > 3*total.mad && d >= 0.1*cpuOf(ua).Value)}
	if total.n >= minPeers {
		v.Spread = fmt.Sprintf("Grey is within the spread of the job's last %d builds: under a tenth, or under three times their median deviation.", total.n)
	}
	sa, sb := summary.Side{Record: a.Record, Median: a.Median}, summary.Side{Record: b.Record, Median: b.Median}
	v.Verdict = summary.Sentence(sa, sb)
	for _, s := range []struct {
		letter string
		r      *cimeter.Record
	}{{"A", a.Record}, {"B", b.Record}} {
		if unmetered(s.r) {
			v.Verdict = "What " + s.letter + " used is not known: no agent metered it."
		}
	}
	for _, d := range summary.Differing(a.Record, b.Record) {
		v.Context = append(v.Context, summary.Differs{Label: d.Label, A: contextCell(d.A), B: contextCell(d.B)})
	}
	var note strings.Builder
	if err := summary.CompareMarkdown(&note, sa, sb, before); err != nil {
		return err
	}
	v.Markdown = note.String()
	return nil
}

// contextCell is a value around a build; what the summary does not know is "-" there.
func contextCell(s string) string {
	if s == "-" {
		return dash
	}
	return name(s)
}

func stageValues(rs []*cimeter.Record, name string) []float64 {
	var vs []float64
	for _, r := range rs {
		if s := stageNamed(r, name); s != nil && s.Usage.CPUSeconds.Total.Known {
			vs = append(vs, s.Usage.CPUSeconds.Total.Value)
		}
	}
	return vs
}

func totalValues(rs []*cimeter.Record) []float64 {
	var vs []float64
	for _, r := range rs {
		if c := r.Usage.CPUSeconds.Total; c.Known {
			vs = append(vs, c.Value)
		}
	}
	return vs
}

func signed(d float64, c column) string {
	s := c.cell(some(math.Abs(d)))
	switch {
	case d > 0:
		return "+" + s
	case d < 0:
		return "−" + s
	}
	return s
}
