package web

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// stagePair joins the stages of two builds by name and attempt.
type stagePair struct {
	label string
	a, b  *cimeter.Usage
	name  string
}

func pairs(a, b *cimeter.Record) []stagePair {
	var ps []stagePair
	used := map[int]bool{}
	for i := range a.Stages {
		s := &a.Stages[i]
		p := stagePair{label: stageLabel(s), a: &s.Usage, name: s.Name}
		for j := range b.Stages {
			if t := &b.Stages[j]; !used[j] && t.Name == s.Name && t.Attempt == s.Attempt {
				used[j], p.b = true, &t.Usage
				break
			}
		}
		ps = append(ps, p)
	}
	for j := range b.Stages {
		if !used[j] {
			ps = append(ps, stagePair{label: stageLabel(&b.Stages[j]), b: &b.Stages[j].Usage, name: b.Stages[j].Name})
		}
	}
	return ps
}

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
	return some(u.WallSeconds)
}

func peakOf(u *cimeter.Usage) opt {
	if u == nil {
		return opt{}
	}
	return peak(u)
}

func (v *compareView) fill(a, b side, before []*cimeter.Record) {
	ps := pairs(a.Record, b.Record)
	ua, ub := &a.Record.Usage, &b.Record.Usage
	var cpus, walls, mems []opt
	for _, p := range append(ps, stagePair{a: ua, b: ub}) {
		cpus, walls, mems = append(cpus, cpuOf(p.a), cpuOf(p.b)), append(walls, wallOf(p.a), wallOf(p.b)), append(mems, peakOf(p.a), peakOf(p.b))
	}
	cc, wc, mc := timeColumn(largest(cpus...)), timeColumn(largest(walls...)), bytesColumn(largest(mems...))
	v.Units = compareColumns{cc.Unit, wc.Unit, mc.Unit}
	make := func(p stagePair, means bool) compareRow {
		ca, cb := cpuOf(p.a), cpuOf(p.b)
		row := compareRow{Name: p.label, CPUA: cc.cell(ca), CPUB: cc.cell(cb), CPU: dash, WallA: wc.cell(wallOf(p.a)), WallB: wc.cell(wallOf(p.b)), MemoryA: mc.cell(peakOf(p.a)), MemoryB: mc.cell(peakOf(p.b))}
		if ca.Known && cb.Known {
			d := cb.Value - ca.Value
			row.by, row.CPU = d, signed(d, cc)
			row.CPUBy = changeOf(cb.Value, ca.Value, means)
		} else {
			row.by = cb.Value - ca.Value
		}
		if x, y := wallOf(p.a), wallOf(p.b); x.Known && y.Known {
			row.WallBy = changeOf(y.Value, x.Value, false)
		}
		if x, y := peakOf(p.a), peakOf(p.b); x.Known && y.Known {
			row.MemoryBy = changeOf(y.Value, x.Value, math.Abs(y.Value-x.Value) >= 0.1*x.Value)
		}
		switch {
		case p.a == nil:
			row.Only = "only in B"
		case p.b == nil:
			row.Only = "only in A"
		default:
			row.Small = !means
		}
		return row
	}
	for _, p := range ps {
		s := spreadOf(stageValues(before, p.name))
		d := math.Abs(cpuOf(p.b).Value - cpuOf(p.a).Value)
		means := d > 3*s.mad && d >= 0.1*cpuOf(p.a).Value && d >= 0.05
		v.Rows = append(v.Rows, make(p, means))
	}
	slices.SortStableFunc(v.Rows, func(x, y compareRow) int { return cmp.Compare(math.Abs(y.by), math.Abs(x.by)) })
	total := spreadOf(totalValues(before))
	d := math.Abs(cpuOf(ub).Value - cpuOf(ua).Value)
	v.Totals = []compareRow{make(stagePair{label: "total", a: ua, b: ub}, d > 3*total.mad && d >= 0.1*cpuOf(ua).Value)}
	if total.n >= minPeers {
		v.Spread = fmt.Sprintf("Grey is within the spread of the job's last %d builds: under a tenth, or under three times their median deviation.", total.n)
	}
	v.Verdict = compareSentence(a, b, v.Rows, cc)
	v.context(a, b)
	v.Markdown = compareMarkdown(v, cc, wc, mc)
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

// compareSentence is: B used 41 s more CPU (▲ 12 %), 38 s of it in step_script;
// memory the same; 9 s more queue.
func compareSentence(a, b side, rows []compareRow, cc column) string {
	var parts []string
	ca, cb := a.Record.Usage.CPUSeconds.Total, b.Record.Usage.CPUSeconds.Total
	if ca.Known && cb.Known {
		d := cb.Value - ca.Value
		s := "B used the same CPU"
		if math.Abs(d) >= 0.005*ca.Value {
			s = "B used " + cpuTime(math.Abs(d)) + " " + map[bool]string{true: "more", false: "less"}[d > 0] + " CPU"
			if c := changeOf(cb.Value, ca.Value, false); c.Text != "" {
				s += " (" + c.Text + ")"
			}
			if len(rows) > 1 && rows[0].by*d > 0 {
				s += ", " + cpuTime(math.Abs(rows[0].by)) + " of it in " + rows[0].Name
			}
		}
		parts = append(parts, s)
	}
	if x, y := peak(&a.Record.Usage), peak(&b.Record.Usage); x.Known && y.Known {
		if math.Abs(y.Value-x.Value) < 0.02*x.Value {
			parts = append(parts, "memory the same")
		} else {
			parts = append(parts, amount(math.Abs(y.Value-x.Value))+" "+map[bool]string{true: "more", false: "less"}[y.Value > x.Value]+" memory")
		}
	}
	if d := b.Record.Usage.WallSeconds - a.Record.Usage.WallSeconds; math.Abs(d) >= 1 {
		parts = append(parts, seconds(math.Abs(d))+" "+map[bool]string{true: "longer", false: "shorter"}[d > 0])
	}
	ra, rb := RowOf(a.Record), RowOf(b.Record)
	if x, y := ra.Queue(), rb.Queue(); x.Known && y.Known && math.Abs(y.Value-x.Value) >= 1 {
		parts = append(parts, seconds(math.Abs(y.Value-x.Value))+" "+map[bool]string{true: "more", false: "less"}[y.Value > x.Value]+" queue")
	}
	if len(parts) == 0 {
		return "There is nothing that both know."
	}
	return strings.Join(parts, "; ") + "."
}

// context is what differed around the two.
func (v *compareView) context(a, b side) {
	ra, rb := a.Record, b.Record
	limit := func(r *cimeter.Record, f func(*cimeter.Limits) string) string {
		if r.Limits == nil {
			return "none"
		}
		return f(r.Limits)
	}
	cpu := func(l *cimeter.Limits) string {
		if !l.CPUCores.Known {
			return "none"
		}
		return cores(l.CPUCores.Value)
	}
	mem := func(l *cimeter.Limits) string {
		if !l.MemoryBytes.Known {
			return "none"
		}
		return amount(float64(l.MemoryBytes.Value))
	}
	share := func(o opt) string {
		if !o.Known {
			return ""
		}
		return fmt.Sprintf("%.1f %%", 100*o.Value)
	}
	for _, c := range []contextRow{
		{"result", ra.Result, rb.Result}, {"ref", ra.Ref, rb.Ref}, {"commit", display.Fit(ra.SHA, 12, ""), display.Fit(rb.SHA, 12, "")}, {"event", ra.Event, rb.Event},
		{"machine", ra.Machine, rb.Machine}, {"runner", ra.Runner.Name, rb.Runner.Name},
		{"CPU limit", limit(ra, cpu), limit(rb, cpu)}, {"memory limit", limit(ra, mem), limit(rb, mem)},
		{"throttled", optional(ra.Usage.CPUThrottledSeconds, seconds), optional(rb.Usage.CPUThrottledSeconds, seconds)},
		{"coverage", share(ra.Coverage), share(rb.Coverage)},
	} {
		if c.A != c.B {
			c.A, c.B = orElse(name(c.A), dash), orElse(name(c.B), dash)
			v.Context = append(v.Context, c)
		}
	}
}

// compareMarkdown is the comparison as a table for a note. Names stand in code
// spans, and nothing else in it is a user's.
func compareMarkdown(v *compareView, cc, wc, mc column) string {
	code := func(s string) string {
		return "`" + strings.NewReplacer("`", "'", "|", "¦", "\n", " ", "<", "‹", ">", "›").Replace(s) + "`"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| stage | CPU A %s | CPU B %s | | time A %s | time B %s | memory A %s | memory B %s |\n|---|--:|--:|--:|--:|--:|--:|--:|\n", cc.Unit, cc.Unit, wc.Unit, wc.Unit, mc.Unit, mc.Unit)
	for _, r := range append(slices.Clone(v.Rows), v.Totals...) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", code(r.Name), r.CPUA, r.CPUB, r.CPUBy.Text, r.WallA, r.WallB, r.MemoryA, r.MemoryB)
	}
	return b.String()
}
