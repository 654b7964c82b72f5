package web

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

// Past returns what a machine did since a time, as means of ten minutes, the oldest
// first. It is called by many goroutines at once.
type Past func(ctx context.Context, machine string, since time.Time) ([]Moment, error)

// Moment is a machine at one time; NaN is not known.
type Moment struct {
	At                     time.Time
	Builds, Other, Cimeter float64 // cores
	MemoryUsed             float64 // bytes
	Disk, Net              float64 // bytes a second
	Pressure               float64 // the largest share of time in which some task waited
	Coverage               float64 // 0 to 1; of the last day alone
}

// latelyFigure is a chart of a machine's last minutes.
type latelyFigure struct {
	id, title string
	limit     float64 // of the machine; 0: it has none, or does not tell
	limitWord string
	unit      func(most float64) column
	lines     []latelyLine
}

type latelyLine struct {
	label, class string
	of           func(*Moment) float64
}

// hostFigures are the charts of a machine, with their names' prefix; cpus and memory
// are 0 where it does not tell them.
func hostFigures(prefix string, cpus int, memory uint64) []latelyFigure {
	rate := func(most float64) column {
		c := bytesColumn(most)
		c.Unit += "/s"
		return c
	}
	return []latelyFigure{
		{prefix + "cpu", "CPU by owner", float64(cpus), "CPUs", func(float64) column { return column{Unit: "cores", size: 1} }, []latelyLine{{"builds", "cpu", func(p *Moment) float64 { return p.Builds }},
			{"the rest", "other", func(p *Moment) float64 { return p.Other }}, {"cimeter", "other dash", func(p *Moment) float64 { return p.Cimeter }}}},
		{prefix + "mem", "Memory", float64(memory), "total", bytesColumn, []latelyLine{{"used", "mem", func(p *Moment) float64 { return p.MemoryUsed }}}},
		{prefix + "disk", "Disk", 0, "", rate, []latelyLine{{"read and written", "disk", func(p *Moment) float64 { return p.Disk }}}},
		{prefix + "net", "Network", 0, "", rate, []latelyLine{{"both ways", "net", func(p *Moment) float64 { return p.Net }}}},
		{prefix + "psi", "Pressure", 0, "", shareColumn, []latelyLine{{"time that some task waited", "other", func(p *Moment) float64 { return p.Pressure }}}},
	}
}

func shareColumn(float64) column { return column{Unit: "%", size: 0.01} }

// latelyCharts are the figures that a machine's history knows something of.
func latelyCharts(m *Machine) *lineGroup {
	var charts []lineChart
	for _, f := range hostFigures("l-", m.CPUs, m.MemoryBytes) {
		if c, ok := f.chart(gapped(m.History, 90*time.Second), latelyRows, "15:04:05"); ok {
			charts = append(charts, c)
		}
	}
	return groupOf("lately-t", "lately", charts)
}

// How many rows the tables have: a page is to be small.
const (
	latelyRows = 10
	dayRows    = 24
)

// gapped is a history in which nothing is known between two times that are farther
// apart than that: no line leads over what was not seen.
func gapped(history []Moment, apart time.Duration) []Moment {
	out := make([]Moment, 0, len(history))
	nan := math.NaN()
	for i := range history {
		if n := len(out); n > 0 && history[i].At.Sub(out[n-1].At) > apart {
			out = append(out, Moment{At: out[n-1].At.Add(history[i].At.Sub(out[n-1].At) / 2), Builds: nan, Other: nan, Cimeter: nan, MemoryUsed: nan, Disk: nan, Net: nan, Pressure: nan, Coverage: nan})
		}
		out = append(out, history[i])
	}
	return out
}

// dayCharts are what the machine did in the last day, and how much of the CPU time of
// builds was attributed to one.
func dayCharts(cpus int, memory uint64, day []Moment) (g *lineGroup, worst string) {
	var charts []lineChart
	day = gapped(day, 15*time.Minute)
	for _, f := range append(hostFigures("d-", cpus, memory), latelyFigure{"d-cover", "Coverage", 0, "", shareColumn, []latelyLine{{"of the CPU time of builds", "other", func(p *Moment) float64 { return p.Coverage }}}}) {
		if c, ok := f.chart(day, dayRows, "15:04"); ok {
			charts = append(charts, c)
		}
	}
	low := math.Inf(1)
	for i := range day {
		if p := &day[i]; p.Coverage < min(low, 0.95) && p.Builds+p.Other > 0.05 { // as little as nothing tells nothing
			low, worst = p.Coverage, fmt.Sprintf("Coverage was lowest at %s UTC: %s. The rest of what builds used then is not attributed to any.", p.At.UTC().Format("15:04"), percent(p.Coverage))
		}
	}
	return groupOf("day-t", "lately", charts), worst
}

// chart draws what is known of a figure, with a table of so many rows at most; false:
// nothing is, at two times at least.
func (f *latelyFigure) chart(history []Moment, most int, clock string) (c lineChart, known bool) {
	if len(history) < 2 {
		return c, false
	}
	from, to := history[0].At, history[len(history)-1].At
	length := to.Sub(from).Seconds()
	if length <= 0 {
		return c, false
	}
	xs := make([]float64, len(history))
	for i := range history {
		xs[i] = plotWidth * history[i].At.Sub(from).Seconds() / length
	}
	var lines []chartLine
	var values [][]float64
	top := 0.0
	for _, l := range f.lines {
		vs := make([]float64, len(history))
		n := 0
		for i := range history {
			vs[i] = l.of(&history[i])
			if !math.IsNaN(vs[i]) {
				n++
				top = max(top, vs[i])
			}
		}
		if n >= 2 {
			lines, values = append(lines, chartLine{Label: l.label, Class: l.class}), append(values, vs)
		}
	}
	if len(lines) == 0 {
		return c, false
	}
	if f.limit > 0 {
		vs := make([]float64, len(history))
		for i := range vs {
			vs[i] = f.limit
		}
		top = max(top, f.limit)
		lines, values = append(lines, chartLine{Label: f.limitWord, Class: "limit dash"}), append(values, vs)
	}
	if top <= 0 {
		top = 1
	}
	unit := f.unit(top)
	top *= 1.08
	cell := func(v float64) string { return told(v, func(v float64) string { return sig3(v / unit.size) }) }
	for i := range lines {
		lines[i].Now = cell(lastKnown(values[i]))
	}
	c.ID, c.Title, c.Unit, c.Class, c.XTicks = f.id, f.title, unit.Unit, lines[0].Class, dateTicks(from, to)
	c.draw(xs, top, unit.size, lines, values)
	c.Points = points(from, to, xs, unit.size, values)
	every := (len(history) + most - 1) / most
	for i := 0; i < len(history); i += every {
		row := []string{history[i].At.UTC().Format(clock)}
		for _, vs := range values {
			row = append(row, cell(vs[i]))
		}
		c.Rows = append(c.Rows, row)
	}
	return c, true
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
