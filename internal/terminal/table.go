package terminal

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

const (
	dash = "-" // what is not known
	mib  = 1 << 20
	gib  = 1 << 30

	nearLimit = 0.9 // of the memory limit: what jobs of the same kind exceed by chance
)

// column is one of the table. Exactly one of text and value is set.
type column struct {
	title    string
	letter   int // index in title of the letter that sorts by it
	width    int
	text     func(*Running) string
	value    func(*Running) opt
	decimals int
	unit     float64
}

// columns are those of 80 columns of characters, then what wider terminals
// add, in this order.
func columns() []column {
	amount := func(title string, letter, width, decimals int, unit float64, f func(*Running) opt) column {
		return column{title: title, letter: letter, width: width, decimals: decimals, unit: unit, value: f}
	}
	return []column{
		{title: "JOB", letter: 2, width: 14, text: func(r *Running) string { return cmp.Or(r.Name, r.Number) }},
		{title: "PROJECT", letter: 0, width: 14, text: func(r *Running) string { return r.Project }},
		{title: "STAGE", letter: 0, width: 14, text: func(r *Running) string {
			if r.Away {
				return "(away)"
			}
			return r.Stage
		}},
		{title: "MACHINE", letter: 3, width: 8, text: func(r *Running) string { return r.Machine }},
		{title: "TIME", letter: 0, width: 9, value: func(r *Running) opt { return cimeter.Some(r.Elapsed.Seconds()) }},
		amount("CORES", 0, 6, 2, 1, func(r *Running) opt { return r.Cores }),
		amount("MEM MIB", 0, 8, 0, mib, func(r *Running) opt { return r.MemoryBytes }),
		amount("CPU S", 2, 9, 1, 1, func(r *Running) opt { return r.CPUSeconds }),
		amount("DISK MIB/S", 0, 11, 1, mib, func(r *Running) opt { return r.DiskRate }),
		amount("NET MIB/S", 0, 10, 1, mib, func(r *Running) opt { return r.NetRate }),
		amount("OF CORES", 1, 9, 2, 1, func(r *Running) opt { return r.CoresLimit }),
		amount("OF MIB", 4, 7, 0, mib, func(r *Running) opt { return r.MemoryLimit }),
		{title: "RUNNER", letter: 0, width: 16, text: func(r *Running) string { return r.Runner }},
		{title: "BUILD", letter: 3, width: 48, text: func(r *Running) string { return r.Key }},
	}
}

// Places of columns that are spoken of.
const (
	timeColumn   = 4
	coresColumn  = 5
	memoryColumn = 6
	least        = 7 // columns that are always there
)

// fitting are the columns that a width has room for.
func fitting(width int) []column {
	all := columns()
	used := 0
	for i, c := range all {
		if used += c.width; i >= least && used > width {
			return all[:i]
		}
		used++
	}
	return all
}

// elapsed writes a duration: 5 s, 4 m 12 s, 2 h 05 m, 3 d 4 h.
func elapsed(seconds float64) string {
	s := int64(math.Max(0, seconds))
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d m %02d s", s/60, s%60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %02d m", s/3600, s/60%60)
	}
	return fmt.Sprintf("%d d %d h", s/86400, s/3600%24)
}

// near reports whether a build is about to meet its memory limit.
func (r *Running) near() bool {
	return r.MemoryLimit.Value > 0 && r.MemoryBytes.Value >= nearLimit*r.MemoryLimit.Value
}

// cell writes a column's content in exactly its width.
func (c *column) cell(place int, r *Running, clean func(string) string, mark string) string {
	if c.text != nil {
		return display.Pad(cmp.Or(clean(c.text(r)), dash), c.width, mark)
	}
	v := c.value(r)
	s := dash
	switch {
	case v.Known && place == timeColumn:
		s = elapsed(v.Value)
	case v.Known:
		s = strconv.FormatFloat(v.Value/c.unit, 'f', c.decimals, 64)
		if place == memoryColumn && r.near() {
			s = "!" + s
		}
	}
	return fmt.Sprintf("%*s", c.width, display.Fit(s, c.width, mark))
}

// order says how the table is sorted.
type order struct {
	column    int
	ascending bool
}

// sort sorts rows; what is not known comes last whichever way it goes.
func (o order) sort(rows []Running) {
	c := columns()[o.column]
	slices.SortStableFunc(rows, func(a, b Running) int {
		var d int
		if c.text != nil {
			x, y := c.text(&a), c.text(&b)
			if (x == "") != (y == "") {
				return map[bool]int{true: 1, false: -1}[x == ""]
			}
			d = cmp.Compare(x, y)
		} else {
			x, y := c.value(&a), c.value(&b)
			if x.Known != y.Known {
				return map[bool]int{true: -1, false: 1}[x.Known]
			}
			d = cmp.Compare(x.Value, y.Value)
		}
		if !o.ascending {
			d = -d
		}
		return cmp.Or(d, cmp.Compare(a.Key, b.Key))
	})
}

// first is the direction in which a column is sorted when it is chosen: names
// from a to z, amounts from the largest.
func first(place int) order { return order{place, columns()[place].text != nil} }

// names are those in which a filter's words are sought.
func (r *Running) names() []string {
	return []string{r.Key, r.Project, r.Name, r.Number, r.Stage, r.Machine, r.Runner}
}

// script is how characters are written: the mark of what was cut, of the sorted
// column, and what makes a name safe.
type script struct {
	cut, up, down string
	clean         func(string) string
}

func scriptOf(utf8 bool) script {
	if utf8 {
		return script{"…", "▲", "▼", display.Clean}
	}
	return script{"~", "^", "v", display.ASCII}
}

// heading is the title of a column in its width, marked when the table is
// sorted by it.
func (s script) heading(c *column, place int, by order) string {
	title := c.title
	if place == by.column {
		title += map[bool]string{true: s.up, false: s.down}[by.ascending]
	}
	if c.text != nil {
		return display.Pad(title, c.width, s.cut)
	}
	return strings.Repeat(" ", max(0, c.width-display.Width(title))) + title
}

// Table is the table as plain text for a width in columns, the busiest build
// first. It has neither colour nor any other escape.
func Table(rows []Running, width int, utf8 bool) string {
	s, by := scriptOf(utf8), first(coresColumn)
	rows = slices.Clone(rows)
	by.sort(rows)
	cs := fitting(width)
	var b strings.Builder
	line := func(cell func(place int, c *column) string) {
		var l strings.Builder
		for i := range cs {
			if i > 0 {
				l.WriteByte(' ')
			}
			l.WriteString(cell(i, &cs[i]))
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	line(func(i int, c *column) string { return s.heading(c, i, order{column: -1}) })
	for i := range rows {
		line(func(place int, c *column) string { return c.cell(place, &rows[i], s.clean, s.cut) })
	}
	return b.String()
}

// age writes how old something is.
func age(d time.Duration) string { return elapsed(d.Seconds()) }
