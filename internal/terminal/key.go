package terminal

import (
	"unicode"
	"unicode/utf8"
)

// Key is a key that was pressed: the character that it types, or one of the
// constants.
type Key rune

// The keys that type nothing.
const (
	Up Key = unicode.MaxRune + 1 + iota
	Down
	Left
	Right
	PageUp
	PageDown
	Home
	End
	Enter
	Escape
	Backspace
	Interrupt // Ctrl-C
)

// finals are the keys by the last byte of their sequence ESC [ or ESC O.
var finals = map[byte]Key{'A': Up, 'B': Down, 'C': Right, 'D': Left, 'H': Home, 'F': End}

// tildes are the keys by the number of their sequence ESC [ n ~.
var tildes = map[string]Key{"1": Home, "7": Home, "4": End, "8": End, "5": PageUp, "6": PageDown}

// Keys reads what a terminal in raw mode sent at once. A sequence that is not
// known, or not UTF-8, is no key. An escape at the end is the key of that name:
// terminals send their sequences in one piece.
func Keys(b []byte) []Key {
	var keys []Key
	for len(b) > 0 {
		switch c := b[0]; {
		case c == 0x1b && len(b) >= 2 && (b[1] == '[' || b[1] == 'O'):
			end := 2
			for end < len(b) && (b[end] < 0x40 || b[end] > 0x7e) {
				end++
			}
			if end == len(b) {
				return keys
			}
			if k, ok := finals[b[end]]; ok && end == 2 {
				keys = append(keys, k)
			} else if k, ok := tildes[string(b[2:end])]; ok && b[end] == '~' {
				keys = append(keys, k)
			}
			b = b[end+1:]
			continue
		case c == 0x1b:
			keys = append(keys, Escape)
		case c == '\r' || c == '\n':
			keys = append(keys, Enter)
		case c == 0x7f || c == '\b':
			keys = append(keys, Backspace)
		case c == 3:
			keys = append(keys, Interrupt)
		case c < ' ':
		default:
			r, size := utf8.DecodeRune(b)
			if unicode.IsPrint(r) && (r != utf8.RuneError || size > 1) {
				keys = append(keys, Key(r))
			}
			b = b[size:]
			continue
		}
		b = b[1:]
	}
	return keys
}
