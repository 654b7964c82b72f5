package web

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/cimeter/cimeter/internal/queue"
)

type queueSpan struct {
	name, words string
	length      time.Duration
}

// queueSpans are the times that the charts can show.
var queueSpans = []queueSpan{{"1h", "the last hour", time.Hour}, {"6h", "the last 6 hours", 6 * time.Hour}, {"24h", "the last 24 hours", 24 * time.Hour}, {"7d", "the last 7 days", 7 * 24 * time.Hour}}

// queueSteps is how many points a line of the charts has at most.
const queueSteps = 240

// every is how many steps a row of the table under them has.
const every = queueSteps / 48

// moments are the history of some servers added up, in steps: NaN is not known.
type moments struct {
	waiting, running, slots, p50, p95 []float64
}

// lastDay draws what waited and ran, and under it how long builds waited.
func (v *queueView) lastDay(st *queue.State, q url.Values, f queueFilter) {
	span := queueSpans[slices.IndexFunc(queueSpans, func(s queueSpan) bool { return s.name == "24h" })]
	for _, s := range queueSpans {
		if s.name == q.Get("t") {
			span = s
		}
	}
	for _, s := range queueSpans {
		t := s.name
		if t == "24h" {
			t = ""
		}
		v.Ranges = append(v.Ranges, choice{link{s.name, queueURL(q, "t", t), s.words}, s.name == span.name})
	}
	var of []*queue.Server
	for i := range st.Servers {
		if s := &st.Servers[i]; f.server == "" || s.Name == f.server {
			of = append(of, s)
		}
	}
	from := st.At.Add(-span.length)
	m, known := gather(of, from, st.At)
	if !known {
		return
	}
	xs := make([]float64, queueSteps)
	for i := range xs {
		xs[i] = plotWidth * (float64(i) + 0.5) / queueSteps
	}
	xticks := dateTicks(from, st.At)
	rowTimes := func(i int) string {
		return from.Add(span.length * time.Duration(i) / queueSteps).UTC().Format(span.clock())
	}
	builds := lineChart{ID: "builds", Title: "Builds and slots", Class: "other", XTicks: xticks}
	top := most(m.waiting, m.running, m.slots)
	y := func(vs []float64, top float64) []float64 {
		out := make([]float64, len(vs))
		for i, x := range vs {
			out[i] = plotHeight * (1 - x/top)
		}
		return out
	}
	floor := make([]float64, queueSteps)
	for i := range floor {
		floor[i] = plotHeight
	}
	whole := func(v float64) string { return thousands(math.Round(v)) }
	builds.Area, builds.Fill = bandPath(xs, y(m.waiting, top), floor), "area"
	builds.Points = points(from, st.At, xs, 1, [][]float64{m.waiting, m.running, m.slots})
	builds.draw(xs, top, 1, []chartLine{{Label: "waiting", Class: "other", Now: told(last(m.waiting), whole)}, {Label: "running", Class: "cpu", Now: told(last(m.running), whole)},
		{Label: "slots", Class: "limit dash", Now: told(last(m.slots), whole)}}, [][]float64{m.waiting, m.running, m.slots})
	for i := 0; i < queueSteps; i += every {
		builds.Rows = append(builds.Rows, []string{rowTimes(i), told(mean(m.waiting[i:i+every]), sig3), told(mean(m.running[i:i+every]), sig3), told(mean(m.slots[i:i+every]), sig3)})
	}
	v.Charts = groupOf("queue-t", "", []lineChart{builds})
	if len(of) > 1 {
		waits, left := waitsOf(of, from, st.At, xs)
		switch {
		case len(waits.Lines) == 0:
			v.ChartsBy = "Nothing has waited in this time."
			return
		case left > 0:
			v.ChartsBy = fmt.Sprintf("Waits are of the %d CI servers where they were longest; %d more waited less.", waitLines, left)
		default:
			v.ChartsBy = "Percentiles of several CI servers cannot be added up: each has its line. Choose one above to see its median, too."
		}
		waits.XTicks = xticks
		for i := range waits.Rows {
			waits.Rows[i][0] = rowTimes(i * every)
		}
		v.Charts = groupOf("queue-t", "", []lineChart{builds, waits})
		return
	}
	if math.IsNaN(last(m.p95)) && most(m.p95) == 1 {
		v.ChartsBy = "Nothing has waited in this time."
		return
	}
	top = most(m.p95, m.p50)
	col := timeColumn(top)
	wait := lineChart{ID: "waits", Title: "Wait of those that waited", Unit: col.Unit, Class: "other", XTicks: xticks}
	wait.Area, wait.Fill = bandPath(xs, y(m.p95, top), y(m.p50, top)), "band"
	wait.Points = points(from, st.At, xs, col.size, [][]float64{m.p50, m.p95})
	in := func(v float64) string { return col.cell(some(v)) }
	wait.draw(xs, top, col.size, []chartLine{{Label: "half under", Class: "other", Now: told(last(m.p50), in)}, {Label: "95 % under", Class: "other dash", Now: told(last(m.p95), in)}}, [][]float64{m.p50, m.p95})
	for i := 0; i < queueSteps; i += every {
		wait.Rows = append(wait.Rows, []string{rowTimes(i), told(mean(m.p50[i:i+every]), in), told(mean(m.p95[i:i+every]), in)})
	}
	v.Charts = groupOf("queue-t", "", []lineChart{builds, wait})
}

// waitLines is how many CI servers have a line of their waits: as many as can be told
// apart, by tone and dashes.
const waitLines = 4

// waitsOf is how long builds waited on each of several servers, where they waited
// longest first; left is how many more there are.
func waitsOf(of []*queue.Server, from, to time.Time, xs []float64) (c lineChart, left int) {
	type line struct {
		name  string
		p95   []float64
		total float64
	}
	var lines []line
	for _, s := range of {
		if m, _ := gather([]*queue.Server{s}, from, to); !math.IsNaN(mean(m.p95)) {
			lines = append(lines, line{s.Name, m.p95, mean(m.p95)})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(b.total, a.total) })
	left = max(0, len(lines)-waitLines)
	lines = lines[:len(lines)-left]
	c = lineChart{ID: "waits", Title: "95 % of those that waited did so for less than", Class: "other"}
	if len(lines) == 0 {
		return c, 0
	}
	var values [][]float64
	for _, l := range lines {
		values = append(values, l.p95)
	}
	top := most(values...)
	col := timeColumn(top)
	c.Unit = col.Unit
	in := func(v float64) string { return col.cell(some(v)) }
	var drawn []chartLine
	for i, l := range lines {
		drawn = append(drawn, chartLine{Label: name(l.name), Class: []string{"other", "limit dash", "other dot", "limit"}[i], Now: told(last(l.p95), in)})
	}
	c.Points = points(from, to, xs, col.size, values)
	c.draw(xs, top, col.size, drawn, values)
	for i := 0; i < queueSteps; i += every {
		row := []string{""}
		for _, vs := range values {
			row = append(row, told(mean(vs[i:i+every]), in))
		}
		c.Rows = append(c.Rows, row)
	}
	return c, left
}

// unknown is a line of nothing.
func unknown() []float64 {
	vs := make([]float64, queueSteps)
	for i := range vs {
		vs[i] = math.NaN()
	}
	return vs
}

// clock is the form of the times of a table over the span.
func (s queueSpan) clock() string {
	if s.length > 24*time.Hour {
		return "Jan 2 15:04"
	}
	return "15:04"
}

// past is the history of a server over a time: minutes of a day, of more tens of
// minutes and the minutes that are in none of them yet.
func past(s *queue.Server, length time.Duration) []queue.Point {
	if length <= queue.KeepFine || len(s.Week) == 0 {
		return s.History
	}
	until := s.Week[len(s.Week)-1].At
	late := slices.IndexFunc(s.History, func(p queue.Point) bool { return p.At > until })
	if late < 0 {
		return s.Week
	}
	return slices.Concat(s.Week, s.History[late:])
}

// gather adds the histories of servers up, a mean for each step.
func gather(of []*queue.Server, from, to time.Time) (m moments, known bool) {
	pasts := make([][]queue.Point, len(of))
	for i, s := range of {
		pasts[i] = past(s, to.Sub(from))
	}
	sum := func(value func(*queue.Point) float32) []float64 {
		total := make([]float64, queueSteps)
		var told [queueSteps]bool
		for _, points := range pasts {
			var sums [queueSteps]float64
			var ns [queueSteps]int
			seen := false
			for i := range points {
				at := time.Unix(points[i].At, 0)
				v := float64(value(&points[i]))
				inside := at.After(from) && !at.After(to)
				seen = seen || inside
				if !inside || math.IsNaN(v) {
					continue
				}
				j := min(queueSteps-1, int(float64(queueSteps)*float64(at.Sub(from))/float64(to.Sub(from))))
				sums[j] += v
				ns[j]++
			}
			if seen && slices.Max(ns[:]) == 0 { // it never tells: nor does the sum
				return unknown()
			}
			fill(&sums, &ns, float64(to.Sub(from))/queueSteps < float64(2*time.Minute))
			began := false
			for j, n := range ns {
				switch {
				case n > 0:
					total[j] += sums[j] / float64(n)
					began, known, told[j] = true, true, true
				case began: // a sum of the others would be too little
					total[j] = math.NaN()
				}
			}
		}
		for j := range total {
			if !told[j] {
				total[j] = math.NaN()
			}
		}
		return total
	}
	m.waiting = sum(func(p *queue.Point) float32 { return p.Waiting })
	m.running = sum(func(p *queue.Point) float32 { return p.Running })
	m.slots = sum(func(p *queue.Point) float32 { return p.Slots })
	m.p50 = sum(func(p *queue.Point) float32 { return p.P50 })
	m.p95 = sum(func(p *queue.Point) float32 { return p.P95 })
	return m, known
}

// fill carries a minute's point over the steps within it, where steps are
// shorter than minutes.
func fill(sums *[queueSteps]float64, ns *[queueSteps]int, shorter bool) {
	if !shorter {
		return
	}
	gap := 0
	for j := queueSteps - 1; j >= 0; j-- {
		if ns[j] > 0 {
			gap = 0
			continue
		}
		gap++
		if next := j + gap; gap <= 4 && next < queueSteps && ns[next] > 0 {
			sums[j], ns[j] = sums[next]/float64(ns[next]), 1
			gap = 0
		}
	}
}

// most is the largest of what is known with room above it, 1 of nothing.
func most(lines ...[]float64) float64 {
	top := 0.0
	for _, vs := range lines {
		for _, v := range vs {
			if !math.IsNaN(v) {
				top = max(top, v)
			}
		}
	}
	if top <= 0 {
		return 1
	}
	return top * 1.08
}

func last(vs []float64) float64 { return vs[len(vs)-1] }

func mean(vs []float64) float64 {
	sum, n := 0.0, 0
	for _, v := range vs {
		if !math.IsNaN(v) {
			sum, n = sum+v, n+1
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

func told(v float64, as func(float64) string) string {
	if math.IsNaN(v) {
		return dash
	}
	return as(v)
}
