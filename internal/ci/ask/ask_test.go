package ask_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/queue"
)

// answers gives one answer to everything.
type answers struct {
	a   ask.Answer
	err error
}

func (d answers) Do(context.Context, ask.Request) (ask.Answer, error) { return d.a, d.err }

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func answer(status int, body string, header ...string) answers {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return answers{a: ask.Answer{Status: status, Header: h, Body: []byte(body), At: now}}
}

func date(off time.Duration) string { return now.Add(off).Format(http.TimeFormat) }

func TestRound(t *testing.T) {
	for name, test := range map[string]struct {
		d      answers
		status int
		after  time.Duration
		is     error
		clock  cimeter.Opt[time.Duration]
		wait   time.Duration
	}{
		"good":                     {d: answer(200, `{"x":1}`)},
		"an hour ahead":            {d: answer(200, `{}`, "Date", date(time.Hour)), clock: cimeter.Some(time.Hour)},
		"an hour behind":           {d: answer(200, `{}`, "Date", date(-time.Hour)), clock: cimeter.Some(-time.Hour)},
		"date that is none":        {d: answer(200, `{}`, "Date", "today")},
		"array":                    {d: answer(200, `[]`), status: 200, is: cimeter.ErrInvalid},
		"null":                     {d: answer(200, ` null `), status: 200, is: cimeter.ErrInvalid},
		"nothing":                  {d: answer(204, ``), status: 204, is: cimeter.ErrInvalid},
		"another type":             {d: answer(200, `{"x":"geheim"}`), status: 200, is: cimeter.ErrInvalid},
		"two":                      {d: answer(200, `{}{}`), status: 200, is: cimeter.ErrInvalid},
		"limit reached, good":      {d: answer(200, `{}`, "Date", date(-time.Hour), "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1796036460"), clock: cimeter.Some(-time.Hour), wait: time.Minute},
		"limit not reached":        {d: answer(200, `{}`, "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1796040060")},
		"seconds until the reset":  {d: answer(200, `{}`, "RateLimit-Remaining", "0", "RateLimit-Reset", "42"), wait: 42 * time.Second},
		"reset in a thousand days": {d: answer(200, `{}`, "RateLimit-Remaining", "0", "RateLimit-Reset", "1882440000"), wait: time.Hour},
		"reset before now":         {d: answer(200, `{}`, "RateLimit-Remaining", "0", "RateLimit-Reset", "1796036400")},
		"reset that is none":       {d: answer(200, `{}`, "RateLimit-Remaining", "0", "RateLimit-Reset", "99999999999999999")},
		"429":                      {d: answer(429, `{}`, "Retry-After", "7"), status: 429, after: 7 * time.Second, is: cimeter.ErrUnavailable},
		"429 by limit":             {d: answer(429, ``, "Date", date(0), "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1796040060"), status: 429, after: time.Minute, is: cimeter.ErrUnavailable, clock: cimeter.Some(time.Duration(0))},
		"403 by limit":             {d: answer(403, ``, "Date", date(0), "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1796040060"), status: 403, after: time.Minute, is: cimeter.ErrUnauthorized, clock: cimeter.Some(time.Duration(0))},
		"403":                      {d: answer(403, ``), status: 403, is: cimeter.ErrUnauthorized},
		"500 does not wait":        {d: answer(500, ``, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1796040060"), status: 500, is: cimeter.ErrUnavailable},
		"304 that nobody asked":    {d: answer(304, ``), status: 304, is: cimeter.ErrUnavailable},
		"no answer":                {d: answers{err: context.DeadlineExceeded}, is: context.DeadlineExceeded},
	} {
		r := ask.NewRound(test.d)
		var into struct{ X int }
		_, err := r.JSON(t.Context(), ask.Request{Path: "/p", Query: map[string][]string{"secret": {"geheim"}}}, &into)
		var source *queue.SourceError
		if (err != nil) != (test.is != nil) || err != nil && (!errors.Is(err, test.is) || !errors.As(err, &source) || source.Status != test.status || source.RetryAfter != test.after || source.Requests != 1) {
			t.Errorf("%s: %#v: want %v, %d, %v", name, err, test.is, test.status, test.after)
		}
		if err != nil && strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v tells what it must not", name, err)
		}
		var report queue.Report
		r.Fill(&report)
		if report.Clock != test.clock || report.Wait != test.wait || report.Requests != 1 {
			t.Errorf("%s: clock %v, wait %v: want %v, %v", name, report.Clock, report.Wait, test.clock, test.wait)
		}
	}
}

func TestTimes(t *testing.T) {
	for in, want := range map[string]string{
		`"2026-11-30T07:09:40Z"`: "2026-11-30T07:09:40Z", `"2026-11-30T08:09:40.5+01:00"`: "2026-11-30T07:09:40.5Z", `"2026-11-30 07:09:40 UTC"`: "2026-11-30T07:09:40Z",
		`"2026-11-30 09:09:40 +0200"`: "2026-11-30T07:09:40Z", `null`: "", `""`: "", `"yesterday"`: "", `0`: "", `{}`: "",
	} {
		var at ask.Time
		if err := json.Unmarshal([]byte(in), &at); err != nil || (want == "") != at.IsZero() || want != "" && at.Format(time.RFC3339Nano) != want {
			t.Errorf("%s is %v, %v: want %q", in, at, err, want)
		}
	}
	for name, at := range map[string]time.Time{
		"0": ask.Unix(0), "-1": ask.Unix(-1), "far": ask.Unix(1 << 60), "milli 0": ask.Milli(0), "milli far": ask.Milli(1 << 62),
		"1970": ask.Known(time.Unix(0, 0)), "year 1": ask.Known(time.Time{}),
	} {
		if !at.IsZero() {
			t.Errorf("%s is %v: want no time", name, at)
		}
	}
}

func TestSigned(t *testing.T) {
	// RFC 4231, test case 2.
	if !ask.Signed("Jefe", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843", []byte("what do ya want "), []byte("for nothing?")) {
		t.Error("the RFC's example is refused")
	}
	if ask.Signed("", "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad") {
		t.Error("an empty secret signs")
	}
}
