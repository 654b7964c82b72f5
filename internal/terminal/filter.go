package terminal

import (
	"strings"
	"unicode"
)

// filter is what is typed after a slash: words that are sought in names.
type filter struct {
	words  string
	typing bool
}

// maxFilter bounds what is typed, in bytes.
const maxFilter = 60

// press takes a key that is typed into it: every key that types a character does,
// also one that stands for something elsewhere.
func (f *filter) press(k Key) {
	switch k {
	case Enter:
		f.typing = false
	case Escape:
		*f = filter{}
	case Backspace:
		if rs := []rune(f.words); len(rs) > 0 {
			f.words = string(rs[:len(rs)-1])
		}
	default:
		if k <= unicode.MaxRune && len(f.words) < maxFilter {
			f.words = strings.TrimLeft(f.words+string(rune(k)), " ")
		}
	}
}

// footer says how to go on; "" where no filter is set.
func (f *filter) footer() string {
	switch {
	case f.typing:
		return "filter: " + f.words + "_   Enter keeps it, Esc clears it"
	case f.words != "":
		return "filter: " + f.words + "   Esc clears it, / changes it"
	}
	return ""
}

// finds reports whether all of its words are in one of the names.
func (f *filter) finds(names ...string) bool {
	all := strings.ToLower(strings.Join(names, "\x00"))
	for w := range strings.FieldsSeq(strings.ToLower(f.words)) {
		if !strings.Contains(all, w) {
			return false
		}
	}
	return true
}
