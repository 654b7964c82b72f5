package terminal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/queue"
)

// Queue is the live view of what waits and runs on the CI servers.
type Queue struct {
	o Options
	s script

	source source
	state  queue.State // as it is shown: while paused, of the pause
	shown  time.Time   // when it was read; zero: nothing was yet

	by      queueOrder
	filter  filter
	help    bool   // the keys are shown
	detail  string // key of the build that is shown; "" none
	paused  bool
	cursor  cursor
	columns int // columns on the screen of the last frame
}

// NewQueue returns a view that has nothing to show yet: the longest wait first.
func NewQueue(o Options) *Queue {
	return &Queue{o: o, s: scriptOf(o.UTF8), by: queueOrder{column: byPlace}, cursor: cursor{page: 1}, columns: leastQueueColumns}
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

// Show takes a reading.
func (q *Queue) Show(st queue.State, now time.Time) {
	q.source = source{heard: now}
	if !q.paused || q.shown.IsZero() {
		q.state, q.shown = st, now
	}
}

// Fail says that a reading failed: the last state stays, with its age.
func (q *Queue) Fail(why string, _ time.Time) { q.source.failure = why }

// Press does what a key says and reports whether it ends the program.
func (q *Queue) Press(k Key) (quit bool) {
	switch {
	case k == Interrupt:
		return true
	case q.filter.typing:
		q.filter.press(k)
		return false
	case q.help:
		q.help = false // any key
		return k == 'q'
	}
	switch k {
	case 'q':
		return true
	case '?':
		q.help = true
	case '/':
		q.filter.typing, q.detail = true, ""
	case ' ':
		q.paused = !q.paused
	case Escape:
		if q.detail != "" {
			q.detail = ""
		} else {
			q.filter, q.by = filter{}, queueOrder{column: byPlace}
		}
	case Enter:
		if q.detail != "" {
			q.detail = ""
		} else {
			q.detail = q.cursor.move(queueKeysOf(q.visible()), 0)
		}
	case '<', Left:
		q.by = queueOrder{column: (max(q.by.column, 0) + q.columns - 1) % q.columns}
	case '>', Right:
		q.by = queueOrder{column: (q.by.column + 1) % q.columns}
	default:
		if !q.cursor.press(k, queueKeysOf(q.visible())) {
			q.sortBy(k)
		}
	}
	return false
}

// sortBy sorts by the column whose underlined letter was pressed; the same again
// reverses.
func (q *Queue) sortBy(k Key) {
	for i, c := range queueColumns()[:q.columns] {
		if unicode.ToUpper(rune(k)) != rune(c.title[c.letter]) {
			continue
		}
		if q.by.column == i {
			q.by.turned = !q.by.turned
		} else {
			q.by = queueOrder{column: i}
		}
		return
	}
}

func queueKeysOf(rows []queue.Build) []string {
	keys := make([]string, len(rows))
	for i := range rows {
		keys[i] = rows[i].Key
	}
	return keys
}

// visible are the builds that the filter lets through, sorted.
func (q *Queue) visible() []queue.Build {
	rows := slices.DeleteFunc(slices.Clone(q.state.Builds), func(b queue.Build) bool {
		return !q.filter.finds(append([]string{b.Key, b.Project, b.Name, b.Number, b.On, b.Machine, runnerOf(&b), string(b.Status)}, b.Tags...)...)
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
	switch {
	case q.help:
		f.queueHelp()
	case q.detail != "":
		q.drawDetail(f)
	default:
		q.draw(f, height)
	}
	footer := q.filter.footer()
	switch {
	case q.help:
		footer = helpFooter
	case q.detail != "":
		footer = detailFooter
	case footer == "":
		footer = "? keys   / filter   < > sort   Enter detail   Space pause   q quit"
	}
	return f.whole(height, footer)
}

// queueHelp shows every key.
func (f *frame) queueHelp() {
	var titles []title
	for _, c := range queueColumns() {
		titles = append(titles, title{c.title, c.letter})
	}
	f.keys([][2]string{
		{"< >, ← →", "sort by the column before, after"},
		{"a letter", "sort by the column with that letter underlined; again: reverse"},
	}, titles, leastQueueColumns, [][2]string{
		{"↑ ↓, k j", "mark a build; PageUp, PageDown, Home g, End G too"},
		{"Enter", "all that is known of the marked build; again, or Esc: back"},
		{"/", "show only builds with these words in a name, tag or state"},
		{"Esc", "the longest wait first, without a filter"},
		{"Space", "pause, go on"},
		{"?", "this"},
		{"q, Ctrl-C", "quit"},
		{"", ""},
		{"", "-  is not known"},
	})
}

// header says who was asked, and how fresh what it told is.
func (q *Queue) header(now time.Time) string {
	if s := q.source.header("cimeter queue", q.o.Source, now); s != "" {
		return s
	}
	s := "cimeter queue  " + q.o.Source
	if q.paused {
		s += fmt.Sprintf("  paused %s ago", age(now.Sub(q.shown)))
	}
	return s
}

func (q *Queue) drawDetail(f *frame) {
	for i := range q.state.Builds {
		if b := &q.state.Builds[i]; b.Key == q.detail {
			f.facts(queueDetail(b))
			return
		}
	}
	f.text("", "It neither waits nor runs any more. What it cost, where it was metered:")
	f.text("", "")
	f.text("", "  cimeter summary "+q.detail)
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
	if q.columns = len(cs); q.by.column >= len(cs) { // the terminal became narrower
		q.by = queueOrder{column: byPlace}
	}
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
	from, to, at := q.cursor.show(queueKeysOf(rows), height-1-len(f.lines))
	for i := from; i < to; i++ {
		rendition := ""
		if i == at {
			rendition = reverse
		}
		f.lines = append(f.lines, rendition+cutLine(q.s.queueRow(cs, &rows[i]), f.width)+plain)
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
