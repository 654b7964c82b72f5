package gitlabapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	// maxAnswer bounds an answer: a page of 100 jobs is some 300 KiB.
	maxAnswer = 8 << 20
	// maxTrace bounds a job's log. Runners end theirs at 4 MiB unless told otherwise.
	maxTrace = 64 << 20
	// maxKept and maxKeptBytes bound the answers that are kept for their validator:
	// those of projects where nothing happens are a few bytes.
	maxKept      = 4096
	maxKeptBytes = 16 << 20
	maxOneKept   = 256 << 10
)

// exchange is what the requests of one call told of themselves.
type exchange struct {
	right    right
	limit    int64 // most bytes of an answer; 0 is maxAnswer
	requests int
	status   int           // of the last answer; 0: there was none
	wait     time.Duration // that the server asks for
	clock    cimeter.Opt[time.Duration]
	fault    error // why there is no whole answer
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{}
}

// wire carries requests to one host. It adds validators to GETs and answers 304 with
// what they are of; it bounds answers, and notes in the exchange what the headers say.
type wire struct {
	base http.RoundTripper
	host string
	now  func() time.Time

	mu   sync.Mutex
	kept map[string]kept
	size int
}

type kept struct {
	etag   string
	header http.Header
	body   []byte
}

var (
	errElsewhere = fmt.Errorf("address of another host: %w", cimeter.ErrInvalid)
	errTooLong   = fmt.Errorf("answer is longer than any honest one: %w", cimeter.ErrInvalid)
)

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	x.requests++
	x.status, x.fault, x.wait = 0, nil, 0
	if req.URL.Host != w.host {
		x.fault = errElsewhere
		return nil, errElsewhere
	}
	key := req.URL.String()
	old, ok := w.keptOf(key)
	if ok && req.Method == http.MethodGet {
		req = req.Clone(req.Context())
		req.Header.Set("If-None-Match", old.etag)
	}
	sent := w.now()
	resp, err := w.base.RoundTrip(req)
	if err != nil {
		x.fault = reasonOf(err)
		return nil, err
	}
	x.note(resp, sent, w.now())
	if resp.StatusCode == http.StatusNotModified && ok {
		resp.Body.Close()
		x.status = http.StatusOK
		resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
		for _, name := range [...]string{"Link", "Content-Type"} {
			if v := old.header.Values(name); v != nil && resp.Header.Get(name) == "" {
				resp.Header[name] = v
			}
		}
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(old.body)), int64(len(old.body))
		return resp, nil
	}
	limit := x.limit
	if limit == 0 {
		limit = maxAnswer
	}
	body := &bounded{ReadCloser: resp.Body, left: limit, x: x}
	resp.Body = body
	if etag := resp.Header.Get("ETag"); etag != "" && req.Method == http.MethodGet && resp.StatusCode == http.StatusOK && x.limit == 0 {
		resp.Body = &keeping{bounded: body, wire: w, key: key, kept: kept{etag: etag, header: resp.Header.Clone()}}
	}
	return resp, nil
}

// reasonOf is why a request failed, without its URL.
func reasonOf(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return fmt.Errorf("%w: %w", cimeter.ErrUnavailable, err)
}

// note reads status, clock and limits off an answer.
func (x *exchange) note(resp *http.Response, sent, got time.Time) {
	h := resp.Header
	x.status = resp.StatusCode
	date := h.Get("Date")
	if at, err := http.ParseTime(date); err == nil {
		// the header has whole seconds, cut: half of one is added
		x.clock = cimeter.Some(at.Add(500 * time.Millisecond).Sub(sent.Add(got.Sub(sent) / 2)).Round(time.Millisecond))
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusForbidden {
		if x.wait = queue.RetryAfter(h.Get("Retry-After"), date); x.wait == 0 && resp.StatusCode == http.StatusTooManyRequests {
			x.wait = queue.RetryAfter(h.Get("RateLimit-ResetTime"), date)
		}
	}
	if x.wait == 0 && resp.StatusCode != http.StatusForbidden {
		x.wait = untilReset(h)
	}
}

// untilReset is how long to wait where less than a tenth of a limit is left.
func untilReset(h http.Header) time.Duration {
	limit, err1 := strconv.ParseInt(h.Get("RateLimit-Limit"), 10, 64)
	left, err2 := strconv.ParseInt(h.Get("RateLimit-Remaining"), 10, 64)
	reset, err3 := strconv.ParseInt(h.Get("RateLimit-Reset"), 10, 64)
	now, err4 := http.ParseTime(h.Get("Date"))
	if errors.Join(err1, err2, err3, err4) != nil || limit <= 0 || left > limit/10 {
		return 0
	}
	return min(max(0, time.Unix(reset, 0).Sub(now)), time.Hour)
}

// bounded ends an answer that is too long with an error.
type bounded struct {
	io.ReadCloser
	left int64
	x    *exchange
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		var one [1]byte
		if n, err := b.ReadCloser.Read(one[:]); n == 0 {
			return 0, b.failed(err)
		}
		b.x.fault = errTooLong
		return 0, b.x.fault
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, b.failed(err)
}

func (b *bounded) failed(err error) error {
	if err != nil && err != io.EOF && b.x.fault == nil {
		b.x.fault = fmt.Errorf("answer ends in the middle: %w", reasonOf(err))
	}
	return err
}

// keeping keeps a whole answer with its validator.
type keeping struct {
	*bounded
	wire *wire
	key  string
	kept kept
	lost bool
}

func (k *keeping) Read(p []byte) (int, error) {
	n, err := k.bounded.Read(p)
	if k.lost = k.lost || len(k.kept.body)+n > maxOneKept; !k.lost {
		k.kept.body = append(k.kept.body, p[:n]...)
	}
	if err == io.EOF && !k.lost {
		k.wire.keep(k.key, k.kept)
		k.lost = true
	}
	return n, err
}

func (w *wire) keptOf(key string) (kept, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k, ok := w.kept[key]
	return k, ok
}

func (w *wire) keep(key string, k kept) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kept == nil {
		w.kept = make(map[string]kept)
	}
	w.size += len(k.body) - len(w.kept[key].body)
	w.kept[key] = k
	for other := range w.kept { // any: pages that are asked again come back
		if len(w.kept) <= maxKept && w.size <= maxKeptBytes {
			break
		}
		if other != key {
			w.size -= len(w.kept[other].body)
			delete(w.kept, other)
		}
	}
}
