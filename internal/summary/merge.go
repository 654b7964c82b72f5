package summary

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// NoteMarker stands in each note, for its author to find it again.
const NoteMarker = "<!-- cimeter: the note of a merge request -->"

const (
	maxChanged  = 10       // rows of jobs that changed: more is no news
	maxAsUsual  = 100      // rows of those that did not, which are folded
	maxNote     = 64 << 10 // bytes; GitHub takes 65,535
	maxLink     = 1024
	leastBefore = 3 // builds before: fewer tell no spread
)

// Note is a pipeline of a merge request, as the note there tells of it. Addresses are
// ours or of the configuration, never a build's.
type Note struct {
	Pipeline string // number
	URL      string // its page
	Target   string // branch that it would be merged into
	Jobs     []NoteJob
	Finished bool
	At       time.Time // when the last of its builds ended: what did not change is not written again
	Help     string    // page that says what this is; "" is none
	Always   bool      // show the tables also when nothing changed
}

// NoteJob is a build, and the last ones of the same job on the target branch.
type NoteJob struct {
	Record *cimeter.Record
	URL    string // its page here
	Before []*cimeter.Record
}

// change is how a figure differs from what is usual.
type change struct {
	now, usual opt
	means      bool // beyond the job's own spread
}

func changeOf(now opt, before []*cimeter.Record, get func(*cimeter.Record) opt) change {
	var vs []float64
	for _, r := range before {
		if v := get(r); v.Known {
			vs = append(vs, v.Value)
		}
	}
	c := change{now: now}
	if !now.Known || len(vs) == 0 {
		return c
	}
	c.usual = some(median(vs))
	far := math.Abs(now.Value - c.usual.Value)
	c.means = len(vs) >= leastBefore && far > 3*deviation(vs) && far >= 0.1*c.usual.Value && far > 0
	return c
}

// mark is: ** ▲ 12 %**, or "".
func (c change) mark() string {
	part := relative(c.usual, c.now)
	switch {
	case !c.means || part == "" || part == "0 %":
		return ""
	case c.now.Value > c.usual.Value:
		return " **▲ " + strings.TrimPrefix(part, "+") + "**"
	}
	return " ▼ " + strings.TrimPrefix(part, "-")
}

// noteRow is a job with what there is to say of it.
type noteRow struct {
	NoteJob
	cpu, memory change
	wrong       string
}

func (r *noteRow) changed() bool { return r.cpu.means || r.memory.means || r.wrong != "" }

func noteRows(jobs []NoteJob) (changed, usual []noteRow) {
	for _, j := range jobs {
		cpu := func(r *cimeter.Record) opt { return r.Usage.CPUSeconds.Total }
		memory := func(r *cimeter.Record) opt { return peak(&r.Usage) }
		row := noteRow{NoteJob: j, cpu: changeOf(cpu(j.Record), j.Before, cpu), memory: changeOf(memory(j.Record), j.Before, memory), wrong: Wrong(j.Record)}
		if row.changed() {
			changed = append(changed, row)
		} else {
			usual = append(usual, row)
		}
	}
	weight := func(r *noteRow) float64 {
		if _, ok := killed(r.Record); ok {
			return math.Inf(1)
		}
		if !r.cpu.usual.Known {
			return 0
		}
		return math.Abs(r.cpu.now.Value - r.cpu.usual.Value)
	}
	slices.SortStableFunc(changed, func(a, b noteRow) int { return cmp.Compare(weight(&b), weight(&a)) })
	return changed, usual
}

// headline is: 14 jobs, 1 h 52 m CPU, +9 % against the median of 20 builds. The
// difference is of those jobs alone that have been built before.
func (n *Note) headline() (text, change string) {
	var cpu, now, before float64
	known, most := false, 0
	for _, j := range n.Jobs {
		v, ok := j.Record.Usage.CPUSeconds.Total.Get()
		if !ok {
			continue
		}
		known = true
		cpu += v
		c := changeOf(some(v), j.Before, func(r *cimeter.Record) opt { return r.Usage.CPUSeconds.Total })
		if c.usual.Known {
			now, before, most = now+v, before+c.usual.Value, max(most, len(j.Before))
		}
	}
	text = fmt.Sprintf("%d jobs", len(n.Jobs))
	if len(n.Jobs) == 1 {
		text = "1 job"
	}
	if known {
		text += ", " + seconds(cpu) + " CPU"
	}
	if part := relative(some(before), some(now)); part != "" {
		change = part
		if most > 1 {
			change += fmt.Sprintf(" against the median of %d builds", most)
		} else {
			change += " against the last build"
		}
	}
	return text, change
}

// statusColumns bounds the description of a commit status: GitHub and GitLab
// take 140 and 255 characters.
const statusColumns = 140

// PipelineStatus is a pipeline in the description of a commit status.
func PipelineStatus(n Note) string {
	text, change := n.headline()
	if change != "" {
		text += ", " + change
	}
	if changed, _ := noteRows(n.Jobs); len(changed) > 0 {
		for _, r := range changed {
			if r.wrong != "" {
				text += "; " + r.wrong
				break
			}
		}
	}
	return display.Fit(text, statusColumns, "…")
}

// Write writes the note, of at most 64 KiB: what changed first, the rest folded; one
// line when nothing did. It is markdown of GitLab, GitHub and Gitea.
//
// A note is posted with the rights of its author's token, and a line that starts with
// a slash is a command there. So no line starts with what a build's author chose, and
// all of that stands in code spans, in cells of a table but for the name of the branch.
func (n Note) Write(w io.Writer) error {
	changed, usual := noteRows(n.Jobs)
	for rows := maxAsUsual; ; rows /= 2 {
		text := n.render(changed, usual, rows)
		if len(text) <= maxNote || rows == 0 {
			_, err := io.WriteString(w, text)
			return err
		}
	}
}

func (n *Note) render(changed, usual []noteRow, rows int) string {
	var b strings.Builder
	b.WriteString("**cimeter**")
	if n.Pipeline != "" {
		b.WriteString(" · pipeline " + link(span("#"+n.Pipeline), n.URL))
	}
	text, change := n.headline()
	b.WriteString(" · " + text)
	if change != "" {
		b.WriteString(", **" + change + "**")
		if n.Target != "" {
			b.WriteString(" on " + span(n.Target))
		}
	}
	folded := "as usual"
	if change == "" {
		folded = "with nothing yet to compare with"
	}
	if len(changed) == 0 {
		b.WriteString(" · " + strings.TrimPrefix(folded, "with "))
	}
	b.WriteString("\n")
	if len(changed) > 0 {
		b.WriteString("\n| job | CPU | memory peak / limit | time | queue | |\n|---|--:|--:|--:|--:|---|\n")
		for i := range changed[:min(len(changed), maxChanged, rows)] {
			r := &changed[i]
			wrong := ""
			if r.wrong != "" {
				wrong = span(r.wrong)
			}
			fmt.Fprintf(&b, "| %s | %s%s | %s%s | %s | %s | %s |\n", link(span(r.Record.Name), r.URL),
				cell(r.cpu.now, cpuTime), r.cpu.mark(), memoryOf(r.Record), r.memory.mark(), timeOf(r.Record), cell(queued(r.Record), seconds), wrong)
		}
		if more := len(changed) - min(len(changed), maxChanged, rows); more > 0 {
			fmt.Fprintf(&b, "| and %d more | | | | | |\n", more)
		}
	}
	if len(usual) > 0 && (len(changed) > 0 || n.Always) {
		fmt.Fprintf(&b, "\n<details><summary>%d %s</summary>\n\n", len(usual), folded)
		b.WriteString("| job | CPU | memory peak / limit | disk | net | time | queue |\n|---|--:|--:|--:|--:|--:|--:|\n")
		for i := range usual[:min(len(usual), rows)] {
			r := &usual[i]
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", link(span(r.Record.Name), r.URL), cell(r.cpu.now, cpuTime), memoryOf(r.Record),
				cell(disk(&r.Record.Usage), size), cell(net(&r.Record.Usage), size), timeOf(r.Record), cell(queued(r.Record), seconds))
		}
		if more := len(usual) - min(len(usual), rows); more > 0 {
			fmt.Fprintf(&b, "| and %d more | | | | | | |\n", more)
		}
		b.WriteString("\n</details>\n")
	}
	state := "still runs"
	if n.Finished {
		state = "has finished"
	}
	fmt.Fprintf(&b, "\n<sub>As of %s UTC; the pipeline %s. ▲ and ▼ are beyond the job's own spread.", n.At.UTC().Format("15:04"), state)
	if help := link("What is this?", n.Help); help != "What is this?" {
		b.WriteString(" " + help)
	}
	b.WriteString("</sub>\n" + NoteMarker + "\n")
	return b.String()
}

// cell writes a figure, a dash where it is not known.
func cell(v opt, write func(float64) string) string {
	if !v.Known || v.Value < 0 || math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
		return dash
	}
	return write(v.Value)
}

// memoryOf is: 3.10 / 4.00 GiB, in one unit.
func memoryOf(r *cimeter.Record) string {
	p := peak(&r.Usage)
	limit, limited := memoryLimit(r)
	if !p.Known || !limited {
		return cell(p, size)
	}
	in, u := unit(max(limit, p.Value))
	return sig3(p.Value/u) + " / " + sig3(limit/u) + " " + in
}

func timeOf(r *cimeter.Record) string {
	return cell(wall(&r.Usage, r.StartedAt, r.EndedAt), seconds)
}

var plainAddress = regexp.MustCompile(`^https?://[A-Za-z0-9._~:/%+?=&\[\]-]+$`)

// link makes text, markdown already, a link where the address can be nothing else.
func link(text, address string) string {
	if len(address) > maxLink || !plainAddress.MatchString(address) || strings.ContainsAny(address, "[]") && !strings.Contains(address, "://[") {
		return text
	}
	return "[" + text + "](<" + address + ">)"
}
