package summary

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// LogOptions say in whose log a summary stands.
type LogOptions struct {
	TextOptions
	Section bool      // in a collapsed section of GitLab
	At      time.Time // of the section
}

// sectionName is the name of GitLab's section.
const sectionName = "cimeter_summary"

// Log writes the receipt for the log of the job itself. In a section, its first
// line is what is seen of it. A runner reads some lines of a log as commands to
// it; none of these is one, whatever the build's author called things.
func Log(w io.Writer, r *cimeter.Record, o LogOptions) error {
	var text strings.Builder
	if err := Text(&text, r, o.TextOptions); err != nil {
		return err
	}
	mark := cut
	if o.UTF8 {
		mark = "…"
	}
	var b strings.Builder
	for line := range strings.Lines(text.String()) {
		line = strings.TrimSuffix(line, "\n")
		if o.URL == "" || !strings.HasPrefix(line, o.URL) {
			line = noCommand(line, max(o.Width, Columns), mark)
		}
		if o.Section && b.Len() == 0 {
			fmt.Fprintf(&b, "\x1b[0Ksection_start:%d:%s[hide_duration=true,collapsed=true]\r\x1b[0K", o.At.Unix(), sectionName)
		}
		b.WriteString(line + "\n")
	}
	if o.Section {
		fmt.Fprintf(&b, "\x1b[0Ksection_end:%d:%s\r\x1b[0K\n", o.At.Unix(), sectionName)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ShortLog is Short for the log of the job itself; see Log.
func ShortLog(r *cimeter.Record) string { return noCommand(Short(r), Columns, cut) }

var marked = regexp.MustCompile(`##([\[A-Za-z])`)

// noCommand makes a line one that no runner takes for a command: GitHub, Gitea
// and Forgejo read ::command:: at the start of a line and ##[command] anywhere,
// Azure and TeamCity ##vso[ and ##teamcity[, Buildkite ---, +++, ~~~ and ^^^ at
// the start. Sections of GitLab need control characters, which there are none of.
func noCommand(line string, width int, mark string) string {
	safe := marked.ReplaceAllString(line, "#'$1")
	start := strings.TrimLeft(safe, " ")
	for _, c := range []string{"::", "---", "+++", "~~~", "^^^"} {
		if strings.HasPrefix(start, c) {
			safe = safe[:len(safe)-len(start)] + "'" + start
			break
		}
	}
	if safe == line {
		return line
	}
	return display.Fit(safe, width, mark)
}

// Wrong says in one sentence what went wrong and what to do, the worst first;
// "" is nothing.
func Wrong(r *cimeter.Record) string {
	if stage, ok := killed(r); ok {
		return display.Clean(killedLine(r, stage))
	}
	ns := tries(r)
	if len(ns) == 0 {
		return ""
	}
	text := ns[0].text
	if s, _ := throttled(r); s != nil && len(ns) == 1 && s.Usage.CPUThrottledSeconds.Value > 0 {
		text += "; it was throttled for " + seconds(s.Usage.CPUThrottledSeconds.Value)
	}
	return display.Clean(text)
}
