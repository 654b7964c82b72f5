package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cimeter/cimeter"
)

// SourceError is why a CI server told nothing. Adapters return it from Poll and
// from everything else that asks a server; Err says what was asked, without the
// URL's query and without any secret.
type SourceError struct {
	Status     int           // of HTTP; 0: there was no whole answer
	RetryAfter time.Duration // how long the server wants to be left alone; 0: it does not say
	Requests   int           // that were made before it failed, the failed one too; 0: one
	Err        error         // never nil
}

// Error tells what failed and the status.
func (e *SourceError) Error() string {
	if e.Status == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v: answered %d", e.Err, e.Status)
}

// Unwrap returns what failed and, by the status, [cimeter.ErrUnauthorized] (401
// and 403), [cimeter.ErrNotFound] (404), [cimeter.ErrConflict] (409),
// [cimeter.ErrUnavailable] (429, 5xx and redirects) or [cimeter.ErrInvalid]
// (other 4xx).
func (e *SourceError) Unwrap() []error {
	errs := []error{e.Err}
	switch s := e.Status; {
	case s == 0, s >= 200 && s < 300:
	case s == 401, s == 403:
		errs = append(errs, cimeter.ErrUnauthorized)
	case s == 404:
		errs = append(errs, cimeter.ErrNotFound)
	case s == 409:
		errs = append(errs, cimeter.ErrConflict)
	case s >= 400 && s < 500 && s != 429:
		errs = append(errs, cimeter.ErrInvalid)
	default:
		errs = append(errs, cimeter.ErrUnavailable)
	}
	return errs
}

// Reasons are the words of [Reason], for those who count failures by reason.
func Reasons() []string {
	return []string{"timeout", "unauthorized", "limited", "unavailable", "garbage", "refused", "error"}
}

// Reason is why a CI server told nothing, in one word of [Reasons]: timeout,
// unauthorized (401, 403), limited (429), unavailable (5xx), refused (another
// status, or no connection), garbage (an answer that is none: ErrInvalid without
// a status of failure), or error.
func Reason(err error) string {
	var s *SourceError
	if errors.As(err, &s) && (s.Status >= 300 || s.Status > 0 && s.Status < 200) {
		switch {
		case s.Status == 401, s.Status == 403 && s.RetryAfter == 0:
			return "unauthorized"
		case s.Status == 429, s.Status == 403:
			return "limited" // GitHub says 403 to those who ask too often
		case s.Status >= 500:
			return "unavailable"
		}
		return "refused"
	}
	var n interface{ Timeout() bool } // net.Error
	network := errors.As(err, &n)
	switch {
	case errors.Is(err, context.DeadlineExceeded), network && n.Timeout():
		return "timeout"
	case network:
		return "refused"
	case errors.Is(err, cimeter.ErrInvalid):
		return "garbage"
	case errors.Is(err, cimeter.ErrUnauthorized):
		return "unauthorized"
	case errors.Is(err, cimeter.ErrUnavailable):
		return "unavailable"
	}
	return "error"
}

// RetryAfter reads a header Retry-After, which is seconds or a date; a date is
// compared with the header Date of the same answer, the server's own clock. What
// is neither, or in the past, is 0; more than an hour is an hour.
func RetryAfter(retryAfter, date string) time.Duration {
	const most = time.Hour // a mistaken year must not end a source for good
	if n, err := strconv.ParseUint(retryAfter, 10, 64); err == nil {
		return time.Duration(min(n, uint64(most/time.Second))) * time.Second
	}
	at, err := time.Parse(time.RFC1123, retryAfter)
	now, nowErr := time.Parse(time.RFC1123, date)
	if err != nil || nowErr != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), most)
}
