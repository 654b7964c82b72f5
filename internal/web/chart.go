package web

import (
	"math"

	"github.com/cimeter/cimeter"
)

// chart is one of the four of a build, as the server draws it: the script
// replaces the drawing by one with a cursor and keeps the rest.
type chart struct {
	ID      string // cpu, mem, disk, net
	Title   string
	Unit    string
	Note    string // what the values are, where they are not of the trace
	Absent  string // why there is nothing to draw
	Series  []series
	Fill    string // area between the first two series
	Ticks   []tick
	Limit   *mark // the limit's line
	Over    string
	Peak    *mark // the largest value, with its label
	Zero    string
	Dots    []mark  // processes killed for memory
	Strips  []block // throttled stages
	TableOn bool
	Table   string // URL that shows or hides the table
	Other   link   // the other side of the chart
}

// series is a line: its column of the trace and what it is called.
type series struct {
	Label string
	Class string // cpu, mem, disk, net with dash for the second
	Path  string
	Now   string // what the legend shows without a cursor
	ys    []float64
}

type tick struct{ Y, Text string }

type mark struct{ X, Y, Text string }

// columnsOfTrace are the columns in the unit of their chart; NaN is not known.
func floats(vs []cimeter.Opt[int64], scale float64) []float64 {
	out := make([]float64, len(vs))
	for i, v := range vs {
		out[i] = math.NaN()
		if v.Known {
			out[i] = float64(v.Value) * scale
		}
	}
	return out
}

// extent is the largest and smallest of what is known, with 0.
func extent(ss []series) (lo, hi float64) {
	for _, s := range ss {
		for _, y := range s.ys {
			if !math.IsNaN(y) {
				lo, hi = min(lo, y), max(hi, y)
			}
		}
	}
	return lo, hi
}

// charts draws the trace of r over a.
func charts(r *cimeter.Record, a axis, view chartView) []chart {
	t := r.Trace
	if t == nil {
		t = &cimeter.Trace{}
	}
	u := &r.Usage
	cpu := chart{ID: "cpu", Title: "CPU", Unit: "cores", Series: []series{
		{Label: "average", Class: "cpu", ys: floats(t.CPUMillicores, 0.001)},
		{Label: "max", Class: "cpu dash", ys: floats(t.CPUMillicoresMax, 0.001)},
	}}
	if s := u.CPUCores; s != nil {
		cpu.Series[0].Now, cpu.Series[1].Now = sig3(s.Avg), sig3(s.Max)
	}
	mem := chart{ID: "mem", Title: "Memory", Series: []series{
		{Label: "total", Class: "mem", ys: floats(t.MemoryKiB, kib)},
		{Label: "working set", Class: "mem dash", ys: floats(t.MemoryWorkingSetKiB, kib)},
	}}
	disk := chart{ID: "disk", Title: "Disk", Series: []series{
		{Label: "read", Class: "disk", ys: floats(t.IOReadBytesPerSecond, 1)},
		{Label: "written", Class: "disk dash", ys: floats(t.IOWriteBytesPerSecond, -1)},
	}}
	net := chart{ID: "net", Title: "Network", Series: []series{
		{Label: "received", Class: "net", ys: floats(t.NetworkReceivePerSec, 1)},
		{Label: "sent", Class: "net dash", ys: floats(t.NetworkTransmitPerSec, -1)},
	}}
	if view.Kinds {
		mem.Title, mem.Note, mem.Series = "Memory by kind", "mean of each stage", seriesOf(r, kindsOf(r), true, false)
	}
	if view.Operations {
		disk.Title, disk.Note, disk.Series = "Disk operations", "mean of each stage", seriesOf(r, operations(), false, true)
	}
	var cpuLimit, memLimit opt
	if r.Limits != nil {
		cpuLimit, memLimit = r.Limits.CPUCores, number(r.Limits.MemoryBytes)
	}
	cpu.scale(t.StepSeconds, a, cpuLimit, 1, func(v float64) string { return cores(v) })
	_, memHi := extent(mem.Series)
	var memUnit float64
	mem.Unit, memUnit = unit(max(memHi, kib))
	if memLimit.Known && memHi >= overShare*memLimit.Value {
		mem.Unit, memUnit = unit(memLimit.Value)
	}
	mem.scale(t.StepSeconds, a, memLimit, memUnit, amount)
	if !view.Kinds {
		mem.peak(u, t, a)
	}
	for _, c := range []*chart{&disk, &net} {
		lo, hi := extent(c.Series)
		in, size := unit(max(hi, -lo, kib))
		c.Unit = in + "/s"
		if c.ID == "disk" && view.Operations {
			c.Unit, size = eachSecond, 1
		}
		c.scale(t.StepSeconds, a, opt{}, size, nil)
	}
	switch m := u.MemoryBytes; {
	case view.Kinds:
		for i, k := range kindsOf(r) {
			mem.Series[i].Now = optional(k.of(u), amount)
		}
	case m != nil:
		mem.Series[0].Now = amount(m.Max)
	}
	if m := u.MemoryWorkingSetBytes; m != nil && !view.Kinds {
		mem.Series[1].Now = amount(m.Max)
	}
	if b := u.IOOperationsPerSecond; b != nil && view.Operations {
		disk.Series[0].Now, disk.Series[1].Now = sig3(b.Read.Avg)+eachSecond, sig3(b.Write.Avg)+eachSecond
	} else if b := u.IOBytesPerSecond; b != nil && !view.Operations {
		disk.Series[0].Now, disk.Series[1].Now = amount(b.Read.Avg)+"/s", amount(b.Write.Avg)+"/s"
	}
	if b := u.NetworkBytesPerSecond; b != nil {
		net.Series[0].Now, net.Series[1].Now = amount(b.Receive.Avg)+"/s", amount(b.Transmit.Avg)+"/s"
	}
	cpu.Strips = throttledStrips(r, a)
	for i := range r.Stages {
		if s := &r.Stages[i]; s.Usage.OOMKills.Value+s.Usage.OOMKillsNested.Value > 0 && !s.EndedAt.IsZero() {
			mem.Dots = append(mem.Dots, mark{X: pct(clamp(a.share(s.EndedAt.Sub(r.StartedAt).Seconds()))), Text: "killed"})
		}
	}
	cs := []chart{cpu, mem, disk, net}
	for i := range cs {
		c := &cs[i]
		empty := true
		for _, s := range c.Series {
			empty = empty && s.Path == ""
		}
		switch {
		case !empty:
		case r.Trace == nil:
			c.Absent = "No trace was kept for this build."
		default:
			c.Absent = map[string]string{
				"cpu":  "CPU over time was not read.",
				"mem":  "Memory over time was not read: the cgroup has no memory controller.",
				"disk": "Disk was not read: the cgroup has no io controller.",
				"net":  "Network was not read: the build used the host's network, or it is not metered.",
			}[c.ID]
		}
	}
	return cs
}

// eachSecond is the unit of operations.
const eachSecond = "/s"

// overShare is how much of a limit must be used for the limit's line to be in
// the chart; below it the line would press the curve flat.
const overShare = 0.25

// scale makes paths and ticks. size is the unit's in the series' own.
func (c *chart) scale(step float64, a axis, limit opt, size float64, words func(float64) string) {
	lo, hi := extent(c.Series)
	if limit.Known && limit.Value > 0 {
		if hi >= overShare*limit.Value {
			hi = max(hi, limit.Value)
		} else {
			c.Over = "limit " + words(limit.Value) + " ↑"
		}
	}
	if lo < 0 || c.ID == "disk" || c.ID == "net" {
		m := max(hi, -lo)
		if -lo < m/8 {
			lo = -m / 8
		}
		if hi < m/8 {
			hi = m / 8
		}
	}
	span := hi - lo
	if span <= 0 {
		span, hi = size, size
	}
	hi += 0.06 * span
	lo -= 0.06 * span
	y := func(v float64) float64 { return plotHeight * (hi - v) / (hi - lo) }
	inverse := func(v float64) string { return pct((hi - v) / (hi - lo)) }
	for i := range c.Series {
		s := &c.Series[i]
		xs, ys := make([]float64, 0, len(s.ys)), make([]float64, 0, len(s.ys))
		for j, v := range s.ys {
			at := (float64(j) + 0.5) * step
			if at < a.From-step || at > a.To+step {
				continue
			}
			xs, ys = append(xs, plotWidth*a.share(at)), append(ys, y(v))
		}
		s.Path = linePath(xs, ys)
		if i == 1 && c.ID == "cpu" && len(c.Series[0].ys) == len(s.ys) {
			c.Fill = bandPath(xs, ys, scaled(c.Series[0].ys, step, a, y))
		}
	}
	floor := lo
	if floor > -0.07*span {
		floor = 0
	}
	for _, t := range ticks(floor/size, hi/size, 4) {
		c.Ticks = append(c.Ticks, tick{inverse(t * size), short(math.Abs(t))})
	}
	if limit.Known && c.Over == "" && limit.Value > 0 {
		c.Limit = &mark{Y: inverse(limit.Value), Text: "limit " + words(limit.Value)}
	}
	c.Zero = inverse(0)
}

func scaled(vs []float64, step float64, a axis, y func(float64) float64) []float64 {
	var ys []float64
	for j, v := range vs {
		if at := (float64(j) + 0.5) * step; at >= a.From-step && at <= a.To+step {
			ys = append(ys, y(v))
		}
	}
	return ys
}

// peak marks the largest step with the kernel's own maximum.
func (c *chart) peak(u *cimeter.Usage, t *cimeter.Trace, a axis) {
	p := peak(u)
	best := -1
	for i, v := range t.MemoryKiB {
		if v.Known && (best < 0 || v.Value > t.MemoryKiB[best].Value) {
			best = i
		}
	}
	if best < 0 || !p.Known {
		return
	}
	if at := a.share((float64(best) + 0.5) * t.StepSeconds); at >= 0 && at <= 1 {
		c.Peak = &mark{X: pct(at), Text: "peak " + amount(p.Value)}
	}
}

// throttledStrips are the stages that their CPU limit held up.
func throttledStrips(r *cimeter.Record, a axis) []block {
	var bs []block
	for i := range r.Stages {
		s := &r.Stages[i]
		u := &s.Usage
		if u.CPUPeriods.Value == 0 || u.CPUThrottledPeriods.Value == 0 || s.StartedAt.IsZero() {
			continue
		}
		share := float64(u.CPUThrottledPeriods.Value) / float64(u.CPUPeriods.Value)
		from, to := s.StartedAt.Sub(r.StartedAt).Seconds(), s.EndedAt.Sub(r.StartedAt).Seconds()
		if share < throttleShare || to < a.From || from > a.To {
			continue
		}
		b := a.block(from, to, "", "")
		b.Title = stageLabel(s) + ": throttled in " + percent(share) + " of its periods"
		bs = append(bs, b)
	}
	return bs
}

// xTicks are the labels of the time axis.
func xTicks(a axis) []tick {
	var ts []tick
	for _, t := range timeTicks(a.From, a.To, 8) {
		ts = append(ts, tick{pct(a.share(t)), clock(t)})
	}
	return ts
}

// clock writes seconds since the start as an axis label: 40 s, 2:30, 1:05:00.
func clock(t float64) string {
	sign := ""
	if t < 0 {
		sign, t = "-", -t
	}
	switch {
	case t == math.Trunc(t) && t < 60:
		return sign + short(t) + " s"
	case t < 60:
		return sign + short(t) + " s"
	case t < 3600:
		return sign + short(math.Floor(t/60)) + ":" + two(math.Mod(t, 60))
	}
	return sign + short(math.Floor(t/3600)) + ":" + two(math.Floor(math.Mod(t, 3600)/60)) + ":" + two(math.Mod(t, 60))
}

func two(v float64) string {
	s := short(math.Round(v))
	if len(s) < 2 {
		return "0" + s
	}
	return s
}
