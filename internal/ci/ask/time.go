package ask

import (
	"strings"
	"time"
)

// Unix is a time in seconds since 1970, as Drone, Woodpecker and Gitea tell it; 0
// and what is before is not known.
func Unix(s int64) time.Time {
	if s <= 0 || s > 1<<40 {
		return time.Time{}
	}
	return time.Unix(s, 0).UTC()
}

// Milli is a time in milliseconds since 1970; 0 and what is before is not known.
func Milli(ms int64) time.Time {
	if ms <= 0 || ms > 1<<50 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Known is t, or no time where t is that of a 0: year 1 or 1970.
func Known(t time.Time) time.Time {
	if t.Unix() <= 0 {
		return time.Time{}
	}
	return t.UTC()
}

// Time is a time as servers write it: RFC 3339, or 2026-11-30 07:09:40 UTC, which
// older ones do. What is neither is not known.
type Time struct{ time.Time }

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Time) UnmarshalJSON(b []byte) error {
	t.Time = time.Time{}
	s := strings.Trim(string(b), `"`)
	for _, layout := range [...]string{time.RFC3339, "2006-01-02 15:04:05 UTC", "2006-01-02 15:04:05 -0700"} {
		if at, err := time.Parse(layout, s); err == nil {
			t.Time = at.UTC()
			break
		}
	}
	return nil
}
