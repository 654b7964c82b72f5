package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/section"
	"github.com/cimeter/cimeter/internal/summary"
)

// tableList is for people: one line a build, what is not known a dash. In a pipe or a
// file no key is cut; on a terminal no line is longer than that is wide.
type tableList struct {
	w       io.Writer
	width   int  // of the terminal in columns; 0: it is none
	utf8    bool // it shows characters beyond ASCII
	started bool
}

// tableColumn is one of the table.
type tableColumn struct {
	title    string
	width    int // negative: digits, on the right; 0: as long as it is
	terminal int // the same on a terminal
	from     int // columns that a terminal has at least to show it
}

// tableColumns are those of any width. What is left of a terminal is the last one's:
// 13 of 80 columns.
var tableColumns = [...]tableColumn{
	{"ENDED", 19, 16, 0}, {"RESULT", 8, 8, 0}, {"TIME S", -8, -8, 0}, {"CPU S", -9, -9, 0}, {"CORES", -6, -6, 87}, {"PEAK MIB", -9, -8, 0},
	{"PROJECT", 24, 20, 108}, {"NAME", 20, 12, 0}, {"BUILD", 0, 0, 0},
}

func (l *tableList) row(cells ...string) error {
	var b strings.Builder
	for i, c := range cells {
		column := &tableColumns[i]
		if l.width > 0 && l.width < column.from {
			continue
		}
		width, gap := column.width, "  "
		if l.width > 0 {
			width, gap = column.terminal, " "
		}
		if !l.utf8 && l.width > 0 {
			c = display.ASCII(c)
		}
		switch {
		case width == 0 && l.width > 0:
			b.WriteString(endOf(c, max(1, l.width-display.Width(b.String()))))
		case width == 0:
			b.WriteString(display.Clean(c))
		case width < 0:
			fmt.Fprintf(&b, "%*s%s", -width, c, gap)
		default:
			b.WriteString(display.Pad(c, width, "~") + gap)
		}
	}
	line := b.String()
	if l.width > 0 {
		line = display.Fit(line, l.width, "")
	}
	_, err := io.WriteString(l.w, line+"\n")
	return err
}

// endOf is a key, or so many of its last parts as fit: by these a build is found too.
func endOf(key string, width int) string {
	for rest, more := key, true; more; _, rest, more = strings.Cut(rest, "/") {
		if s := display.Clean(rest); display.Width(s) <= width {
			return s
		}
		key = rest
	}
	return display.Fit(key, width, "~")
}

func (l *tableList) header() error {
	if l.started {
		return nil
	}
	l.started = true
	titles := make([]string, len(tableColumns))
	for i, c := range tableColumns {
		titles[i] = c.title
	}
	return l.row(titles...)
}

func (l *tableList) write(r section.Divided) error {
	if err := l.header(); err != nil {
		return err
	}
	u, cores, peak := &r.Usage, "-", "-"
	if u.CPUCores != nil {
		cores = fmt.Sprintf("%.2f", u.CPUCores.Avg)
	}
	if u.MemoryBytes != nil {
		if p, ok := u.MemoryBytes.Peak.Get(); ok {
			peak = fmt.Sprintf("%.1f", float64(p)/(1<<20))
		}
	}
	cpu := "-"
	if s, ok := u.CPUSeconds.Total.Get(); ok {
		cpu = fmt.Sprintf("%.2f", s)
	}
	result, wall := named(r.Result), "-"
	if !r.Complete && r.Metered != cimeter.Some(false) {
		result += "?" // some of its life was not seen
	}
	if s, ok := summary.Wall(r.Record).Get(); ok {
		wall = fmt.Sprintf("%.1f", s)
	}
	return l.row(r.EndedAt.UTC().Format("2006-01-02 15:04:05")[:l.ended()], result, wall, cpu, cores, peak,
		named(r.Project), named(r.Name), r.Key)
}

// ended is how much of a time of the form 2006-01-02 15:04:05 is shown.
func (l *tableList) ended() int {
	if l.width > 0 {
		return tableColumns[0].terminal // without seconds
	}
	return tableColumns[0].width
}

func (l *tableList) close() error { return l.header() }
