package terminal

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/queue"
)

// queueColumn is one of the table of builds.
type queueColumn struct {
	title  string
	letter int // index in title of the letter that sorts by it
	width  int
	text   func(*queue.Build) string
	number func(*queue.Build) cimeter.Opt[float64] // sorts in place of text, the largest first
}

func queueColumns() []queueColumn {
	return []queueColumn{
		{title: "STATE", letter: 0, width: 8, text: func(b *queue.Build) string { return string(b.Status) }},
		{title: "TIME", letter: 0, width: 10, text: func(b *queue.Build) string {
			if s := queueTime(b); s.Known {
				return elapsed(s.Value)
			}
			return ""
		}, number: queueTime},
		{title: "JOB", letter: 1, width: 16, text: func(b *queue.Build) string { return cmp.Or(b.Name, b.Number) }},
		{title: "PROJECT", letter: 0, width: 18, text: func(b *queue.Build) string { return b.Project }},
		{title: "WAITS FOR, OR IS ON", letter: 0, width: 24, text: whatFor},
		{title: "TAGS", letter: 1, width: 20, text: func(b *queue.Build) string { return strings.Join(b.Tags, " ") }},
		{title: "SERVER", letter: 1, width: 20, text: func(b *queue.Build) string { return b.On }},
		{title: "BUILD", letter: 0, width: 48, text: func(b *queue.Build) string { return b.Key }},
	}
}

// queueTime is how long a build waits, or runs.
func queueTime(b *queue.Build) cimeter.Opt[float64] {
	if b.Status == cimeter.JobRunning {
		return b.Ran
	}
	return b.Waited
}

// whatFor says what a build waits for, or where it runs.
func whatFor(b *queue.Build) string {
	words := map[queue.Why]string{
		queue.WhyNoWorker: "no worker has its tags", queue.WhyNoSlot: "a free slot", queue.WhyStarting: "its machine to start",
		queue.WhyPull: "its image", queue.WhyPreparing: "being prepared",
	}[b.Why]
	switch {
	case b.Status == cimeter.JobRunning && words == "":
		return cmp.Or(b.Machine, runnerOf(b), b.Worker)
	case b.Start.Known && b.Status == cimeter.JobWaiting:
		return strings.TrimPrefix(words+fmt.Sprintf(", some %s", elapsed(b.Start.Value.Seconds)), ", ")
	}
	return words
}

func runnerOf(b *queue.Build) string { return cmp.Or(b.Runner.Name, b.Runner.Key()) }

func (s script) queueRow(cs []queueColumn, b *queue.Build) string {
	cells := make([]string, 0, len(cs))
	for i := range cs {
		cells = append(cells, display.Pad(cmp.Or(s.clean(cs[i].text(b)), dash), cs[i].width, s.cut))
	}
	return strings.Join(cells, " ")
}

func fittingQueue(width int) []queueColumn {
	all := queueColumns()
	used := 0
	for i, c := range all {
		if used += c.width; i >= leastQueueColumns && used > width {
			return all[:i]
		}
		used++
	}
	return all
}

// serverLine says what a CI server has, and how old that is.
func serverLine(s *queue.Server) string {
	count := func(n cimeter.Opt[int], what string) string {
		if !n.Known {
			return dash + " " + what
		}
		return fmt.Sprintf("%d %s", n.Value, what)
	}
	line := s.Name + "  "
	switch { // before all that a narrow screen may cut
	case s.Elsewhere:
	case s.Stale && !s.AgeSeconds.Known:
		line += "never heard of; "
	case s.Stale:
		line += "away " + elapsed(s.AgeSeconds.Value) + ", showing the last state; "
	}
	line += strings.Join([]string{count(s.Waiting, "waiting"), count(s.Blocked, "blocked"), count(s.Running, "running")}, ", ")
	if c := s.Workers.Value; s.Workers.Known {
		line += fmt.Sprintf("; %d workers (%d idle, %d busy, %d offline, %d draining)", c.All(), c.Idle, c.Busy, c.Offline, c.Draining)
	}
	if s.Slots.Known {
		line += fmt.Sprintf(", %d slots", s.Slots.Value)
	}
	switch {
	case s.Elsewhere:
		line += "; another server of this fleet asks it"
	case !s.AgeSeconds.Known && !s.Waiting.Known && s.Failure == "":
		line += "; nothing heard of it yet"
	}
	if s.Failure != "" {
		line += ": " + s.Failure
	}
	return line
}

// nothing says that nothing waits, and how long anything did.
func nothing(st *queue.State) string {
	var longest queue.Longest
	for _, s := range st.Servers {
		if s.LongestDay.Seconds > longest.Seconds {
			longest = s.LongestDay
		}
	}
	if longest.Key == "" {
		return "Nothing waits."
	}
	return fmt.Sprintf("Nothing waits. Longest wait in 24 h: %s (%s, %s).", elapsed(longest.Seconds), cmp.Or(longest.Name, longest.Key), longest.At.Format("15:04"))
}

// queueDetail is all that is known of a build, a label and a value each.
func queueDetail(b *queue.Build) [][2]string {
	lines := [][2]string{
		{"build", b.Key}, {"project", b.Project}, {"job", b.Name}, {"number", b.Number}, {"ref", b.Ref}, {"server", b.On}, {"page", b.URL},
		{"state", string(b.Status)}, {"tags", strings.Join(b.Tags, " ")},
	}
	seconds := func(label string, v cimeter.Opt[float64]) {
		if v.Known {
			lines = append(lines, [2]string{label, elapsed(v.Value)})
		}
	}
	seconds("waits", b.Waited)
	seconds("runs", b.Ran)
	if v, ok := b.Start.Get(); ok && b.Status == cimeter.JobWaiting {
		lines = append(lines, [2]string{"starts", fmt.Sprintf("in some %s; half of %d builds before: in %s to %s", elapsed(v.Seconds), v.Samples, elapsed(v.Low), elapsed(v.High))})
	}
	return append(lines, [2]string{"for, or on", whatFor(b)}, [2]string{"machine", b.Machine}, [2]string{"runner", cmp.Or(runnerOf(b), b.Worker)})
}

// QueueTable is the view as plain text, without any escape.
func QueueTable(st queue.State, width int, utf8 bool) string {
	s := scriptOf(utf8)
	var b strings.Builder
	for i := range st.Servers {
		b.WriteString(s.clean(serverLine(&st.Servers[i])) + "\n")
	}
	if len(st.Builds) == 0 {
		return b.String() + s.clean(nothing(&st)) + "\n"
	}
	cs := fittingQueue(width)
	var titles []string
	for _, c := range cs {
		titles = append(titles, display.Pad(c.title, c.width, s.cut))
	}
	b.WriteString(strings.TrimRight(strings.Join(titles, " "), " ") + "\n")
	for i := range st.Builds {
		b.WriteString(strings.TrimRight(s.queueRow(cs, &st.Builds[i]), " ") + "\n")
	}
	return b.String()
}
