// Package refusal is what a receiver of metrics says when it does not take
// them: an HTTP status, a reason, and how long it wants to be left alone.
//
// It knows no protocol and sends nothing; what a status means for the batch is
// the output's to say. Start with [New]. Everything is a value.
package refusal

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

// maxAfter bounds what a receiver may ask for: a mistaken year must not silence
// an output until somebody restarts it.
const maxAfter = 10 * time.Minute

// Error is an answer that is no success.
type Error struct {
	Status int           // of HTTP
	Detail string        // what the receiver said, fit to be shown; may be empty
	After  time.Duration // how long it asks to be left alone; 0 when it does not say
}

// New returns the error of an answer. The receiver's headers Retry-After and
// Date are taken as they are: the first is seconds or a date, and a date is
// compared with the receiver's own clock.
func New(status int, retryAfter, date, detail string) *Error {
	return &Error{Status: status, Detail: detail, After: after(strings.TrimSpace(retryAfter), date)}
}

func after(retryAfter, date string) time.Duration {
	if n, err := strconv.ParseUint(retryAfter, 10, 64); err == nil {
		return time.Duration(min(n, uint64(maxAfter/time.Second))) * time.Second
	}
	at, err := time.Parse(time.RFC1123, retryAfter)
	now, nowErr := time.Parse(time.RFC1123, date)
	if err != nil || nowErr != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxAfter)
}

// Error tells status and detail.
func (e *Error) Error() string {
	text := fmt.Sprintf("answered %d", e.Status)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// RetryAfter is After.
func (e *Error) RetryAfter() time.Duration { return e.After }

// Unwrap returns [cimeter.ErrUnauthorized] for 401 and 403, [cimeter.ErrUnavailable]
// for 429 and what is no 4xx, and [cimeter.ErrInvalid] for the rest.
func (e *Error) Unwrap() error {
	switch {
	case e.Status == 401 || e.Status == 403:
		return cimeter.ErrUnauthorized
	case e.Status == 429 || e.Status < 400 || e.Status > 499:
		return cimeter.ErrUnavailable
	}
	return cimeter.ErrInvalid
}
