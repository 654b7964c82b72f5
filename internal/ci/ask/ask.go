// Package ask holds what the adapters of CI servers that speak JSON over HTTP have
// in common: what one round of questions learned of the server itself (its clock,
// its limits), what its refusals mean, and what of an answer is none.
//
// It asks nobody: a [Doer] does, package askhttp's. It knows no CI system. Start
// with [NewRound]; a Round belongs to one goroutine.
package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

// Request is a question to a CI server.
type Request struct {
	Method string     // "" is GET
	Path   string     // below the server's address: /api/queue, each part of it already escaped: see [Path]
	Query  url.Values // nil: none
	Form   url.Values // body of a POST; nil: none
	JSON   any        // body of a POST or PATCH as JSON; nil: none
	// Sign says by which scheme the token is told; "" is Bearer.
	Sign string
	// Fresh says that no answer of before may stand for this one.
	Fresh bool
}

// Answer is what a CI server said, whatever its status.
type Answer struct {
	Status int
	Header map[string][]string // canonical names
	Body   []byte              // of a 304 that of the answer before
	At     time.Time           // our clock, in the middle of asking
}

// get returns the first value of a header of canonical name, without blanks.
func (a Answer) get(name string) string {
	if v := a.Header[name]; len(v) > 0 {
		return strings.TrimSpace(v[0])
	}
	return ""
}

// Doer puts one question and returns the answer, whatever its status. The error
// says that there is no whole answer; it holds no secret and no query.
type Doer interface {
	Do(ctx context.Context, r Request) (Answer, error)
}

// Path joins the parts of a path, each escaped: a name with a slash is one part.
func Path(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}

// Round is the questions of one poll.
type Round struct {
	do    Doer
	n     int
	now   time.Time
	clock cimeter.Opt[time.Duration]
	wait  time.Duration
}

// NewRound begins a round.
func NewRound(d Doer) *Round { return &Round{do: d} }

// Fill puts into a report what the round learned of the server: its clock, how
// long it wants to be left alone, and how many requests there were.
func (r *Round) Fill(to *queue.Report) {
	to.Clock, to.Wait, to.Requests = r.clock, r.wait, r.n
}

// Wait says that the server wants no further question for so long.
func (r *Round) Wait(d time.Duration) { r.wait = max(r.wait, min(d, maxWait)) }

// Now is the server's clock at its last answer that had a date, else ours.
func (r *Round) Now() time.Time { return r.now }

const maxWait = time.Hour // a mistaken reset must not end a source for good

// JSON puts a question and decodes the answer, an object or an array as into is
// a pointer to a struct (map) or a slice. Every error is a [queue.SourceError]:
// its Err wraps [cimeter.ErrInvalid] where a good status came with an answer that
// is none.
func (r *Round) JSON(ctx context.Context, q Request, into any) (header map[string][]string, err error) {
	a, err := r.Send(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := decode(a.Body, into); err != nil {
		return nil, r.fail(a.Status, 0, fmt.Errorf("%s: %w: %w", q.name(), err, cimeter.ErrInvalid))
	}
	return a.Header, nil
}

// Send puts a question and returns its answer of a status from 200 to 299.
func (r *Round) Send(ctx context.Context, q Request) (Answer, error) {
	r.n++
	a, err := r.do.Do(ctx, q)
	if err != nil {
		return a, r.fail(0, 0, fmt.Errorf("%s: %w", q.name(), err))
	}
	date, dateErr := time.Parse(time.RFC1123, a.get("Date"))
	if dateErr == nil {
		r.clock = cimeter.Some(date.Sub(a.At).Round(time.Second))
	} else {
		date = a.At
	}
	r.now = date
	limit := limited(a, date)
	if a.Status < 200 || a.Status > 299 {
		after := queue.RetryAfter(a.get("Retry-After"), a.get("Date"))
		if after == 0 && (a.Status == 403 || a.Status == 429) {
			after = limit
		}
		return a, r.fail(a.Status, after, fmt.Errorf("%s", q.name()))
	}
	r.wait = max(r.wait, limit)
	return a, nil
}

// Invalid is the error for an answer that is JSON and yet not what was asked for.
func (r *Round) Invalid(q Request, format string, args ...any) error {
	return r.fail(200, 0, fmt.Errorf("%s: %s: %w", q.name(), fmt.Sprintf(format, args...), cimeter.ErrInvalid))
}

func (r *Round) fail(status int, after time.Duration, err error) error {
	return &queue.SourceError{Status: status, RetryAfter: after, Requests: r.n, Err: err}
}

// name is what is shown of a question: without its query.
func (q Request) name() string {
	if q.Method == "" {
		return "GET " + q.Path
	}
	return q.Method + " " + q.Path
}

// limited is how long the server wants to be left alone when nothing is left of
// its limit: X-RateLimit-* of GitHub, Gitea and Buildkite, RateLimit-* of GitLab and of the
// draft. A reset is Unix seconds, or seconds from now where it is small.
func limited(a Answer, now time.Time) time.Duration {
	for _, prefix := range [...]string{"X-Ratelimit-", "Ratelimit-"} {
		left, err := strconv.ParseInt(a.get(prefix+"Remaining"), 10, 64)
		reset, resetErr := strconv.ParseInt(a.get(prefix+"Reset"), 10, 64)
		if err != nil || resetErr != nil || left > 0 || reset <= 0 {
			continue
		}
		const aDay = 24 * 60 * 60
		if reset < aDay {
			return min(time.Duration(reset)*time.Second, maxWait)
		}
		if reset > 1<<40 {
			continue
		}
		return min(max(time.Unix(reset, 0).Sub(now), 0), maxWait)
	}
	return 0
}

// decode refuses what json.Unmarshal takes and is no answer: null, and nothing.
func decode(b []byte, into any) error {
	b = bytes.TrimSpace(b)
	want := byte('{')
	if k := reflect.TypeOf(into).Elem().Kind(); k == reflect.Slice {
		want = '['
	}
	switch {
	case len(b) == 0:
		return fmt.Errorf("empty answer: want JSON")
	case b[0] != want:
		return fmt.Errorf("answer begins with %q: want %q", b[0], want)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("answer of %d bytes: %s", len(b), jsonError(err))
	}
	return nil
}

// jsonError tells what is wrong without the text itself, which may hold a secret.
func jsonError(err error) string {
	switch e := err.(type) {
	case *json.SyntaxError:
		return fmt.Sprintf("no JSON after byte %d", e.Offset)
	case *json.UnmarshalTypeError:
		return fmt.Sprintf("%s at byte %d: want %s", e.Field, e.Offset, e.Type)
	}
	return "not the JSON that was wanted"
}
