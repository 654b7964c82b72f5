package terminal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/queue"
)

// Queue is the live view of what waits and runs on the CI servers.
type Queue struct {
	o Options
	s script

	state   queue.State
	shown   time.Time // when it was read; zero: nothing was yet
	failure string
	failed  time.Time

	by              queueOrder
	filter          string
	editing, paused bool
	help            bool
	top, page, rows int
}

// NewQueue returns a view that has nothing to show yet: the longest wait first.
func NewQueue(o Options) *Queue {
	return &Queue{o: o, s: scriptOf(o.UTF8), by: queueOrder{column: byPlace}, page: 1}
}

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
		{title: "JOB", letter: 0, width: 16, text: func(b *queue.Build) string { return cmp.Or(b.Name, b.Number) }},
		{title: "PROJECT", letter: 0, width: 18, text: func(b *queue.Build) string { return b.Project }},
		{title: "WAITS FOR, OR IS ON", letter: 0, width: 24, text: whatFor},
		{title: "TAGS", letter: 1, width: 20, text: func(b *queue.Build) string { return strings.Join(b.Tags, " ") }},
		{title: "SERVER", letter: 1, width: 20, text: func(b *queue.Build) string { return b.On }},
		{title: "BUILD", letter: 0, width: 48, text: func(b *queue.Build) string { return b.Key }},
	}
}

// byPlace is the order of [queue.State]: what waits longest first.
const (
	byPlace           = -1
	leastQueueColumns = 5
)

type queueOrder struct {
	column int
	turned bool
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

// Show takes a reading.
func (q *Queue) Show(st queue.State, now time.Time) {
	q.failure, q.failed = "", time.Time{}
	if !q.paused {
		q.state, q.shown = st, now
	}
}

// Fail says that a reading failed: the last state stays, with its age.
func (q *Queue) Fail(why string, now time.Time) {
	if q.failed.IsZero() {
		q.failed = now
	}
	q.failure = why
}

// Press does what a key says and reports whether it ends the program.
func (q *Queue) Press(k Key) (quit bool) {
	switch {
	case k == Interrupt:
		return true
	case q.editing:
		q.edit(k)
		return false
	case q.help:
		q.help = false
		return k == 'q'
	}
	n := len(queueColumns())
	switch k {
	case 'q':
		return true
	case '?':
		q.help = true
	case '/':
		q.editing = true
	case ' ':
		q.paused = !q.paused
	case Escape:
		q.filter, q.by = "", queueOrder{column: byPlace}
	case Up, 'k':
		q.top--
	case Down, 'j':
		q.top++
	case PageUp:
		q.top -= q.page
	case PageDown:
		q.top += q.page
	case Home, 'g':
		q.top = 0
	case End, 'G':
		q.top = q.rows
	case '<', Left:
		q.by = queueOrder{column: (max(q.by.column, 0) + n - 1) % n}
	case '>', Right:
		q.by = queueOrder{column: (q.by.column + 1) % n}
	default:
		for i, c := range queueColumns() {
			if unicode.ToUpper(rune(k)) != rune(c.title[c.letter]) {
				continue
			}
			if q.by.column == i {
				q.by.turned = !q.by.turned
			} else {
				q.by = queueOrder{column: i}
			}
			break
		}
	}
	return false
}

func (q *Queue) edit(k Key) {
	switch k {
	case Enter:
		q.editing = false
	case Escape:
		q.editing, q.filter = false, ""
	case Backspace:
		if rs := []rune(q.filter); len(rs) > 0 {
			q.filter = string(rs[:len(rs)-1])
		}
	default:
		if k <= unicode.MaxRune && len(q.filter) < maxFilter {
			q.filter = strings.TrimLeft(q.filter+string(rune(k)), " ")
		}
	}
}

// visible are the builds that the filter lets through, sorted.
func (q *Queue) visible() []queue.Build {
	rows := slices.DeleteFunc(slices.Clone(q.state.Builds), func(b queue.Build) bool {
		all := strings.ToLower(strings.Join([]string{b.Key, b.Project, b.Name, b.Number, b.On, b.Machine, runnerOf(&b), string(b.Status), strings.Join(b.Tags, "\x00")}, "\x00"))
		return slices.ContainsFunc(strings.Fields(strings.ToLower(q.filter)), func(w string) bool { return !strings.Contains(all, w) })
	})
	if q.by.column >= 0 {
		c := queueColumns()[q.by.column]
		slices.SortStableFunc(rows, func(a, b queue.Build) int {
			d := cmp.Compare(c.text(&a), c.text(&b))
			if c.number != nil {
				d = cmp.Compare(c.number(&b).Value, c.number(&a).Value)
			}
			if q.by.turned {
				d = -d
			}
			return d
		})
	}
	return rows
}

// Frame is the whole screen, as [Top.Frame].
func (q *Queue) Frame(width, height int, now time.Time) string {
	width, height = max(20, width), max(4, height)
	f := &frame{width: width, s: q.s}
	f.text(bold, q.header(now))
	if q.help {
		for _, l := range queueKeys() {
			f.text("", "  "+l)
		}
	} else {
		q.draw(f, height)
	}
	for len(f.lines) < height-1 {
		f.lines = append(f.lines, "")
	}
	f.lines = f.lines[:height-1]
	footer := "? keys   / filter   < > sort   Space pause   q quit"
	switch {
	case q.editing:
		footer = "filter: " + q.filter + "_   Enter keeps it, Esc clears it"
	case q.help:
		footer = "any key goes back"
	case q.filter != "":
		footer = "filter: " + q.filter + "   Esc clears it, / changes it"
	}
	f.text(dim, footer)
	return "\x1b[H" + strings.Join(f.lines, "\x1b[K\r\n") + "\x1b[K\x1b[J"
}

func queueKeys() []string {
	return []string{
		"/           filter by words in any name, tag or state", "< >         sort by the column before or after; Left and Right do so too",
		"S T J P W A E B   sort by the column with that letter underlined; again reverses", "Esc         the longest wait first, without a filter",
		"Up Down k j, PageUp PageDown, Home End g G   move", "Space       pause", "q Ctrl-C    quit",
	}
}

func (q *Queue) header(now time.Time) string {
	s := "cimeter queue  " + q.o.Source
	switch {
	case q.failure != "" && q.shown.IsZero():
		return s + "  " + q.failure
	case q.failure != "":
		return fmt.Sprintf("%s  away %s, showing the last state: %s", s, age(now.Sub(q.shown)), q.failure)
	case q.shown.IsZero():
		return s + "  reading"
	case q.paused:
		return fmt.Sprintf("%s  paused %s ago", s, age(now.Sub(q.shown)))
	}
	return s
}

func (q *Queue) draw(f *frame, height int) {
	if q.shown.IsZero() {
		return
	}
	for i := range q.state.Servers {
		rendition := ""
		if q.state.Servers[i].Stale {
			rendition = bold
		}
		if f.text(rendition, serverLine(&q.state.Servers[i])); len(f.lines) > height/2 {
			break
		}
	}
	cs := fittingQueue(f.width)
	var b strings.Builder
	b.WriteString(reverse)
	for i := range cs {
		h := q.heading(&cs[i], i)
		if i > 0 {
			b.WriteByte(' ')
		}
		at := cs[i].letter
		b.WriteString(h[:at] + under + h[at:at+1] + noUnder + h[at+1:])
	}
	f.lines = append(f.lines, cutLine(b.String(), f.width)+plain)
	rows := q.visible()
	q.rows, q.page = len(rows), max(1, height-1-len(f.lines))
	q.top = max(0, min(q.top, len(rows)-q.page))
	for i := q.top; i < min(len(rows), q.top+q.page); i++ {
		f.lines = append(f.lines, cutLine(q.s.queueRow(cs, &rows[i]), f.width)+plain)
	}
	if len(rows) == 0 {
		if len(q.state.Builds) > 0 {
			f.text("", fmt.Sprintf("None of %d builds matches; Esc clears the filter.", len(q.state.Builds)))
		} else {
			f.text("", nothing(&q.state))
		}
	}
}

func (q *Queue) heading(c *queueColumn, place int) string {
	title := c.title
	if place == q.by.column {
		title += map[bool]string{true: q.s.up, false: q.s.down}[q.by.turned != (c.number == nil)]
	}
	return display.Pad(title, c.width, q.s.cut)
}

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
	line := s.Name + "  " + strings.Join([]string{count(s.Waiting, "waiting"), count(s.Blocked, "blocked"), count(s.Running, "running")}, ", ")
	if c := s.Workers.Value; s.Workers.Known {
		line += fmt.Sprintf("; %d workers (%d idle, %d busy, %d offline, %d draining)", c.All(), c.Idle, c.Busy, c.Offline, c.Draining)
	}
	if s.Slots.Known {
		line += fmt.Sprintf(", %d slots", s.Slots.Value)
	}
	switch {
	case s.Elsewhere:
		line += "; another server of this fleet asks it"
	case s.Stale && !s.AgeSeconds.Known:
		line += "; never heard of"
	case !s.AgeSeconds.Known && !s.Waiting.Known && s.Failure == "":
		line += "; nothing heard of it yet"
	case s.Stale:
		line += "; away " + elapsed(s.AgeSeconds.Value) + ", showing the last state"
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
