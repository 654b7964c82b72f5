package summary

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/section"
)

// TextOptions say for what terminal a text is.
type TextOptions struct {
	UTF8  bool   // the locale is UTF-8; else the text is ASCII
	Width int    // columns; at least 80, more widens the column of stages up to 40
	URL   string // the build's page, as the last line; it alone may be longer than Width
	// Machine is what the machine has: bars are drawn against it where the build
	// had no limit of its own. Absent: they are left out there.
	Machine cimeter.Limits
	Usual   *Usual // what the job's last builds cost; nil is not known
	// Sections are rows below those of the stages that they divide; nil: there are none.
	Sections *section.Parts
	// Machines are the records of the machines that the build worked on, its own among
	// them; of fewer than two there are no rows.
	Machines []*cimeter.Record
}

// maxRows bounds the rows of stages, and maxNotes those after the totals: what
// is longer is not read in a job's log.
const (
	maxRows     = 30
	maxNotes    = 5
	nameColumns = 17 // of the first column in a receipt of 80
)

// Text writes the receipt: a line, a row for each stage, the totals, and what
// there is to say. A build of one stage gets bars instead of the one row.
func Text(w io.Writer, r *cimeter.Record, o TextOptions) error {
	t := text{r: r, o: o, mark: cut, name: nameColumns}
	if o.UTF8 {
		t.mark = "…"
	}
	if o.Width > Columns {
		t.name = min(40, t.name+o.Width-Columns)
	}
	t.line("%s", first(r))
	if len(r.Stages) > 1 || o.Sections != nil || len(o.Machines) > 1 {
		t.receipt()
	} else {
		t.bars()
	}
	if o.URL != "" {
		t.b.WriteString(t.clean(o.URL) + "\n")
	}
	_, err := io.WriteString(w, t.b.String())
	return err
}

type text struct {
	b    strings.Builder
	r    *cimeter.Record
	o    TextOptions
	mark string // of what was cut
	name int    // columns of the first column
}

func (t *text) clean(s string) string {
	if t.o.UTF8 {
		return display.Clean(s)
	}
	return display.ASCII(s)
}

// line writes one line, cut to the width whatever is in it.
func (t *text) line(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	t.b.WriteString(display.Fit(t.clean(strings.TrimRight(line, " ")), Columns+t.name-nameColumns, t.mark) + "\n")
}

// receipt is the table, layout A of the design of summaries.
func (t *text) receipt() {
	r := t.r
	var c columns
	c.disk, c.net, c.memory = mib, mib, mib
	for _, u := range append(stageUsages(r), &r.Usage) {
		c.fit(u)
	}
	if len(t.o.Machines) > 1 {
		all := Together(t.o.Machines)
		c.fit(&all)
	}
	t.line("%s   time s    cpu s    avg   max    sd%9s%9s%8s", display.Pad("stage", t.name, t.mark),
		"mem "+unitName(c.memory), "disk "+unitName(c.disk), "net "+unitName(c.net))
	rows := 0
	for _, alongside := range []bool{false, true} {
		for i := range r.Stages {
			if s := &r.Stages[i]; s.Alongside == alongside {
				if rows++; rows <= maxRows {
					t.row(stageName(s), wall(&s.Usage, s.StartedAt, s.EndedAt), &s.Usage, c)
					rows += t.sections(s, maxRows-rows, c)
				}
			}
		}
	}
	if rows > maxRows {
		t.line("... and %d more %s", rows-maxRows, map[bool]string{true: "stages", false: "rows"}[t.o.Sections == nil])
	}
	t.row("total", wall(&r.Usage, r.StartedAt, r.EndedAt), &r.Usage, c)
	t.machines(c)
	if s := ioLine(&r.Usage); s != "" {
		t.line("disk   %s", s)
	}
	if s := netLine(&r.Usage); s != "" {
		t.line("net    %s", s)
	}
	if s := strings.Join(circumstances(r), "   "); s != "" {
		t.line("%s", s)
	}
	for _, n := range t.notes() {
		t.line("%-6s %s", n.label, n.text)
	}
	if p := t.o.Sections; p != nil {
		t.line("> is a section of the log: estimates, borders within %s", seconds(p.ErrorSeconds))
	}
}

// sections writes a row for each part of a stage, at most so many, and returns how
// many there are.
func (t *text) sections(s *cimeter.Stage, most int, c columns) (rows int) {
	if t.o.Sections == nil {
		return 0
	}
	for i := range t.o.Sections.Parts {
		p := &t.o.Sections.Parts[i]
		if p.Stage != s.Name || p.Attempt != s.Attempt {
			continue
		}
		if rows++; rows > most {
			continue
		}
		u := p.Usage
		if p.MemoryMaxBytes.Known {
			u.MemoryBytes = &cimeter.MemoryStat{Peak: p.MemoryMaxBytes}
		}
		if p.Name == "" {
			p = &section.Part{Name: "(the rest)", Depth: p.Depth, StartedAt: p.StartedAt, EndedAt: p.EndedAt}
		}
		t.row(strings.Repeat(" ", min(p.Depth, 4))+"> "+p.Name, wall(&u, p.StartedAt, p.EndedAt), &u, c)
	}
	return rows
}

func (t *text) row(name string, time opt, u *cimeter.Usage, c columns) {
	var avg, largest, sd opt
	if s := u.CPUCores; s != nil {
		avg, largest, sd = some(s.Avg), some(s.Max), s.StdDev
	}
	t.line("%s%s%s%s%s%s%s%s%s", display.Pad(t.clean(name), t.name, t.mark),
		column(time, 9, 1), column(u.CPUSeconds.Total, 9, 1),
		column(avg, 7, 2), column(largest, 6, 2), column(sd, 6, 2),
		inUnit(peak(u), c.memory, 9, 0), inUnit(disk(u), c.disk, 9, 1), inUnit(net(u), c.net, 8, 1))
}

// columns are the units of the columns in bytes: one for all rows.
type columns struct{ memory, disk, net float64 }

// fit takes a larger unit where a value would not fit its column.
func (c *columns) fit(u *cimeter.Usage) {
	for _, f := range []struct {
		unit *float64
		v    opt
	}{{&c.memory, peak(u)}, {&c.disk, disk(u)}, {&c.net, net(u)}} {
		for *f.unit < 1024*gib && f.v.Value/(*f.unit) >= 99999 {
			*f.unit *= 1024
		}
	}
}

func unitName(u float64) string {
	switch u {
	case mib:
		return "MiB"
	case gib:
		return "GiB"
	}
	return "TiB"
}

func inUnit(v opt, u float64, width, decimals int) string {
	switch {
	case v.Value == 0:
		decimals = 0 // a plain 0 tells nothing from little
	case u > mib, v.Value < u:
		decimals = max(1, decimals) // nor is what was little nothing
	}
	v.Value /= u
	return column(v, width, decimals)
}

// stageName is the name in a table: what ran alongside has a plus, a retried
// stage its attempt.
func stageName(s *cimeter.Stage) string {
	name := s.Name
	if s.Alongside {
		name = "+ " + strings.TrimPrefix(name, "service:")
	}
	if s.Attempt > 1 {
		name += fmt.Sprintf(" (%d)", s.Attempt)
	}
	return name
}

func stageUsages(r *cimeter.Record) []*cimeter.Usage {
	us := make([]*cimeter.Usage, 0, len(r.Stages)+1)
	for i := range r.Stages {
		us = append(us, &r.Stages[i].Usage)
	}
	return us
}

// bars is layout B: for a build of one stage, at a glance against the limits.
func (t *text) bars() {
	r := t.r
	if s := identity(r); s != "" {
		t.line("  %s", s)
	}
	cores := r.Usage.CPUCores
	limit, limited := cpuLimit(r)
	if !limited {
		limit = t.o.Machine.CPUCores.Value
	}
	switch {
	case cores == nil:
		t.line("  CPU     %s", dash)
	case limit > 0:
		t.line("  CPU     %s %3.0f %% of %s, max %.2f", t.bar(cores.Avg/limit), 100*cores.Avg/limit, inCores(limit), cores.Max)
	default:
		t.line("  CPU     avg %.2f, max %.2f cores", cores.Avg, cores.Max)
	}
	p := peak(&r.Usage)
	limit, limited = memoryLimit(r)
	machine := known(t.o.Machine.MemoryBytes).Value
	switch {
	case !p.Known && r.Usage.MemoryAnonBytes != nil:
		t.line("  memory  %s anonymous, the largest sample", size(r.Usage.MemoryAnonBytes.Max))
	case !p.Known:
		t.line("  memory  %s", dash)
	case limited && limit > 0:
		t.line("  memory  %s %3.0f %% of %s (peak)", t.bar(p.Value/limit), 100*p.Value/limit, size(limit))
	case machine > 0:
		t.line("  memory  %s peak %s of %s", t.bar(p.Value/machine), size(p.Value), size(machine))
	default:
		t.line("  memory  %s (peak)", size(p.Value))
	}
	t.labelled("disk", ioParts(&r.Usage))
	if s := netLine(&r.Usage); s != "" {
		t.labelled("net", strings.Split(s, "; "))
	}
	if s := circumstances(r); len(s) > 0 {
		for i := range s {
			s[i] = strings.Join(strings.Fields(s[i]), " ")
		}
		t.line("  %s", strings.Join(s, ", "))
	}
	for _, n := range t.notes() {
		t.line("  * %s", n.text)
	}
}

// notes are the lines after the totals.
func (t *text) notes() []note {
	ns := notes(t.r)
	if s := t.o.Usual.Line(); s != "" {
		ns = append([]note{{"usual", s}}, ns...)
	}
	return ns
}

// labelled writes a part a line, the first of them labelled.
func (t *text) labelled(label string, parts []string) {
	if len(parts) == 0 || parts[0] == "" {
		parts = []string{dash}
	}
	for _, p := range parts {
		t.line("  %-7s %s", label, p)
		label = ""
	}
}

// bar draws a share of 0 to 1 in 40 columns and its brackets, in eighths of a
// column where there are characters for them.
func (t *text) bar(share float64) string {
	eighths := int(math.Round(min(1, max(0, share)) * 40 * 8))
	full, last := strings.Repeat("#", eighths/8), ""
	if t.o.UTF8 {
		full, last = strings.Repeat("█", eighths/8), [...]string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}[eighths%8]
	}
	return "[" + full + last + strings.Repeat(" ", 40-eighths/8-utf8.RuneCountInString(last)) + "]"
}

// inCores is: 1 core, 1.5 cores.
func inCores(n float64) string {
	if n == 1 {
		return "1 core"
	}
	return short(n) + " cores"
}

// identity is: build-and-test #4242 on ci-7 (docker-1), 4 m 13 s, queued 3.1 s.
func identity(r *cimeter.Record) string {
	var words []string
	if r.Name != "" {
		words = append(words, name(r.Name, 24))
	}
	if r.Number != "" {
		words = append(words, "#"+name(r.Number, 12))
	}
	if r.Machine != "" {
		words = append(words, "on", name(r.Machine, 16))
	}
	if r.Runner.Name != "" {
		words = append(words, "("+name(r.Runner.Name, 12)+")")
	}
	var parts []string
	if len(words) > 0 {
		parts = append(parts, strings.Join(words, " "))
	}
	if w := wall(&r.Usage, r.StartedAt, r.EndedAt); w.Known {
		parts = append(parts, seconds(w.Value))
	}
	if len(r.Stages) == 1 && r.Stages[0].ExitCode.Value != 0 {
		parts = append(parts, fmt.Sprintf("exit %d", r.Stages[0].ExitCode.Value))
	}
	return strings.Join(parts, ", ")
}
