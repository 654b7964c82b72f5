package web

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
)

// trend is a cost over many builds, as the server draws it: a dot a build, a
// line for the running median.
type trend struct {
	Label  string
	Class  string
	Unit   string
	Dots   string // path of builds
	Failed string // path of failed ones
	Median string
	Ticks  []tick
	XTicks []tick
	Latest string // the median of the last builds
}

// window is how many builds the running median looks at.
const window = 9

// trendOf draws value over records, oldest first, between from and to.
func trendOf(label, class string, rs []*cimeter.Record, from, to time.Time, value func(*Row) opt, scale func(largest float64) column) (trend, bool) {
	t := trend{Label: label, Class: class}
	var xs, vs []float64
	var failed []bool
	for _, r := range rs {
		row := RowOf(r)
		if v := value(&row); v.Known && r.Result != "canceled" {
			xs, vs = append(xs, plotWidth*float64(r.EndedAt.Sub(from))/float64(to.Sub(from))), append(vs, v.Value)
			failed = append(failed, r.Result == "failed")
		}
	}
	if len(vs) == 0 {
		return t, false
	}
	top := slices.Max(vs)
	col := scale(top)
	t.Unit = col.Unit
	top *= 1.08
	if top <= 0 {
		top = 1
	}
	y := func(v float64) float64 { return plotHeight * (1 - v/top) }
	var medians []float64
	for i, v := range vs {
		point := "M" + coord(xs[i]) + " " + coord(y(v)) + "h0"
		if failed[i] {
			t.Failed += point
		} else {
			t.Dots += point
		}
		lo := max(0, i-window+1)
		medians = append(medians, y(spreadOf(vs[lo:i+1]).median))
	}
	t.Median = linePath(xs, medians)
	for _, at := range ticks(0, top/col.size, 4) {
		t.Ticks = append(t.Ticks, tick{pct(1 - at*col.size/top), short(at)})
	}
	t.XTicks = dateTicks(from, to)
	t.Latest = col.cell(some(spreadOf(vs[max(0, len(vs)-window):]).median))
	return t, true
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
}

// shiftWindow bounds how many builds a change is looked for in, and minSide how
// many there must be on each side of it.
const (
	shiftWindow = 120
	minSide     = 6
)

// shifts finds for each cost the one place, if any, where the medians before
// and after lie furthest apart, beyond the spread of the builds before it.
func shifts(rs []*cimeter.Record, now time.Time) []shift {
	rs = rs[max(0, len(rs)-shiftWindow):]
	var out []shift
	for _, c := range []struct {
		name  string
		value func(*Row) opt
		write func(float64) string
	}{
		{"CPU", func(r *Row) opt { return r.CPUSeconds }, cpuTime},
		{"memory", func(r *Row) opt { return number(r.MemoryPeak) }, amount},
		{"time", func(r *Row) opt { return r.Wall() }, seconds},
	} {
		var vs []float64
		var of []*cimeter.Record
		for _, r := range rs {
			row := RowOf(r)
			if v := c.value(&row); v.Known && r.Result == "success" {
				vs, of = append(vs, v.Value), append(of, r)
			}
		}
		best, score := -1, 0.0
		var before, after spread
		for i := minSide; i <= len(vs)-minSide; i++ {
			a, b := spreadOf(vs[:i]), spreadOf(vs[i:])
			if !a.beyond(b.median) || !b.beyond(a.median) {
				continue
			}
			if s := math.Abs(b.median-a.median) / (a.mad + b.mad + 0.01*a.median + 1e-9); s > score {
				best, score, before, after = i, s, a, b
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
		})
	}
	return out
}

// histogram is peak memory of its limit, in tenths.
type histogram struct {
	Bars []histogramBar
	N    int
}

type histogramBar struct {
	X, Y, W, H string
	Label      string
	Title      string
	URL        string
	OOM        string
}

func peaksOf(rs []*cimeter.Record, s *selection) *histogram {
	var counts, ooms [10]int
	n := 0
	for _, r := range rs {
		row := RowOf(r)
		if !row.MemoryPeak.Known || row.MemoryLimit.Value == 0 {
			continue
		}
		b := min(9, int(10*float64(row.MemoryPeak.Value)/float64(row.MemoryLimit.Value)))
		counts[b]++
		n++
		if slices.Contains(row.Verdicts, "oom") {
			ooms[b]++
		}
	}
	if n == 0 {
		return nil
	}
	top := slices.Max(counts[:])
	h := &histogram{N: n}
	for i, c := range counts {
		share := float64(c) / float64(top)
		b := histogramBar{X: pct(float64(i)/10 + 0.008), W: pct(0.084), Y: pct(1 - 0.82*share), H: pct(0.82 * share), Label: fmt.Sprintf("%d %%", 10*i),
			Title: fmt.Sprintf("%s at %d to %d %% of the limit", builds(int64(c)), 10*i, 10*i+10)}
		q := fmt.Sprintf("mem>=%d%%", 10*i)
		if i < 9 {
			q += fmt.Sprintf(" mem<%d%%", 10*i+10)
		}
		if c > 0 {
			b.URL = s.url("/builds", "q", q, "project", s.values.Get("project"), "job", s.values.Get("name"), "name", "")
		}
		if ooms[i] > 0 {
			b.OOM = fmt.Sprintf("%d killed", ooms[i])
			b.Title += ", " + b.OOM
		}
		h.Bars = append(h.Bars, b)
	}
	return h
}
