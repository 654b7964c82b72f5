package web

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// trend is a cost over many builds, as the server draws it: a dot a build with a line
// for the running median; of very many builds a band from the median to what 95 % stay
// under, since so many dots say nothing.
type trend struct {
	Label    string
	Class    string
	Unit     string
	Dots     string // path of builds
	Failed   string // path of failed ones
	Band     string
	P95      string
	Median   string
	Ticks    []tick
	XTicks   []tick
	Latest   string // the median of the last builds
	Marks    []trendMark
	From, To int64 // seconds since 1970
}

// trendMark is where something changed for good.
type trendMark struct {
	X, Y, Text string
	Class      string // more, less, or ""
	Left       bool   // its text stands left of it
}

// window is how many builds the running median looks at.
const window = 9

// trends are the costs of builds over a time: those of few, and beyond dotsMost builds
// the same as a table, whose rows are the buckets of the bands.
type trends struct {
	Trends []trend
	Heads  []heading
	Rows   [][]string
	Of     string // what is shown
	Note   string
}

// dotsMost is how many builds have a dot each.
const dotsMost = 300

// trendsOf draws rows, oldest first, between from and to.
func trendsOf(rows []Row, from, to time.Time) *trends {
	t := &trends{}
	var grain time.Duration
	if len(rows) > dotsMost {
		grain = grainOf(to.Sub(from))
		t.Heads = []heading{{Label: "from (UTC)"}, {Label: "builds", Class: "n"}}
		form := "Jan 2 15:04"
		if to.Sub(from) > 300*24*time.Hour {
			form = "2006-01-02"
		}
		counts := make([]int, int((to.Sub(from)+grain-1)/grain))
		for i := range rows {
			if k := int(rows[i].EndedAt.Sub(from) / grain); k >= 0 && k < len(counts) {
				counts[k]++
			}
		}
		for k, n := range counts {
			t.Rows = append(t.Rows, []string{from.Add(time.Duration(k) * grain).UTC().Format(form), thousands(float64(n))})
		}
		t.Of = fmt.Sprintf("Of %s: the line is the median of each %s, the dashes above it what 95 %% stay under.", builds(int64(len(rows))), grainWords(grain))
	} else {
		t.Of = "A dot is a build, a ring a failed one; the line is the median of nine."
	}
	for _, c := range []struct {
		label, class string
		value        func(*Row) opt
		scale        func(float64) column
	}{
		{"CPU time", "cpu", func(r *Row) opt { return r.CPUSeconds }, timeColumn},
		{"Memory, peak", "mem", func(r *Row) opt { return number(r.MemoryPeak) }, bytesColumn},
		{"Time", "other", func(r *Row) opt { return r.Wall() }, timeColumn},
	} {
		d := trend{Label: c.label, Class: c.class, XTicks: dateTicks(from, to), From: from.Unix(), To: to.Unix()}
		var at, vs []float64 // at is a share of the time
		var failed []bool
		for i := range rows {
			r := &rows[i]
			if v := c.value(r); v.Known && r.Result != "canceled" {
				at, vs = append(at, float64(r.EndedAt.Sub(from))/float64(to.Sub(from))), append(vs, v.Value)
				failed = append(failed, r.Result == "failed")
			}
		}
		if len(vs) == 0 {
			continue
		}
		if grain > 0 {
			d.band(at, vs, float64(grain)/float64(to.Sub(from)), c.scale, t)
		} else {
			d.dots(at, vs, failed, c.scale(slices.Max(vs)))
		}
		t.Trends = append(t.Trends, d)
	}
	if len(t.Trends) == 0 {
		return nil
	}
	return t
}

// axis makes the ticks of values up to top, and returns where one stands.
func (t *trend) axis(top float64, col column) func(float64) float64 {
	if top *= 1.08; top <= 0 {
		top = 1
	}
	t.Unit = col.Unit
	for _, at := range ticks(0, top/col.size, 4) {
		t.Ticks = append(t.Ticks, tick{pct(1 - at*col.size/top), short(at)})
	}
	return func(v float64) float64 { return plotHeight * (1 - v/top) }
}

// dots draws every build.
func (t *trend) dots(at, vs []float64, failed []bool, col column) {
	y := t.axis(slices.Max(vs), col)
	xs, medians := make([]float64, len(vs)), make([]float64, len(vs))
	for i, v := range vs {
		xs[i] = plotWidth * at[i]
		point := "M" + coord(xs[i]) + " " + coord(y(v)) + "h0"
		if failed[i] {
			t.Failed += point
		} else {
			t.Dots += point
		}
		medians[i] = y(spreadOf(vs[max(0, i-window+1) : i+1]).median)
	}
	t.Median = linePath(xs, medians)
	t.Latest = col.cell(some(spreadOf(vs[max(0, len(vs)-window):]).median))
}

// band draws the median and the 95th percentile of each share of the time, and tells
// them to the table.
func (t *trend) band(at, vs []float64, share float64, scale func(float64) column, table *trends) {
	n := len(table.Rows)
	in := make([][]float64, n)
	for i, v := range vs {
		if k := int(at[i] / share); k >= 0 && k < n {
			in[k] = append(in[k], v)
		}
	}
	xs, p50, p95 := make([]float64, n), make([]float64, n), make([]float64, n)
	top := 0.0
	for k, vs := range in {
		xs[k], p50[k], p95[k] = plotWidth*min(1, (float64(k)+0.5)*share), math.NaN(), math.NaN()
		if len(vs) > 0 {
			slices.Sort(vs)
			p50[k], p95[k] = middle(vs), percentile(vs, 0.95)
			top = max(top, p95[k])
		}
	}
	col := scale(top)
	y := t.axis(top, col)
	table.Heads = append(table.Heads, heading{Label: t.Label + ", median", Unit: col.Unit, Class: "n"}, heading{Label: "95 % under", Unit: col.Unit, Class: "n"})
	t.Latest = told(lastKnown(p50), func(v float64) string { return col.cell(some(v)) })
	for k := range in {
		for _, v := range []*float64{&p50[k], &p95[k]} {
			table.Rows[k] = append(table.Rows[k], told(*v, func(v float64) string { return col.cell(some(v)) }))
			*v = y(*v)
		}
	}
	t.Band, t.Median, t.P95 = bandPath(xs, p95, p50), linePath(xs, p50), linePath(xs, p95)
}

// trendBuckets is how many buckets a band has at most.
const trendBuckets = 60

// grainOf is the time that a bucket of a band takes.
func grainOf(length time.Duration) time.Duration {
	const day = 24 * time.Hour
	for _, g := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour, 6 * time.Hour, day, 7 * day} {
		if length <= trendBuckets*g*3/4 {
			return g
		}
	}
	return (length / trendBuckets).Truncate(7*day) + 7*day
}

func grainWords(g time.Duration) string {
	switch {
	case g%(7*24*time.Hour) == 0 && g > 7*24*time.Hour:
		return fmt.Sprintf("%d weeks", g/(7*24*time.Hour))
	case g == 7*24*time.Hour:
		return "week"
	case g == 24*time.Hour:
		return "day"
	case g == time.Hour:
		return "hour"
	case g > time.Hour:
		return fmt.Sprintf("%d hours", g/time.Hour)
	case g == time.Minute:
		return "minute"
	}
	return fmt.Sprintf("%d minutes", g/time.Minute)
}

// mark puts changes where they began.
func (t *trends) mark(shifts []shift) {
	if t == nil {
		return
	}
	for i := range t.Trends {
		d := &t.Trends[i]
		for _, s := range shifts {
			share := float64(s.At.Unix()-d.From) / float64(d.To-d.From)
			if (s.Of == d.Class || s.Of == "") && share >= 0 && share <= 1 {
				d.Marks = append(d.Marks, trendMark{X: pct(share), Y: fmt.Sprint(12 + 14*len(d.Marks)), Text: s.Mark, Class: s.Class, Left: share > 0.6})
			}
		}
	}
}

// dateTicks are about six dates between from and to.
func dateTicks(from, to time.Time) []tick {
	length := to.Sub(from)
	if length <= 0 {
		return nil
	}
	form, step := "Jan 2", 24*time.Hour
	switch {
	case length <= 20*time.Minute:
		form, step = "15:04", 2*time.Minute
	case length <= 2*time.Hour:
		form, step = "15:04", 15*time.Minute
	case length <= 8*time.Hour:
		form, step = "15:04", time.Hour
	case length <= 30*time.Hour:
		form, step = "15:04", 4*time.Hour
	case length <= 9*24*time.Hour:
	default:
		step = (length / 6).Round(24 * time.Hour)
	}
	var ts []tick
	for at := from.UTC().Truncate(step).Add(step); at.Before(to) && len(ts) < 20; at = at.Add(step) {
		if share := float64(at.Sub(from)) / float64(length); share < 0.97 {
			ts = append(ts, tick{pct(share), at.Format(form)})
		}
	}
	return ts
}

// shift is where a cost of a job changed for good.
type shift struct {
	Text     string
	Evidence string
	Class    string
	Compare  string
	At       time.Time // of the end of the first build since
	Of       string    // the class of its trend; "": of all
	Mark     string    // in few words
}

// shiftWindow bounds how many builds a change is looked for in, and minSide how
// many there must be on each side of it.
const (
	shiftWindow = 120
	minSide     = 6
)

// away is how far values lie from a middle together.
func away(vs []float64, middle float64) (sum float64) {
	for _, v := range vs {
		sum += math.Abs(v - middle)
	}
	return sum
}

// shifts finds for each cost the one place, if any, where the builds before and after
// lie closest to their medians, of those where the medians are further apart than either
// side is wide.
func shifts(rows []Row, now time.Time) []shift {
	rows = rows[max(0, len(rows)-shiftWindow):]
	var out []shift
	for _, c := range []struct {
		name, of string
		value    func(*Row) opt
		write    func(float64) string
	}{
		{"CPU", "cpu", func(r *Row) opt { return r.CPUSeconds }, cpuTime},
		{"memory", "mem", func(r *Row) opt { return number(r.MemoryPeak) }, amount},
		{"time", "other", func(r *Row) opt { return r.Wall() }, seconds},
	} {
		var vs []float64
		var of []*Row
		for i := range rows {
			r := &rows[i]
			if v := c.value(r); v.Known && r.Result == "success" {
				vs, of = append(vs, v.Value), append(of, r)
			}
		}
		best, least := -1, math.Inf(1)
		var before, after spread
		for i := minSide; i <= len(vs)-minSide; i++ {
			a, b := spreadOf(vs[:i]), spreadOf(vs[i:])
			if !a.beyond(b.median) || !b.beyond(a.median) {
				continue
			}
			if d := away(vs[:i], a.median) + away(vs[i:], b.median); d < least {
				best, least, before, after = i, d, a, b
			}
		}
		if best < 0 {
			continue
		}
		first := of[best]
		ch := changeOf(after.median, before.median, true)
		out = append(out, shift{
			Text: fmt.Sprintf("%s %s since %s", c.name, ch.Text, stampOf(now, first.StartedAt).Text), Class: ch.Class,
			Evidence: fmt.Sprintf("median %s over %d builds before, %s over %d since", c.write(before.median), before.n, c.write(after.median), after.n),
			Compare:  href("/compare", "a", of[best-1].Key, "b", first.Key),
			At:       first.EndedAt, Of: c.of, Mark: ch.Text,
		})
	}
	return out
}
