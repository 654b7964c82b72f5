package summary

import (
	"fmt"
	"io"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// Markdown writes a build as GitHub and GitLab flavoured markdown: a line of
// figures, a table of its stages, what there is to say.
//
// A note in a merge request runs with the rights of the bot that posts it, and
// a line that starts with a slash is a command there. So text that a build's
// author chose stands only in code spans inside table cells, and no line starts
// with it.
func Markdown(w io.Writer, r *cimeter.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "**cimeter** · %s\n\n", display.Clean(used(r)))
	b.WriteString("| build | project | machine | runner | time | queue | result |\n|---|---|---|---|--:|--:|---|\n")
	build := span(r.Name)
	if r.Number != "" {
		build += " " + span("#"+r.Number)
	}
	duration, queue := dash, dash
	if v := wall(&r.Usage, r.StartedAt, r.EndedAt); v.Known {
		duration = seconds(v.Value)
	}
	if v := queued(r); v.Known {
		queue = seconds(v.Value)
	}
	fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n\n", build, span(r.Project), span(r.Machine), span(r.Runner.Name), duration, queue, span(r.Result))

	c := columns{memory: mib, disk: mib, net: mib}
	for _, u := range append(stageUsages(r), &r.Usage) {
		c.fit(u)
	}
	fmt.Fprintf(&b, "| stage | time s | CPU s | avg cores | max | sd | memory %s | disk %s | net %s |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
		unitName(c.memory), unitName(c.disk), unitName(c.net))
	rows := 0
	for _, alongside := range []bool{false, true} {
		for i := range r.Stages {
			if s := &r.Stages[i]; s.Alongside == alongside {
				if rows++; rows <= maxRows {
					markdownRow(&b, span(stageName(s)), wall(&s.Usage, s.StartedAt, s.EndedAt), &s.Usage, c)
				}
			}
		}
	}
	if rows > maxRows {
		fmt.Fprintf(&b, "| and %d more | | | | | | | | |\n", rows-maxRows)
	}
	markdownRow(&b, "**total**", wall(&r.Usage, r.StartedAt, r.EndedAt), &r.Usage, c)

	ns := notes(r)
	if stage, ok := killed(r); ok {
		ns = append([]note{{"oom", killedLine(r, stage)}}, ns...)
	}
	if len(ns) > 0 {
		b.WriteString("\n| | |\n|---|---|\n")
		for _, n := range ns {
			fmt.Fprintf(&b, "| %s | %s |\n", n.label, span(n.text))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func markdownRow(b *strings.Builder, name string, time opt, u *cimeter.Usage, c columns) {
	var avg, largest, sd opt
	if s := u.CPUCores; s != nil {
		avg, largest, sd = some(s.Avg), some(s.Max), s.StdDev
	}
	fmt.Fprintf(b, "| %s |", name)
	for _, cell := range []string{
		column(time, 12, 1), column(u.CPUSeconds.Total, 12, 1), column(avg, 12, 2), column(largest, 12, 2), column(sd, 12, 2),
		inUnit(peak(u), c.memory, 12, 0), inUnit(disk(u), c.disk, 12, 1), inUnit(net(u), c.net, 12, 1),
	} {
		b.WriteString(" " + strings.TrimLeft(cell, " ") + " |")
	}
	b.WriteByte('\n')
}

// spanColumns bounds a name or a sentence in a table.
const spanColumns = 120

// span makes a code span of a user's string that nothing can break out of, in
// a table's cell or not: there is no backtick in it to end it, no pipe to end
// the cell, no backslash to escape what follows, no line break. Inside a code
// span @, #, !, ~ and $ refer to nothing and HTML is text; a dollar beside the
// span would make it mathematics, so nothing but a space ever is.
func span(s string) string {
	s = strings.NewReplacer("`", "'", "|", "¦").Replace(display.Fit(s, spanColumns, "…"))
	s = strings.TrimSpace(s)
	if s == "" {
		return dash
	}
	if strings.HasSuffix(s, `\`) {
		s += " "
	}
	return "`" + s + "`"
}
