// Package display makes text that others wrote safe to show: names of projects,
// jobs, stages, machines, and everything else that a build's author, a label or
// a CI server chose.
//
// It owns the one rule for what may reach a terminal, a log or a page as it is.
// It does no input or output and keeps no state. Start with [Clean], or [Fit]
// where there is a column to keep to; every user's string passes one of them at
// the output's edge.
package display

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Clean returns s with every character that could move a cursor, hide or
// reorder text written as an escape: C0 and C1 controls, DEL, ESC, CR, LF and
// bytes that are not UTF-8 as \x1b; bidirectional and other format characters,
// line and paragraph separators, private and unassigned code points as \u202e.
// What Clean returns it returns unchanged.
func Clean(s string) string { return clean(s, unicode.MaxRune) }

// ASCII is Clean that also escapes everything beyond ASCII, for an output that
// is not UTF-8.
func ASCII(s string) string { return clean(s, unicode.MaxASCII) }

func clean(s string, last rune) string {
	plain := true
	for i, r := range s {
		if !safe(r, last) || r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case safe(r, last):
			b.WriteString(s[:size])
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		s = s[size:]
	}
	return b.String()
}

// safe reports whether r may be shown as it is. unicode.IsPrint is false for
// controls, formats, separators other than the space, and unassigned ones.
func safe(r, last rune) bool { return r <= last && unicode.IsPrint(r) }

// Width is how many columns of a terminal s takes: wide characters take two,
// combining marks none. s must be clean.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// wide are the ranges that terminals show in two columns: the blocks that
// Unicode's EastAsianWidth.txt (15.1) lists as W or F, gaps inside a block
// included.
var wide = [...][2]rune{
	{0x1100, 0x115F}, {0x231A, 0x231B}, {0x2329, 0x232A}, {0x23E9, 0x23F3}, {0x25FD, 0x25FE},
	{0x2614, 0x2615}, {0x2648, 0x2653}, {0x267F, 0x267F}, {0x2693, 0x2693}, {0x26A1, 0x26A1},
	{0x26AA, 0x26AB}, {0x26BD, 0x26BE}, {0x26C4, 0x26C5}, {0x26CE, 0x26CE}, {0x26D4, 0x26D4},
	{0x26EA, 0x26EA}, {0x26F2, 0x26F5}, {0x26FA, 0x26FD}, {0x2705, 0x2705}, {0x270A, 0x270B},
	{0x2728, 0x2728}, {0x274C, 0x274E}, {0x2753, 0x2757}, {0x2795, 0x2797}, {0x27B0, 0x27BF},
	{0x2B1B, 0x2B1C}, {0x2B50, 0x2B55}, {0x2E80, 0x303E}, {0x3041, 0x4DBF}, {0x4E00, 0xA4CF},
	{0xA960, 0xA97F}, {0xAC00, 0xD7A3}, {0xF900, 0xFAFF}, {0xFE10, 0xFE19}, {0xFE30, 0xFE6F},
	{0xFF00, 0xFF60}, {0xFFE0, 0xFFE6}, {0x16FE0, 0x18DFF}, {0x1AFF0, 0x1B2FF}, {0x1F004, 0x1F004},
	{0x1F0CF, 0x1F0CF}, {0x1F18E, 0x1F19A}, {0x1F200, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F7E0, 0x1F7F0},
	{0x1F90C, 0x1FAFF}, {0x20000, 0x3FFFD},
}

func runeWidth(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	for _, w := range wide {
		if r < w[0] {
			return 1
		}
		if r <= w[1] {
			return 2
		}
	}
	return 1
}

// Fit cleans s and cuts it to at most width columns; what was cut ends with
// mark (… or ~), which takes one column. Combining marks are bounded to four
// in a column on average, so that the result is bounded in bytes too. For an
// output that is not UTF-8 give it what [ASCII] returns.
func Fit(s string, width int, mark string) string {
	if width <= 0 {
		return ""
	}
	// Nothing beyond this can show; it bounds the work on a huge name.
	if bound := 64 * width; len(s) > bound {
		s = s[:bound] + "~"
	}
	s = Clean(s)
	used, runes, cut := 0, 0, 0 // cut: the longest prefix that leaves room for mark
	for i, r := range s {
		used += runeWidth(r)
		runes++
		if used > width || runes > 4*width {
			return s[:cut] + mark
		}
		if used <= width-1 {
			cut = i + utf8.RuneLen(r)
		}
	}
	return s
}

// Pad is Fit, filled with spaces on the right to exactly width columns.
func Pad(s string, width int, mark string) string {
	s = Fit(s, width, mark)
	return s + strings.Repeat(" ", max(0, width-Width(s)))
}

// JSON returns the JSON document doc with every character that [Clean] would
// escape, JSON's own white space apart, written as \u and four digits: the same
// document to a parser, and harmless on a terminal.
func JSON(doc []byte) []byte {
	out := make([]byte, 0, len(doc)+len(doc)/64)
	for len(doc) > 0 {
		if n := plainASCII(doc); n > 0 {
			out = append(out, doc[:n]...)
			doc = doc[n:]
			continue
		}
		r, size := utf8.DecodeRune(doc)
		switch {
		case safe(r, unicode.MaxRune) || r == '\n' || r == '\t' || r == '\r':
			out = append(out, doc[:size]...)
		case r >= 0x10000:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		doc = doc[size:]
	}
	return out
}

// plainASCII is how many printable characters of ASCII doc begins with.
func plainASCII(doc []byte) int {
	for i, c := range doc {
		if c < ' ' || c > '~' {
			return i
		}
	}
	return len(doc)
}
