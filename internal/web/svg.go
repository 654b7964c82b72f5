package web

import (
	"math"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
)

// The drawings of the server are paths in small coordinate systems that the
// page stretches to their place: a path is one element, and its bytes are few.

// sparkHeight is the height of a sparkline's coordinates; its width is
// sparkSteps.
const sparkHeight = 20

// sparkPath is the area under vs, from 0 to the largest of them; a gap where
// nothing is known. "" when there is nothing to draw.
func sparkPath(vs []cimeter.Opt[int64]) string {
	var top int64
	for _, v := range vs {
		top = max(top, v.Value)
	}
	return scaledPath(vs, top)
}

// barPath is a bar of a share of 100 units.
func barPath(share float64) string { return "M0 0H" + coord(100*clamp(share)) }

// coord writes a coordinate with one decimal where it has one.
func coord(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "0"
	}
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

func clamp(share float64) float64 {
	if math.IsNaN(share) {
		return 0
	}
	return min(1, max(0, share))
}

// plotWidth and plotHeight are the coordinates of a chart.
const (
	plotWidth  = 1000
	plotHeight = 140
)

// linePath draws ys at xs, both in plot coordinates; NaN is a gap.
func linePath(xs, ys []float64) string {
	var b strings.Builder
	open := false
	for i, y := range ys {
		if math.IsNaN(y) {
			open = false
			continue
		}
		if open {
			b.WriteByte('L')
		} else {
			b.WriteByte('M')
			if i+1 >= len(ys) || math.IsNaN(ys[i+1]) { // a lone reading: a dot is a line to itself
				b.WriteString(coord(xs[i]-1) + " " + coord(y) + "L")
			}
			open = true
		}
		b.WriteString(coord(xs[i]) + " " + coord(y))
	}
	return b.String()
}

// bandPath is the area between two lines of the same xs.
func bandPath(xs, upper, lower []float64) string {
	var b strings.Builder
	for i := 0; i < len(xs); i++ {
		if math.IsNaN(upper[i]) || math.IsNaN(lower[i]) {
			continue
		}
		end := i
		for end+1 < len(xs) && !math.IsNaN(upper[end+1]) && !math.IsNaN(lower[end+1]) {
			end++
		}
		for j := i; j <= end; j++ {
			b.WriteByte("ML"[min(1, j-i)])
			b.WriteString(coord(xs[j]) + " " + coord(upper[j]))
		}
		for j := end; j >= i; j-- {
			b.WriteString("L" + coord(xs[j]) + " " + coord(lower[j]))
		}
		b.WriteByte('z')
		i = end
	}
	return b.String()
}

// ticks are round numbers from lo to hi, about n of them.
func ticks(lo, hi float64, n int) []float64 {
	if !(hi > lo) || n < 1 {
		return nil
	}
	raw := (hi - lo) / float64(n)
	base := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * base
	for _, m := range []float64{1, 2, 5} {
		if m*base >= raw*0.999 {
			step = m * base
			break
		}
	}
	var ts []float64
	for t := math.Ceil(lo/step-1e-9) * step; t <= hi*(1+1e-9)+1e-12 && len(ts) < 50; t += step {
		ts = append(ts, round(t, step))
	}
	return ts
}

// timeTicks are round times of seconds.
func timeTicks(lo, hi float64, n int) []float64 {
	if !(hi > lo) {
		return nil
	}
	raw := (hi - lo) / float64(n)
	step := 0.0
	for _, s := range []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400} {
		if s >= raw {
			step = s
			break
		}
	}
	if step == 0 {
		step = math.Ceil(raw/86400) * 86400
	}
	var ts []float64
	for t := math.Ceil(lo/step-1e-9) * step; t <= hi*(1+1e-9) && len(ts) < 50; t += step {
		ts = append(ts, round(t, step))
	}
	return ts
}

// round takes what adding up steps left behind: 0, not -1e-15.
func round(t, step float64) float64 { return math.Round(t/step)*step + 0 }
