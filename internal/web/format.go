package web

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// dash stands for what is not known.
const dash = "–"

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40
)

type opt = cimeter.Opt[float64]

func some(v float64) opt { return cimeter.Some(v) }

func number(o cimeter.Opt[uint64]) opt { return opt{Value: float64(o.Value), Known: o.Known} }

// nameColumns bounds a name on a page; the whole stands in its title.
const nameColumns = 64

// name makes a string of a build safe and short enough to show.
func name(s string) string { return display.Fit(s, nameColumns, "…") }

// title makes a string of a build safe for an attribute.
func title(s string) string { return display.Fit(s, 400, "…") }

// sig3 writes v with three significant digits: 0, 0.34, 5.80, 41.2, 392, 1,204.
func sig3(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case math.IsNaN(v) || a >= 1e15:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case a < 0.00095:
		return "<0.001"
	case a < 0.0995:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case a < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return thousands(v)
}

func thousands(v float64) string {
	s := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	if v < 0 {
		return "-" + s
	}
	return s
}

// short writes v without trailing zeros: 2, 1.5, 0.25.
func short(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

// unit is the unit in which bytes are shown, one for all values of a group.
func unit(largest float64) (name string, size float64) {
	switch {
	case largest >= 0.9995*tib:
		return "TiB", tib
	case largest >= 0.9995*gib:
		return "GiB", gib
	case largest >= 0.9995*mib:
		return "MiB", mib
	}
	return "KiB", kib
}

// amount writes an amount in its own unit: 3.58 GiB.
func amount(v float64) string {
	if v == 0 {
		return "0 MiB"
	}
	in, u := unit(math.Abs(v))
	return sig3(v/u) + " " + in
}

// of writes an amount against its limit in one unit: 3.10 of 4.00 GiB.
func of(v, limit float64) string {
	in, u := unit(limit)
	return sig3(v/u) + " of " + sig3(limit/u) + " " + in
}

// seconds writes a duration: 0.34 s, 5.8 s, 4 m 12 s, 2 h 05 m.
func seconds(v float64) string {
	switch {
	case v < 0 || math.IsNaN(v):
		return dash
	case v < 0.9995:
		return strconv.FormatFloat(v, 'f', 2, 64) + " s"
	case v < 59.95:
		return strconv.FormatFloat(v, 'f', 1, 64) + " s"
	case v < 3599.5:
		s := int64(math.Round(v))
		return fmt.Sprintf("%d m %02d s", s/60, s%60)
	case v < 48*3600:
		m := int64(math.Round(v / 60))
		return fmt.Sprintf("%d h %02d m", m/60, m%60)
	case v < 1e9:
		h := int64(math.Round(v / 3600))
		return fmt.Sprintf("%d d %d h", h/24, h%24)
	}
	return dash
}

// cpuTime writes CPU seconds: 392 s, above ten hours in hours.
func cpuTime(v float64) string {
	if v >= 36000 {
		return sig3(v/3600) + " h"
	}
	return sig3(v) + " s"
}

// percent writes a share of 0 to 1: 77 %.
func percent(share float64) string {
	if share > 0 && share < 0.0005 {
		return "<0.1 %"
	}
	if share > 0 && share < 0.0095 {
		return strconv.FormatFloat(100*share, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(100*share, 'f', 0, 64) + " %"
}

// ago writes the age of t: 4 m ago.
func ago(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return dash
	case d < 0:
		return "just now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d m ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d d ago", int(d.Hours()/24))
}

// stamp is a time for a <time> element: the page shows UTC, the script local.
type stamp struct{ Machine, Text, Full string }

func stampOf(now, t time.Time) stamp {
	if t.IsZero() {
		return stamp{Text: dash, Full: "not known"}
	}
	t = t.UTC()
	s := stamp{Machine: t.Format(time.RFC3339), Full: t.Format("2006-01-02 15:04:05 UTC")}
	switch {
	case now.Sub(t) < 20*time.Hour && t.Day() == now.UTC().Day():
		s.Text = t.Format("15:04:05")
	case t.Year() == now.UTC().Year():
		s.Text = t.Format("Jan 2 15:04")
	default:
		s.Text = t.Format("2006-01-02")
	}
	return s
}

// column is the one unit and precision of a table's column.
type column struct {
	Unit     string
	size     float64
	decimals int
}

func decimalsFor(largest float64) int {
	switch {
	case largest < 10:
		return 2
	case largest < 1000:
		return 1
	}
	return 0
}

// bytesColumn is the column of amounts of which the largest is given.
func bytesColumn(largest float64) column {
	in, u := unit(largest)
	if largest == 0 {
		in, u = "MiB", mib
	}
	return column{in, u, decimalsFor(largest / u)}
}

// timeColumn is the column of durations.
func timeColumn(largest float64) column {
	switch {
	case largest >= 100*3600:
		return column{"h", 3600, decimalsFor(largest / 3600)}
	case largest >= 10000:
		return column{"min", 60, decimalsFor(largest / 60)}
	}
	return column{"s", 1, decimalsFor(largest)}
}

// cell writes v in the column.
func (c column) cell(v opt) string {
	switch {
	case !v.Known:
		return dash
	case v.Value == 0:
		return "0"
	}
	x := v.Value / c.size
	s := strconv.FormatFloat(x, 'f', c.decimals, 64)
	if x > 0 && strings.Trim(s, "0.") == "" {
		return "<" + s[:len(s)-1] + "1"
	}
	if c.decimals == 0 {
		return thousands(x)
	}
	return s
}

// largest of what is known.
func largest(vs ...opt) float64 {
	m := 0.0
	for _, v := range vs {
		if v.Known && v.Value > m {
			m = v.Value
		}
	}
	return m
}
