package ask

import (
	"time"

	"github.com/cimeter/cimeter"
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

// Between is how many seconds lie between two times of one clock; absent where
// one is not known, or they stand the wrong way round.
func Between(from, to time.Time) cimeter.Opt[float64] {
	if from.IsZero() || to.IsZero() || to.Before(from) {
		return cimeter.Opt[float64]{}
	}
	return cimeter.Some(to.Sub(from).Seconds())
}
