package web

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// lineGroup is charts of one time. The table under them has the same in at most 60
// rows.
type lineGroup struct {
	ID, Class string // ID is the table's
	Charts    []lineChart
	Heads     []heading
	Rows      [][]string
}

// groupOf is charts as a group, nil of none; their rows are of the same times.
func groupOf(id, class string, charts []lineChart) *lineGroup {
	if len(charts) == 0 {
		return nil
	}
	g := &lineGroup{ID: id, Class: class, Charts: charts, Heads: []heading{{Label: "at (UTC)"}}, Rows: make([][]string, len(charts[0].Rows))}
	for i := range charts {
		c := &charts[i]
		c.Table = id
		for _, l := range c.Lines {
			g.Heads = append(g.Heads, heading{Label: c.Title + ": " + l.Label, Unit: c.Unit})
		}
		for j := range g.Rows {
			g.Rows[j] = append(g.Rows[j], c.Rows[j][min(i, 1):]...)
		}
	}
	return g
}

// lineChart is a figure of lines over time, drawn by the server; a script draws it again,
// with a cursor and zoom.
type lineChart struct {
	ID, Title, Unit string
	Class           string
	Area            string // path
	Fill            string // what Area is: "area" under the first line, or the "band" between the first two
	Lines           []chartLine
	Grid            string // path at the ticks
	Ticks, XTicks   []tick
	Guides          []guide
	Points          string     // what the lines are drawn from, see points
	Rows            [][]string // a time, then a value of each line, in their order
	Table           string     // its group's
}

type chartLine struct{ Label, Class, Path, Now string }

// guide is a line at one value, which Text begins with.
type guide struct{ Y, Text string }

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
		c.Grid += "M0 " + coord(plotHeight*(1-at*size/top)) + "H1000"
		c.Ticks = append(c.Ticks, tick{pct(1 - at*size/top), short(at)})
	}
}

// points writes lines for the script: the span in seconds since 1970, the time of each
// value in seconds since its start, then the values of each line in units of a size, "-"
// where nothing is known. Plain numbers are the smallest that a page can carry.
func points(from, to time.Time, xs []float64, size float64, values [][]float64) string {
	var b strings.Builder
	b.WriteString(strconv.FormatInt(from.Unix(), 10) + " " + strconv.FormatInt(to.Unix(), 10))
	length := to.Sub(from).Seconds()
	for i, x := range xs {
		b.WriteString(separator(i) + strconv.FormatFloat(math.Round(x/plotWidth*length), 'f', -1, 64))
	}
	for _, vs := range values {
		for i, v := range vs {
			b.WriteString(separator(i))
			if math.IsNaN(v) {
				b.WriteByte('-')
			} else {
				b.WriteString(strconv.FormatFloat(v/size, 'g', 4, 64))
			}
		}
	}
	return b.String()
}

func separator(i int) string {
	if i == 0 {
		return "|"
	}
	return " "
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
