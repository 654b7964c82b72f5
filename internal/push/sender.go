package push

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/outbound"
	"github.com/cimeter/cimeter/internal/wire"
)

const (
	recordsTimeout   = 60 * time.Second // of a whole try with a batch
	heartbeatTimeout = 5 * time.Second
	maxAnswerBytes   = 1 << 20
	maxDetailWidth   = 300
	maxRetryAfter    = 10 * time.Minute // what a server may ask for
)

// SenderOptions say where to send and as whom.
type SenderOptions struct {
	URL    string                 // http or https, without user and password
	Token  func() (string, error) // asked before each request, so that a new token needs no restart; "" sends none
	CAFile string                 // PEM of the authorities that may sign the server's certificate; "" is the system's
	Agent  string                 // tells this agent from all others: spool.Spool.ID
	// Transport carries the requests; nil is one with time limits and CAFile.
	Transport http.RoundTripper
}

// Sender makes one try to send something to a server. Make it with NewSender;
// it may be used by many goroutines at once.
type Sender struct {
	o    SenderOptions
	base string
	http *outbound.Client
}

// NewSender returns a sender. The error wraps [cimeter.ErrInvalid] for an
// address that is no http or https URL.
func NewSender(o SenderOptions) (*Sender, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("server address: want http://host:port or https://host:port, without user and password: %w", cimeter.ErrInvalid)
	}
	return &Sender{
		o: o, base: strings.TrimRight(u.String(), "/"),
		http: outbound.New(outbound.Options{CAFile: o.CAFile, Answer: recordsTimeout, Transport: o.Transport}),
	}, nil
}

// Address is the server's.
func (s *Sender) Address() string { return s.base }

// Refusal is an answer of the server that is not what was hoped for.
type Refusal struct {
	Status int
	Detail string
	After  time.Duration // how long it asks to be left alone; 0 when it does not say
}

func (r *Refusal) Error() string {
	text := fmt.Sprintf("%d %s", r.Status, http.StatusText(r.Status))
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	return text
}

// Records sends a batch of lines, each a record's JSON, and returns one result
// a line. The error is a *Refusal, or wraps [cimeter.ErrUnavailable] when the
// server did not answer.
func (s *Sender) Records(ctx context.Context, lines [][]byte) ([]wire.Result, error) {
	body, encoding, err := wire.EncodeBatch(lines)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, recordsTimeout)
	defer cancel()
	var answer wire.Answer
	if err := s.post(ctx, wire.RecordsPath, wire.ContentType(), encoding, body, &answer); err != nil {
		return nil, fmt.Errorf("send %d records to %s: %w", len(lines), s.base, err)
	}
	if len(answer.Results) != len(lines) {
		return nil, fmt.Errorf("send %d records to %s: answer has %d results: %w", len(lines), s.base, len(answer.Results), cimeter.ErrUnavailable)
	}
	return answer.Results, nil
}

// Heartbeat sends one heartbeat.
func (s *Sender) Heartbeat(ctx context.Context, h wire.Heartbeat) error {
	b, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode heartbeat: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	if err := s.post(ctx, wire.HeartbeatPath, "application/json", "", b, nil); err != nil {
		return fmt.Errorf("send heartbeat to %s: %w", s.base, err)
	}
	return nil
}

// Close closes the connections that wait for the next request.
func (s *Sender) Close() { s.http.Close() }

func (s *Sender) post(ctx context.Context, path, contentType, encoding string, body []byte, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("request cannot be made: %w", cimeter.ErrInvalid)
	}
	r.Header.Set("Content-Type", contentType)
	if encoding != "" {
		r.Header.Set("Content-Encoding", encoding)
	}
	r.Header.Set("User-Agent", "cimeter")
	if s.o.Agent != "" {
		r.Header.Set(wire.AgentHeader, s.o.Agent)
	}
	if s.o.Token != nil {
		token, err := s.o.Token()
		if err != nil {
			return err
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	switch {
	case err != nil:
		return fmt.Errorf("read answer: %w: %w", err, cimeter.ErrUnavailable)
	case resp.StatusCode/100 != 2:
		return refusal(resp, answer)
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("answer is no JSON of cimeter's: %w", cimeter.ErrUnavailable)
	}
	return nil
}

func refusal(resp *http.Response, answer []byte) error {
	refused := &Refusal{Status: resp.StatusCode}
	var problem struct {
		Detail string `json:"detail"`
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/problem+json" && json.Unmarshal(answer, &problem) == nil {
		refused.Detail = display.Fit(problem.Detail, maxDetailWidth, "…")
	}
	// The other form of Retry-After, a date, would need clocks that agree.
	if n, err := strconv.Atoi(strings.TrimSpace(resp.Header.Get("Retry-After"))); err == nil && n > 0 {
		refused.After = min(time.Duration(min(n, 86400))*time.Second, maxRetryAfter)
	}
	return refused
}
