package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

func TestReason(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	_, refused := http.Get(closed.URL)
	var syntax error = json.Unmarshal([]byte("<html>"), &struct{}{})
	answered := func(status int) error {
		return fmt.Errorf("poll: %w", &queue.SourceError{Status: status, Err: errors.New("GET /x")})
	}
	for _, c := range []struct {
		err  error
		want string
		is   error
	}{
		{answered(401), "unauthorized", cimeter.ErrUnauthorized},
		{answered(403), "unauthorized", cimeter.ErrUnauthorized},
		{&queue.SourceError{Status: 403, RetryAfter: time.Minute, Err: errors.New("x")}, "limited", cimeter.ErrUnauthorized},
		{answered(429), "limited", cimeter.ErrUnavailable},
		{answered(404), "refused", cimeter.ErrNotFound},
		{answered(409), "refused", cimeter.ErrConflict},
		{answered(422), "refused", cimeter.ErrInvalid},
		{answered(302), "refused", cimeter.ErrUnavailable},
		{answered(500), "unavailable", cimeter.ErrUnavailable},
		{&queue.SourceError{Status: 200, Err: fmt.Errorf("decode: %v: %w", syntax, cimeter.ErrInvalid)}, "garbage", cimeter.ErrInvalid},
		{&queue.SourceError{Err: fmt.Errorf("GET /x: %w", context.DeadlineExceeded)}, "timeout", context.DeadlineExceeded},
		{&queue.SourceError{Err: &net.OpError{Op: "read", Err: timeoutError{}}}, "timeout", nil},
		{&queue.SourceError{Err: refused}, "refused", refused},
		{errors.New("x"), "error", nil},
	} {
		if got := queue.Reason(c.err); got != c.want || !slices.Contains(queue.Reasons(), got) {
			t.Errorf("%v: %q: want %q", c.err, got, c.want)
		}
		if c.is != nil && !errors.Is(c.err, c.is) {
			t.Errorf("%v: want %v", c.err, c.is)
		}
	}
}

type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

func TestRetryAfter(t *testing.T) {
	const date = "Mon, 30 Nov 2026 11:00:00 GMT"
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-7": 0, "soon": 0, "99999": time.Hour,
		"Mon, 30 Nov 2026 11:01:30 GMT": 90 * time.Second, "Mon, 30 Nov 2026 10:01:30 GMT": 0,
	} {
		if got := queue.RetryAfter(header, date); got != want {
			t.Errorf("%q: %v: want %v", header, got, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("7", "")
	f.Add("Mon, 30 Nov 2026 11:01:30 GMT", "Mon, 30 Nov 2026 11:00:00 GMT")
	f.Add("99999999999999999999", "x")
	f.Fuzz(func(t *testing.T, header, date string) {
		if d := queue.RetryAfter(header, date); d < 0 || d > time.Hour {
			t.Errorf("%v", d)
		}
	})
}
