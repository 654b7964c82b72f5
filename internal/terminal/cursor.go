package terminal

import "slices"

// cursor is the mark on a row and the part of the rows that is on the screen. The mark
// stays on its build, whatever the order is.
type cursor struct {
	key  string // of the marked row
	top  int    // first row on the screen
	page int    // rows on the screen of the last frame
}

// press moves the mark over rows of these keys; false: the key does something else.
func (c *cursor) press(k Key, keys []string) bool {
	switch k {
	case Up, 'k':
		c.move(keys, -1)
	case Down, 'j':
		c.move(keys, 1)
	case PageUp:
		c.move(keys, -c.page)
	case PageDown:
		c.move(keys, c.page)
	case Home, 'g':
		c.move(keys, -len(keys))
	case End, 'G':
		c.move(keys, len(keys))
	default:
		return false
	}
	return true
}

// move moves the mark by some rows and returns the key of the row it is on; "" when
// there is none.
func (c *cursor) move(keys []string, by int) string {
	if len(keys) == 0 {
		return ""
	}
	at := slices.Index(keys, c.key)
	if at < 0 { // the first press only shows where it is
		at, by = 0, max(0, by-1)
	}
	c.key = keys[min(max(0, at+by), len(keys)-1)]
	return c.key
}

// show returns which rows are on a screen with room for so many, and which of them is
// marked; -1: none.
func (c *cursor) show(keys []string, room int) (from, to, at int) {
	c.page = max(1, room)
	at = slices.Index(keys, c.key)
	if at >= 0 {
		c.top = min(max(c.top, at-c.page+1), at)
	}
	c.top = max(0, min(c.top, len(keys)-c.page))
	return c.top, min(len(keys), c.top+c.page), at
}
