package terminal

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/cimeter/cimeter/internal/display"
)

// What is written before the first frame and after the last (XTerm Control
// Sequences; ECMA-48): the alternate screen, without a cursor and without
// wrapping of lines.
const (
	Begin   = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	Restore = "\x1b[?7h\x1b[?25h\x1b[?1049l\x1b[0m"
)

// Renditions. Only red is a colour.
const (
	plain   = "\x1b[0m"
	bold    = "\x1b[1m"
	dim     = "\x1b[2m"
	reverse = "\x1b[7m"
	red     = "\x1b[31m"
	under   = "\x1b[4m"
	noUnder = "\x1b[24m"
)

// Frame is the whole screen for a size in columns and rows, to be written at
// once. It overwrites what is there, so that nothing flickers.
func (t *Top) Frame(width, height int, now time.Time) string {
	width, height = max(20, width), max(4, height)
	f := &frame{width: width, s: t.s}
	f.text(bold, t.header(now))
	switch {
	case t.help:
		f.help()
	case t.detail != "":
		t.drawDetail(f)
	default:
		t.drawTable(f, height)
	}
	return f.whole(height, t.footer())
}

const (
	helpFooter   = "any key goes back"
	detailFooter = "Esc or Enter goes back, q quits"
)

type frame struct {
	width int
	s     script
	lines []string
}

// whole is the screen: the lines, as many as there is room for, and a last one.
func (f *frame) whole(height int, footer string) string {
	for len(f.lines) < height-1 {
		f.lines = append(f.lines, "")
	}
	f.lines = f.lines[:height-1]
	f.text(dim, footer)
	return "\x1b[H" + strings.Join(f.lines, "\x1b[K\r\n") + "\x1b[K\x1b[J"
}

// text adds a line of one rendition, cut to the width.
func (f *frame) text(rendition, s string) {
	f.lines = append(f.lines, rendition+display.Fit(f.s.clean(s), f.width, f.s.cut)+plain)
}

// header says who was asked, what runs in all, and how fresh that is.
func (t *Top) header(now time.Time) string {
	if s := t.source.header("cimeter top", t.o.Source, now); s != "" {
		return s
	}
	s := "cimeter top  " + t.o.Source
	var cores, memory float64
	known := false
	for i := range t.rows {
		cores += t.rows[i].Cores.Value
		memory += t.rows[i].MemoryBytes.Value
		known = known || t.rows[i].Cores.Known
	}
	s += fmt.Sprintf("  %d running", len(t.rows))
	if known {
		s += fmt.Sprintf(", %.2f cores", cores)
	}
	if memory > 0 {
		s += fmt.Sprintf(", %.2f GiB", memory/gib)
	}
	if t.note != "" {
		s += "  " + t.note
	}
	if t.paused {
		s += fmt.Sprintf("  paused %s ago", age(now.Sub(t.shown)))
	}
	return s
}

func (t *Top) footer() string {
	switch {
	case t.help:
		return helpFooter
	case t.detail != "":
		return detailFooter
	case t.filter.footer() != "":
		return t.filter.footer()
	}
	return "? keys   / filter   < > sort   Enter detail   Space pause   q quit"
}

func (t *Top) drawTable(f *frame, height int) {
	cs := fitting(f.width)
	t.columns = len(cs)
	if t.by.column >= len(cs) { // the terminal became narrower
		t.by = first(coresColumn)
	}
	var b strings.Builder
	b.WriteString(reverse)
	for i := range cs {
		if i > 0 {
			b.WriteByte(' ')
		}
		h := t.s.heading(&cs[i], i, t.by)
		at := strings.Index(h, cs[i].title) + cs[i].letter
		b.WriteString(h[:at] + under + h[at:at+1] + noUnder + h[at+1:])
	}
	f.lines = append(f.lines, cutLine(b.String(), f.width)+plain)
	rows := t.visible()
	from, to, at := t.cursor.show(keysOf(rows), height-3)
	for i := from; i < to; i++ {
		f.lines = append(f.lines, t.row(cs, &rows[i], i == at, f.width))
	}
	switch {
	case len(rows) > 0 || t.shown.IsZero():
	case t.filter.words != "" && len(t.rows) > 0:
		f.text("", fmt.Sprintf("None of %d running builds matches; Esc clears the filter.", len(t.rows)))
	default:
		f.text("", "Nothing runs now. \"cimeter builds\" lists what has finished.")
	}
}

// row is a build; its memory stands out when it is near its limit.
func (t *Top) row(cs []column, r *Running, marked bool, width int) string {
	base := ""
	if r.Away {
		base = dim
	}
	if marked {
		base += reverse
	}
	var b strings.Builder
	b.WriteString(base)
	for i := range cs {
		if i > 0 {
			b.WriteByte(' ')
		}
		cell := cs[i].cell(i, r, t.s.clean, t.s.cut)
		if i == memoryColumn && r.near() {
			loud := bold
			if t.o.Color {
				loud += red
			}
			cell = loud + cell + plain + base
		}
		b.WriteString(cell)
	}
	return cutLine(b.String(), width) + plain
}

// cutLine cuts a line with renditions in it to a width.
func cutLine(s string, width int) string {
	used, inside := 0, false
	for i, r := range s {
		switch {
		case r == 0x1b:
			inside = true
		case inside:
			inside = r != 'm'
		default:
			if used += display.Width(string(r)); used > width {
				return s[:i]
			}
		}
	}
	return s
}

func (t *Top) drawDetail(f *frame) {
	rows := t.rows
	for i := range rows {
		if r := &rows[i]; r.Key == t.detail {
			f.facts(detail(r))
			return
		}
	}
	f.text("", "It runs no more. What it cost:")
	f.text("", "")
	f.text("", "  cimeter summary "+t.detail)
}

// facts writes a label and a value a line.
func (f *frame) facts(all [][2]string) {
	for _, l := range all {
		f.text("", fmt.Sprintf("  %-10s %s", l[0], cmp.Or(l[1], dash)))
	}
}

// detail is all that is known of a build, a label and a value each.
func detail(r *Running) [][2]string {
	number := func(v opt, format string, unit float64) string {
		if !v.Known {
			return dash
		}
		return fmt.Sprintf(format, v.Value/unit)
	}
	of := func(v opt, format string, unit float64) string {
		if !v.Known {
			return ", no limit known"
		}
		return " of " + fmt.Sprintf(format, v.Value/unit)
	}
	memory := number(r.MemoryBytes, "%.0f MiB", mib) + of(r.MemoryLimit, "%.0f MiB", mib)
	if r.near() {
		memory += ", near its limit"
	}
	lines := [][2]string{
		{"build", r.Key}, {"project", r.Project}, {"job", r.Name}, {"number", r.Number}, {"stage", r.Stage},
		{"machine", r.Machine}, {"runner", r.Runner}, {"page", r.URL},
		{"time", age(r.Elapsed)},
		{"CPU", number(r.CPUSeconds, "%.1f s so far", 1) + ", now " + number(r.Cores, "%.2f cores", 1) + of(r.CoresLimit, "%.2f cores", 1)},
		{"memory", memory},
		{"disk", number(r.DiskBytes, "%.1f MiB so far", mib) + ", now " + number(r.DiskRate, "%.1f MiB/s", mib)},
		{"network", number(r.NetBytes, "%.1f MiB so far", mib) + ", now " + number(r.NetRate, "%.1f MiB/s", mib)},
	}
	if r.Away {
		lines = append(lines, [2]string{"state", "its machine is not heard of; this was its last state"})
	}
	return lines
}

// help shows every key of top.
func (f *frame) help() {
	var titles []title
	for _, c := range columns() {
		titles = append(titles, title{c.title, c.letter})
	}
	f.keys([][2]string{
		{"< >, ← →", "sort by the column before, after"},
		{"a letter", "sort by the column with that letter underlined; again: reverse"},
	}, titles, least, [][2]string{
		{"↑ ↓, k j", "mark a build; PageUp, PageDown, Home g, End G too"},
		{"Enter", "all that is known of the marked build; again, or Esc: back"},
		{"/", "builds with these words in a name; Enter keeps, Esc clears"},
		{"Space", "pause, go on"},
		{"?", "this"},
		{"q, Ctrl-C", "quit"},
		{"", ""},
		{"", "!  memory is at 90 % of its limit or more    -  is not known"},
	})
}

// title is that of a column, with the place of the letter that sorts by it.
type title struct {
	text   string
	letter int
}

// keys lists keys and what they do, and between them the letters of columns: those that
// are always there in a line of their own.
func (f *frame) keys(before [][2]string, titles []title, always int, after [][2]string) {
	all := append([][2]string{{"", ""}}, before...)
	for _, some := range [][]title{titles[:always], titles[always:]} {
		line := ""
		for _, t := range some {
			one := strings.ToLower(t.text[t.letter:t.letter+1]) + " " + strings.ToLower(t.text)
			if line != "" && len(line)+len(one)+2 > keysWidth {
				all = append(all, [2]string{"", line + ","})
				line = ""
			}
			line += map[bool]string{true: ", ", false: ""}[line != ""] + one
		}
		all = append(all, [2]string{"", line})
	}
	for _, l := range append(all, after...) {
		if f.s.cut == "~" {
			l[0] = strings.NewReplacer("← →", "left right", "↑ ↓", "up down").Replace(l[0])
		}
		f.text("", "  "+display.Pad(l[0], 15, f.s.cut)+" "+l[1])
	}
}

// keysWidth is what 80 columns leave for what a key does, less a comma.
const keysWidth = 60
