package summary

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// Side is one of the two that are compared.
type Side struct {
	Record *cimeter.Record
	Median int // it is the median of so many builds; 0: it is one build
}

// title names a side: build-and-test #4242, or median of 20 builds of it.
func (s Side) title() string {
	r := s.Record
	job := name(r.Name, 32)
	if r.Number != "" {
		job += " #" + name(r.Number, 16)
	}
	if job = strings.TrimSpace(job); job == "" {
		job = dash
	}
	if s.Median > 0 {
		return fmt.Sprintf("median of %d builds of %s", s.Median, job)
	}
	return job
}

// Sentence says in one what B used more or less of than A: B used 41.2 s more
// CPU (+12 %), 38.1 s of it in step_script; memory the same; 9.0 s longer.
func Sentence(a, b Side) string {
	stages, total := differ(a.Record, b.Record, nil)
	more := func(d float64) string { return map[bool]string{true: "more", false: "less"}[d > 0] }
	var parts []string
	if d, ok := total.by.Get(); ok {
		s := "B used the same CPU"
		if math.Abs(d) >= 0.005*total.A.CPUSeconds.Total.Value && d != 0 {
			s = fmt.Sprintf("B used %s %s CPU", cpuTime(math.Abs(d)), more(d))
			if p := relative(total.A.CPUSeconds.Total, total.B.CPUSeconds.Total); p != "" {
				s += " (" + p + ")"
			}
			if len(stages) > 1 && stages[0].by.Value*d > 0 {
				s += fmt.Sprintf(", %s of it in %s", cpuTime(math.Abs(stages[0].by.Value)), name(stages[0].Label, 24))
			}
		}
		parts = append(parts, s)
	}
	if x, y := peak(&a.Record.Usage), peak(&b.Record.Usage); x.Known && y.Known {
		if d := y.Value - x.Value; math.Abs(d) < 0.02*x.Value || d == 0 {
			parts = append(parts, "memory the same")
		} else {
			parts = append(parts, size(math.Abs(d))+" "+more(d)+" memory")
		}
	}
	if d := b.Record.Usage.WallSeconds - a.Record.Usage.WallSeconds; math.Abs(d) >= 1 {
		parts = append(parts, seconds(math.Abs(d))+" "+map[bool]string{true: "longer", false: "shorter"}[d > 0])
	}
	if x, y := queued(a.Record), queued(b.Record); x.Known && y.Known && math.Abs(y.Value-x.Value) >= 1 {
		parts = append(parts, seconds(math.Abs(y.Value-x.Value))+" "+more(y.Value-x.Value)+" queue")
	}
	if len(parts) == 0 {
		return "There is nothing that both know."
	}
	return strings.Join(parts, "; ") + "."
}

// cpuTime writes CPU seconds: 392 s, 4.21 ms.
func cpuTime(v float64) string {
	if v > 0 && v < 0.0995 {
		return sig3(v*1000) + " ms"
	}
	return sig3(v) + " s"
}

// relative is how far b is from a: +12 %, -3 %, x21.4; "" when that says nothing.
func relative(a, b opt) string {
	if !a.Known || !b.Known || a.Value <= 0 {
		return ""
	}
	switch d := b.Value/a.Value - 1; {
	case math.Abs(d) < 0.005:
		return "0 %"
	case d > 9.995:
		return "x" + sig3(b.Value/a.Value)
	default:
		return fmt.Sprintf("%+.0f %%", 100*d)
	}
}

// CompareText writes two builds side by side: who they are, the sentence, a row
// a stage with the largest difference of CPU time first, the totals, and what
// was different around them. before are the job's builds before B: differences
// within their spread are marked with a tilde.
func CompareText(w io.Writer, a, b Side, before []*cimeter.Record, o TextOptions) error {
	t := text{r: b.Record, o: o, mark: cut, name: 16}
	if o.UTF8 {
		t.mark = "…"
	}
	wide := max(0, o.Width-Columns)
	t.name = min(40, t.name+wide)
	line := func(format string, args ...any) {
		s := strings.TrimRight(fmt.Sprintf(format, args...), " ")
		t.b.WriteString(display.Fit(t.clean(s), Columns+t.name-16, t.mark) + "\n")
	}
	for _, s := range []struct {
		letter string
		Side
	}{{"A", a}, {"B", b}} {
		line("%s  %s", s.letter, strings.TrimRight(s.title()+"  "+s.Record.Key, " "))
	}
	if a.Record.Project != b.Record.Project || a.Record.Name != b.Record.Name {
		line("These are different jobs.")
	}
	for _, part := range wrap(Sentence(a, b), Columns) {
		line("%s", part)
	}
	stages, total := differ(a.Record, b.Record, before)
	c := columns{memory: mib, disk: mib, net: mib}
	for _, d := range append(stages, total) {
		for _, u := range []*cimeter.Usage{d.A, d.B} {
			if u != nil {
				c.fit(u)
			}
		}
	}
	line("")
	line("%s%9s%25s%8s%15s", display.Pad("", t.name, ""), "cpu s", "", "time s", "mem "+unitName(c.memory))
	line("%s%9s%9s%8s%8s%8s%8s%7s%7s", display.Pad("stage", t.name, ""), "A", "B", "by", "", "A", "B", "A", "B")
	small := 0
	row := func(d difference) {
		by, part := dash, ""
		if v, ok := d.by.Get(); ok {
			by = signed(v)
			part = relative(cpuSeconds(d.A), cpuSeconds(d.B))
			if by == "0" {
				part = ""
			} else if !d.means && part != "" {
				part = "~" + part
				small++
			}
		}
		switch {
		case d.A == nil:
			part = "only B"
		case d.B == nil:
			part = "only A"
		}
		line("%s%s%s%8s%8s%s%s%s%s", display.Pad(t.clean(d.Label), t.name, t.mark), column(cpuSeconds(d.A), 9, 1), column(cpuSeconds(d.B), 9, 1), by, part,
			column(wallOf(d.A), 8, 1), column(wallOf(d.B), 8, 1), inUnit(peakOf(d.A), c.memory, 7, 0), inUnit(peakOf(d.B), c.memory, 7, 0))
	}
	for i, d := range stages {
		if i == maxRows {
			line("... and %d more stages", len(stages)-maxRows)
			break
		}
		row(d)
	}
	row(total)
	if small > 0 && len(before) > 0 {
		line("~ is within the spread of the job's last %d builds", len(before))
	} else if small > 0 {
		line("~ is less than a tenth")
	}
	for _, d := range Differing(a.Record, b.Record) {
		line("%-12s  %s  ->  %s", d.Label, name(d.A, 28), name(d.B, 28))
	}
	_, err := io.WriteString(w, t.b.String())
	return err
}

// signed writes a difference with its sign.
func signed(v float64) string {
	s := strconv.FormatFloat(math.Abs(v), 'f', 1, 64)
	switch {
	case s == "0.0":
		return "0"
	case v < 0:
		return "-" + s
	}
	return "+" + s
}

func wallOf(u *cimeter.Usage) opt {
	if u == nil {
		return opt{}
	}
	return some(u.WallSeconds)
}

func peakOf(u *cimeter.Usage) opt {
	if u == nil {
		return opt{}
	}
	return peak(u)
}

// wrap breaks a sentence at spaces so that no line is longer than width.
func wrap(s string, width int) []string {
	lines := []string{""}
	for w := range strings.SplitSeq(s, " ") {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = w
		case display.Width(*last)+1+display.Width(w) > width:
			lines = append(lines, w)
		default:
			*last += " " + w
		}
	}
	return lines
}

// Differs is something around two builds that was not the same.
type Differs struct{ Label, A, B string }

// Differing is what was different around two builds; what is not known is a
// dash.
func Differing(a, b *cimeter.Record) []Differs {
	cores := func(r *cimeter.Record) string {
		if v, ok := cpuLimit(r); ok {
			return inCores(v)
		}
		return "none"
	}
	bytes := func(r *cimeter.Record) string {
		if v, ok := memoryLimit(r); ok {
			return size(v)
		}
		return "none"
	}
	throttled := func(r *cimeter.Record) string {
		if v, ok := r.Usage.CPUThrottledSeconds.Get(); ok {
			return seconds(v)
		}
		return ""
	}
	coverage := func(r *cimeter.Record) string {
		if v, ok := r.Coverage.Get(); ok {
			return fmt.Sprintf("%.1f %%", 100*v)
		}
		return ""
	}
	image := func(r *cimeter.Record) string {
		switch {
		case r.ImagePulledAt.IsZero():
			return r.Image
		case r.Image == "":
			return "pulled for it"
		}
		return r.Image + ", pulled for it"
	}
	median := a.Key == "" || b.Key == "" // it is of many: none of them is told
	var all []Differs
	for _, d := range []Differs{
		{"result", a.Result, b.Result}, {"ref", a.Ref, b.Ref}, {"commit", fmt.Sprintf("%.12s", a.SHA), fmt.Sprintf("%.12s", b.SHA)}, {"event", a.Event, b.Event},
		{"machine", a.Machine, b.Machine}, {"runner", a.Runner.Name, b.Runner.Name},
		{"CPU limit", cores(a), cores(b)}, {"memory limit", bytes(a), bytes(b)},
		{"image", image(a), image(b)}, {"throttled", throttled(a), throttled(b)}, {"pressure", pressure(&a.Usage), pressure(&b.Usage)}, {"coverage", coverage(a), coverage(b)},
	} {
		if d.A == d.B || median && (d.A == "" || d.B == "") {
			continue
		}
		for _, s := range []*string{&d.A, &d.B} {
			if *s == "" {
				*s = dash
			}
		}
		all = append(all, d)
	}
	return all
}

// pressure is the share of its time in which some task of a build waited for each
// resource, as far as it is known.
func pressure(u *cimeter.Usage) string {
	p := u.PressureSeconds
	if p == nil || u.WallSeconds <= 0 {
		return ""
	}
	var all []string
	for _, w := range []struct {
		of   string
		some opt
	}{{"CPU", p.CPUSome}, {"memory", p.MemorySome}, {"disk", p.IOSome}} {
		if v, ok := w.some.Get(); ok {
			all = append(all, w.of+" "+percent(v/u.WallSeconds))
		}
	}
	return strings.Join(all, ", ")
}

// CompareMarkdown writes the comparison as a table for a note. See [Markdown]
// for what is safe there.
func CompareMarkdown(w io.Writer, a, b Side, before []*cimeter.Record) error {
	stages, total := differ(a.Record, b.Record, before)
	c := columns{memory: mib, disk: mib, net: mib}
	for _, d := range append(stages, total) {
		for _, u := range []*cimeter.Usage{d.A, d.B} {
			if u != nil {
				c.fit(u)
			}
		}
	}
	var t strings.Builder
	fmt.Fprintf(&t, "**cimeter** · A %s · B %s\n\n", span(a.title()), span(b.title()))
	fmt.Fprintf(&t, "| stage | CPU A s | CPU B s | | time A s | time B s | memory A %s | memory B %s |\n|---|--:|--:|--:|--:|--:|--:|--:|\n", unitName(c.memory), unitName(c.memory))
	row := func(title string, d difference) {
		part := relative(cpuSeconds(d.A), cpuSeconds(d.B))
		switch {
		case d.A == nil:
			part = "only in B"
		case d.B == nil:
			part = "only in A"
		case d.means && d.by.Value > 0:
			part = "**▲ " + strings.TrimPrefix(part, "+") + "**"
		case d.means:
			part = "**▼ " + strings.TrimPrefix(part, "-") + "**"
		}
		fmt.Fprintf(&t, "| %s |", title)
		for _, s := range []string{
			column(cpuSeconds(d.A), 12, 1), column(cpuSeconds(d.B), 12, 1), part, column(wallOf(d.A), 12, 1), column(wallOf(d.B), 12, 1),
			inUnit(peakOf(d.A), c.memory, 12, 0), inUnit(peakOf(d.B), c.memory, 12, 0),
		} {
			t.WriteString(" " + strings.TrimLeft(s, " ") + " |")
		}
		t.WriteByte('\n')
	}
	for i, d := range stages {
		if i == maxRows {
			fmt.Fprintf(&t, "| and %d more | | | | | | | |\n", len(stages)-maxRows)
			break
		}
		row(span(d.Label), d)
	}
	row("**total**", total)
	if around := Differing(a.Record, b.Record); len(around) > 0 {
		t.WriteString("\n| | A | B |\n|---|---|---|\n")
		for _, d := range around {
			fmt.Fprintf(&t, "| %s | %s | %s |\n", d.Label, span(d.A), span(d.B))
		}
	}
	_, err := io.WriteString(w, t.String())
	return err
}
