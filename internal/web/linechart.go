package web

import "math"

// lineChart is a figure of lines over time, drawn by the server. The table under it
// has the same in at most 60 rows; a script shows a row of it where the pointer is.
type lineChart struct {
	ID, Title, Unit string
	Class           string
	Area            string // path
	Lines           []chartLine
	Ticks, XTicks   []tick
	Rows            [][]string // a time, then a value of each line, in their order
	Heads           []string
}

type chartLine struct{ Label, Class, Path, Now string }

// draw makes the lines of values at xs, between 0 and top, and the ticks of the axis in
// units of a size.
func (c *lineChart) draw(xs []float64, top, size float64, lines []chartLine, values [][]float64) {
	for i, vs := range values {
		ys := make([]float64, len(vs))
		for j, v := range vs {
			ys[j] = plotHeight * (1 - v/top)
		}
		lines[i].Path = linePath(xs, ys)
	}
	c.Lines = lines
	for _, at := range ticks(0, top/size, 4) {
		c.Ticks = append(c.Ticks, tick{pct(1 - at*size/top), short(at)})
	}
}

// lastKnown is the last value that is known.
func lastKnown(vs []float64) float64 {
	for i := len(vs) - 1; i >= 0; i-- {
		if !math.IsNaN(vs[i]) {
			return vs[i]
		}
	}
	return math.NaN()
}
