package terminal

import (
	"slices"
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

	source source
	rows   []Running // as they are shown: while paused, of the pause
	shown  time.Time // when rows were read; zero: nothing was yet
	note   string    // of the source, such as machines that are away

	by     order
	filter filter
	help   bool   // the keys are shown
	detail string // key of the build that is shown; "" none
	paused bool

	cursor  cursor
	columns int // columns on the screen of the last frame
}

// NewTop returns a table that has nothing to show yet, sorted by CPU.
func NewTop(o Options) *Top {
	return &Top{o: o, s: scriptOf(o.UTF8), by: first(coresColumn), cursor: cursor{page: 1}, columns: least}
}

// Show takes a reading; it owns rows from then on. note says in a few words
// what the reader should know of the source, such as machines that are away.
func (t *Top) Show(rows []Running, note string, now time.Time) {
	t.source = source{heard: now}
	t.rates.Fill(rows)
	if t.paused && !t.shown.IsZero() {
		return
	}
	t.rows, t.shown, t.note = rows, now, note
}

// Fail says that a reading failed: the last state stays, with its age.
func (t *Top) Fail(why string, _ time.Time) { t.source.failure = why }

// visible are the rows that the filter lets through, sorted.
func (t *Top) visible() []Running {
	rows := slices.DeleteFunc(slices.Clone(t.rows), func(r Running) bool { return !t.filter.finds(r.names()...) })
	t.by.sort(rows)
	return rows
}

// Press does what a key says and reports whether it ends the program.
func (t *Top) Press(k Key) (quit bool) {
	if k == Interrupt {
		return true
	}
	if t.filter.typing && k != Up && k != Down {
		t.filter.press(k)
		return false
	}
	t.filter.typing = false
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
		t.filter.typing, t.detail = true, ""
	case ' ':
		t.paused = !t.paused
	case Escape:
		if t.detail != "" {
			t.detail = ""
		} else {
			t.filter = filter{}
		}
	case Enter:
		if t.detail != "" {
			t.detail = ""
		} else {
			t.detail = t.cursor.move(keysOf(t.visible()), 0)
		}
	case '<', Left:
		t.by = first((t.by.column + t.columns - 1) % t.columns)
	case '>', Right:
		t.by = first((t.by.column + 1) % t.columns)
	default:
		if !t.cursor.press(k, keysOf(t.visible())) {
			t.sortBy(k)
		}
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

func keysOf(rows []Running) []string {
	keys := make([]string, len(rows))
	for i := range rows {
		keys[i] = rows[i].Key
	}
	return keys
}
