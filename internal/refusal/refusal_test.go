package refusal_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/refusal"
)

func TestNew_retryAfter(t *testing.T) {
	const date = "Mon, 30 Nov 2026 11:00:00 GMT"
	for _, c := range []struct {
		header, date string
		want         time.Duration
	}{
		{header: "", want: 0},
		{header: "7", want: 7 * time.Second},
		{header: " 7 ", want: 7 * time.Second},
		{header: "0", want: 0},
		{header: "-7", want: 0},
		{header: "99999999999999999999", want: 0},
		{header: "9999999999999999999", want: 10 * time.Minute},
		{header: "soon", date: date, want: 0},
		{header: "Mon, 30 Nov 2026 11:01:30 GMT", date: date, want: 90 * time.Second},
		{header: "Mon, 30 Nov 2026 10:01:30 GMT", date: date, want: 0},
		{header: "Mon, 30 Nov 2099 11:01:30 GMT", date: date, want: 10 * time.Minute},
		{header: "Mon, 30 Nov 2026 11:01:30 GMT", date: "", want: 0},
	} {
		if got := refusal.New(503, c.header, c.date, "").RetryAfter(); got != c.want {
			t.Errorf("Retry-After %q at %q: %v, want %v", c.header, c.date, got, c.want)
		}
	}
}

func TestError_kinds(t *testing.T) {
	for status, want := range map[int]error{
		302: cimeter.ErrUnavailable, 400: cimeter.ErrInvalid, 401: cimeter.ErrUnauthorized, 403: cimeter.ErrUnauthorized,
		404: cimeter.ErrInvalid, 429: cimeter.ErrUnavailable, 500: cimeter.ErrUnavailable, 503: cimeter.ErrUnavailable,
	} {
		if err := refusal.New(status, "", "", "x"); !errors.Is(err, want) {
			t.Errorf("%v: want %v", err, want)
		}
	}
	if got, want := refusal.New(503, "", "", "").Error(), "answered 503"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
