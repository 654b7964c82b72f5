package store

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
)

// position is where a page ended in the order of its list.
type position struct {
	value, id int64
}

// A cursor is the position with the order it belongs to: a cursor of one list
// is refused by another instead of skipping builds there.
func encodeCursor(s Sort, asc bool, p position) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s %t %d %d", s, asc, p.value, p.id))
}

func decodeCursor(s Sort, asc bool, cursor string) (position, error) {
	bad := func() (position, error) {
		return position{}, fmt.Errorf("cursor %.40q: want one that a page sorted by %s gave: %w", cursor, s, cimeter.ErrInvalid)
	}
	if len(cursor) > 128 {
		return bad()
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return bad()
	}
	parts := strings.Split(string(b), " ")
	if len(parts) != 4 || parts[0] != string(s) || parts[1] != strconv.FormatBool(asc) {
		return bad()
	}
	value, err1 := strconv.ParseInt(parts[2], 10, 64)
	id, err2 := strconv.ParseInt(parts[3], 10, 64)
	if err1 != nil || err2 != nil || encodeCursor(s, asc, position{value, id}) != cursor {
		return bad()
	}
	return position{value, id}, nil
}
