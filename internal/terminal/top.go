package terminal

import (
	"slices"
	"strings"
	"time"
	"unicode"
)

// Options say how a Top looks.
type Options struct {
	Source string // who is asked, as the header names it
	UTF8   bool   // characters beyond ASCII may be written
	Color  bool   // else meaning stands in words, bold and underline alone
}

// Top is the live table: what was read last, and what the keys made of it.
type Top struct {
	o     Options
	s     script
	rates Rates

	rows    []Running // as they are shown: while paused, of the pause
	shown   time.Time // when rows were read; zero: nothing was yet
	note    string    // of the source, such as machines that are away
	failure string    // of the last reading; "" when it succeeded
	failed  time.Time // since when there are failures

	by      order
	filter  string
	editing bool   // the filter is being typed
	help    bool   // the keys are shown
	detail  string // key of the build that is shown; "" none
	paused  bool

	selected string // key of the marked row
	top      int    // first row on the screen
	page     int    // rows on the screen of the last frame
	columns  int    // columns on it
}

// NewTop returns a table that has nothing to show yet, sorted by CPU.
func NewTop(o Options) *Top {
	return &Top{o: o, s: scriptOf(o.UTF8), by: first(coresColumn), page: 1, columns: least}
}

// Show takes a reading; it owns rows from then on. note says in a few words
// what the reader should know of the source, such as machines that are away.
func (t *Top) Show(rows []Running, note string, now time.Time) {
	t.failure, t.failed = "", time.Time{}
	t.rates.Fill(rows)
	if t.paused {
		return
	}
	t.rows, t.shown, t.note = rows, now, note
}

// Fail says that a reading failed: the last state stays, with its age.
func (t *Top) Fail(why string, now time.Time) {
	if t.failed.IsZero() {
		t.failed = now
	}
	t.failure = why
}

// visible are the rows that the filter lets through, sorted.
func (t *Top) visible() []Running {
	rows := slices.DeleteFunc(slices.Clone(t.rows), func(r Running) bool { return !r.matches(t.filter) })
	t.by.sort(rows)
	return rows
}

// Press does what a key says and reports whether it ends the program.
func (t *Top) Press(k Key) (quit bool) {
	if k == Interrupt {
		return true
	}
	if t.editing {
		t.edit(k)
		return false
	}
	if t.help {
		t.help = false // any key
		return k == 'q'
	}
	switch k {
	case 'q':
		return true
	case '?':
		t.help = true
	case '/':
		t.editing, t.detail = true, ""
	case ' ':
		t.paused = !t.paused
	case Escape:
		if t.detail != "" {
			t.detail = ""
		} else {
			t.filter = ""
		}
	case Enter:
		if t.detail != "" {
			t.detail = ""
		} else {
			t.detail = t.mark(0)
		}
	case Up, 'k':
		t.mark(-1)
	case Down, 'j':
		t.mark(1)
	case PageUp:
		t.mark(-t.page)
	case PageDown:
		t.mark(t.page)
	case Home, 'g':
		t.mark(-len(t.rows))
	case End, 'G':
		t.mark(len(t.rows))
	case '<', Left:
		t.by = first((t.by.column + t.columns - 1) % t.columns)
	case '>', Right:
		t.by = first((t.by.column + 1) % t.columns)
	default:
		t.sortBy(k)
	}
	return false
}

// sortBy sorts by the column whose underlined letter was pressed; the same
// again reverses.
func (t *Top) sortBy(k Key) {
	for i, c := range columns()[:t.columns] {
		if unicode.ToUpper(rune(k)) != rune(c.title[c.letter]) {
			continue
		}
		if t.by.column == i {
			t.by.ascending = !t.by.ascending
		} else {
			t.by = first(i)
		}
		return
	}
}

// mark moves the mark by some rows and returns the key of the row it is on; ""
// when there is none.
func (t *Top) mark(by int) string {
	rows := t.visible()
	if len(rows) == 0 {
		return ""
	}
	at := t.at(rows)
	if at < 0 { // the first press only shows where it is
		at, by = 0, max(0, by-1)
	}
	t.selected = rows[min(max(0, at+by), len(rows)-1)].Key
	return t.selected
}

func (t *Top) at(rows []Running) int {
	return slices.IndexFunc(rows, func(r Running) bool { return r.Key == t.selected })
}

// maxFilter bounds what is typed.
const maxFilter = 60

// edit is a key while the filter is being typed.
func (t *Top) edit(k Key) {
	switch k {
	case Enter:
		t.editing = false
	case Escape:
		t.editing, t.filter = false, ""
	case Backspace:
		if t.filter != "" {
			rs := []rune(t.filter)
			t.filter = string(rs[:len(rs)-1])
		}
	case Up, Down:
		t.editing = false
		t.Press(k)
	default:
		if k <= unicode.MaxRune && len(t.filter) < maxFilter {
			t.filter = strings.TrimLeft(t.filter+string(rune(k)), " ")
		}
	}
}
