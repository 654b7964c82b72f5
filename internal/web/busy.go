package web

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
)

// busySteps is how many points the lines of a runner have.
const busySteps = 48

// fullShare and idleShare are where a runner has too few slots and too many: above the
// one builds wait, below the other slots stand idle.
const (
	fullShare = 0.95
	idleShare = 0.70
)

// busyCharts are how much of its slots a runner used, and how long its builds waited,
// over time. slots is 0 where nobody tells them: then it is of the most at once. rows
// are all builds of that time, or nil where there are too many: then totals hold them
// by the time of their end, and what they waited is not drawn.
func busyCharts(rows []Row, totals []Bucket, bucket time.Duration, from, to time.Time, slots int) (g *lineGroup, note string) {
	step := to.Sub(from).Seconds() / busySteps
	if !(step > 0) || len(rows) == 0 && len(totals) == 0 {
		return nil, ""
	}
	var busy [busySteps]float64 // builds at once, on average
	add := func(begin, end, seconds float64) {
		if !(end > begin) {
			return
		}
		for i := max(0, int(begin/step)); i < busySteps && float64(i)*step < end; i++ {
			overlap := min(end, float64(i+1)*step) - max(begin, float64(i)*step)
			busy[i] += max(0, overlap) / (end - begin) * seconds / step
		}
	}
	for i := range rows {
		begin, end := rows[i].StartedAt.Sub(from).Seconds(), rows[i].EndedAt.Sub(from).Seconds()
		add(begin, end, end-begin)
	}
	for i := range totals { // builds that ended in it began that much before
		if b := &totals[i]; b.Builds > 0 {
			at := b.Start.Sub(from).Seconds()
			add(at-b.WallSeconds/float64(b.Builds), at+bucket.Seconds(), b.WallSeconds)
		}
	}
	of, title := float64(slots), fmt.Sprintf("Busy share of %d slots", slots)
	if slots <= 0 {
		if of = max(1, float64(atOnce(rows)), math.Ceil(slices.Max(busy[:])-0.05)); of == 1 {
			title = "Busy share of one slot"
		} else {
			title = fmt.Sprintf("Busy share of %.0f slots", of)
		}
		note = fmt.Sprintf("How many slots it has is not told: %.0f is the most that ran at once in this time. ", of)
	}
	shares, xs := make([]float64, busySteps), make([]float64, busySteps)
	for i := range shares {
		shares[i], xs[i] = busy[i]/of, plotWidth*(float64(i)+0.5)/busySteps
	}
	top := max(1.2, 1.08*slices.Max(shares)) // the words of a guide stand above it
	c := lineChart{ID: "busy", Title: title, Unit: "%", Class: "cpu", Fill: "area", XTicks: dateTicks(from, to)}
	c.draw(xs, top, 0.01, []chartLine{{Label: "busy", Class: "cpu", Now: sig3(100 * last(shares))}}, [][]float64{shares})
	c.Points = points(from, to, xs, 0.01, [][]float64{shares})
	floor := make([]float64, busySteps)
	ys := make([]float64, busySteps)
	for i, s := range shares {
		floor[i], ys[i] = plotHeight, plotHeight*(1-s/top)
		c.Rows = append(c.Rows, []string{"", sig3(100 * s)})
	}
	c.Area = bandPath(xs, ys, floor)
	for _, s := range []float64{fullShare, idleShare} {
		words := map[float64]string{fullShare: "builds wait above it", idleShare: "slots stand idle below it"}[s]
		c.Guides = append(c.Guides, guide{pct(1 - s/top), percent(s) + ": " + words})
	}
	charts := []lineChart{c}
	if w, ok := waitChart(rows, from, to, xs); ok {
		charts = append(charts, w)
	}
	clock := "15:04"
	if to.Sub(from) > 25*time.Hour {
		clock = "Jan 2 15:04"
	}
	for i := range charts {
		for j := range charts[i].Rows {
			charts[i].Rows[j][0] = from.Add(time.Duration(float64(j) * step * float64(time.Second))).UTC().Format(clock)
		}
	}
	return groupOf("busy-t", "", charts), note + fmt.Sprintf("Above %s builds wait for a slot; below %s slots stand idle.", percent(fullShare), percent(idleShare))
}

// waitChart is the median and the 95th percentile of what builds waited that began in
// each step.
func waitChart(rows []Row, from, to time.Time, xs []float64) (c lineChart, known bool) {
	var waits [busySteps][]float64
	for i := range rows {
		at := int(busySteps * rows[i].StartedAt.Sub(from).Seconds() / to.Sub(from).Seconds())
		if w := rows[i].Queue(); w.Known && at >= 0 && at < busySteps {
			waits[at] = append(waits[at], w.Value)
			known = true
		}
	}
	p50, p95 := make([]float64, busySteps), make([]float64, busySteps)
	for i, vs := range waits {
		p50[i], p95[i] = math.NaN(), math.NaN()
		if len(vs) > 0 {
			slices.Sort(vs)
			p50[i], p95[i] = middle(vs), vs[(len(vs)*95+99)/100-1]
		}
	}
	top := most(p95)
	col := timeColumn(top)
	c = lineChart{ID: "waits", Title: "Wait of those that began", Unit: col.Unit, Class: "other", XTicks: dateTicks(from, to), Fill: "band"}
	in := func(v float64) string { return told(v, func(v float64) string { return col.cell(some(v)) }) }
	c.draw(xs, top, col.size, []chartLine{{Label: "half under", Class: "other", Now: in(lastKnown(p50))}, {Label: "95 % under", Class: "other dash", Now: in(lastKnown(p95))}}, [][]float64{p50, p95})
	c.Points = points(from, to, xs, col.size, [][]float64{p50, p95})
	for i := range p50 {
		c.Rows = append(c.Rows, []string{"", in(p50[i]), in(p95[i])})
	}
	return c, known
}

// atOnce is how many of the builds ran at one time at most.
func atOnce(rows []Row) int {
	type edge struct {
		at time.Time
		by int
	}
	edges := make([]edge, 0, 2*len(rows))
	for i := range rows {
		edges = append(edges, edge{rows[i].StartedAt, 1}, edge{rows[i].EndedAt, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.by - b.by // an end before what begins then
	})
	n, most := 0, 0
	for _, e := range edges {
		n += e.by
		most = max(most, n)
	}
	return most
}

// slotsOf is how many builds a runner can run at once, as CI servers tell; 0: none does.
func (p *Pages) slotsOf(runner string) (slots int) {
	if p.o.Queue == nil {
		return 0
	}
	st := p.o.Queue()
	for i := range st.Workers {
		if w := &st.Workers[i]; w.Runner.Key() == runner && w.Slots.Known {
			slots += w.Slots.Value
		}
	}
	return slots
}

// placeMachines bounds the machines of a runner whose last day is added up.
const placeMachines = 8

// sumOfPasts is what machines did together: of each time the sum of those that were
// heard of then, the largest pressure, and the least coverage.
func (p *Pages) sumOfPasts(ctx context.Context, machines []string, since time.Time) ([]Moment, error) {
	byTime := map[time.Time]Moment{}
	add := func(a, b float64) float64 {
		if math.IsNaN(a) {
			return b
		} else if math.IsNaN(b) {
			return a
		}
		return a + b
	}
	for _, machine := range machines {
		day, err := p.o.Past(ctx, machine, since)
		if err != nil {
			return nil, err
		}
		for _, m := range day {
			s, ok := byTime[m.At]
			if !ok {
				byTime[m.At] = m
				continue
			}
			s.Builds, s.Other, s.Cimeter = add(s.Builds, m.Builds), add(s.Other, m.Other), add(s.Cimeter, m.Cimeter)
			s.MemoryUsed, s.Disk, s.Net = add(s.MemoryUsed, m.MemoryUsed), add(s.Disk, m.Disk), add(s.Net, m.Net)
			if !(s.Pressure >= m.Pressure) && !math.IsNaN(m.Pressure) {
				s.Pressure = m.Pressure
			}
			if !(s.Coverage <= m.Coverage) && !math.IsNaN(m.Coverage) {
				s.Coverage = m.Coverage
			}
			byTime[m.At] = s
		}
	}
	sum := make([]Moment, 0, len(byTime))
	for _, m := range byTime {
		sum = append(sum, m)
	}
	slices.SortFunc(sum, func(a, b Moment) int { return a.At.Compare(b.At) })
	return sum, nil
}

// waited is how long, in seconds, some task of a build waited for CPU, memory or disk:
// the largest of the three, which may be at the same time.
func waited(p *cimeter.PressureSeconds) (most opt) {
	if p == nil {
		return most
	}
	for _, v := range []opt{p.CPUSome, p.MemorySome, p.IOSome} {
		if v.Known && (!most.Known || v.Value > most.Value) {
			most = v
		}
	}
	return most
}
