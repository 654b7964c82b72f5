// Package askhttp puts questions to a CI server over HTTP.
//
// It owns one server's address, credential, idle connections, and the answers
// that came with an ETag, so that a server that answers 304 need not tell all
// again. It makes one try a call, follows no redirect (one could carry a credential
// to another host), reads a bounded answer, and names no credential and no query in an
// error. Start with [New]; a Server may be used by many goroutines at once.
package askhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/outbound"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	maxAnswerBytes = 32 << 20
	maxKept        = 256     // answers with an ETag
	maxKeptBytes   = 8 << 20 // of all of them
)

// Options say which server is asked, and as whom.
type Options struct {
	URL    string                 // http or https, without user and password
	User   string                 // of basic authentication; "" sends the token by the question's scheme
	Token  func() (string, error) // asked for before each request; nil or "": none
	CAFile string                 // PEM of the authorities that may sign its certificate; "": the system's
	// Header is sent with each request: Accept and the like.
	Header map[string]string
}

// Server is one CI server. Make it with New.
type Server struct {
	o    Options
	base *url.URL
	http *outbound.Client

	asked atomic.Int64

	mu   sync.Mutex
	kept map[string]answer
	size int
}

// answer is one that came with an ETag, and for which token.
type answer struct {
	etag, token string
	body        []byte
}

// New returns a server. The error wraps [cimeter.ErrInvalid] for an address that
// is no http or https URL.
func New(o Options) (*Server, error) {
	u, err := url.Parse(strings.TrimRight(o.URL, "/"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("address of the CI server: want http://HOST or https://HOST, without user and password: %w", cimeter.ErrInvalid)
	}
	return &Server{o: o, base: u, http: outbound.New(outbound.Options{CAFile: o.CAFile}), kept: make(map[string]answer)}, nil
}

// Do implements [ask.Doer].
func (s *Server) Do(ctx context.Context, q ask.Request) (ask.Answer, error) {
	r, token, err := s.request(ctx, q)
	if err != nil {
		return ask.Answer{}, err
	}
	key := r.URL.String()
	get := r.Method == http.MethodGet && !q.Fresh
	had, ok := s.keeping(key, token)
	if get && ok {
		r.Header.Set("If-None-Match", had.etag)
	}
	began := time.Now()
	s.asked.Add(1)
	resp, err := s.http.Do(r)
	if err != nil {
		return ask.Answer{}, err
	}
	defer resp.Body.Close()
	now := time.Now()
	a := ask.Answer{Status: resp.StatusCode, Header: resp.Header, At: began.Add(now.Sub(began) / 2)}
	if a.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1)); err != nil {
		return ask.Answer{}, fmt.Errorf("read the answer: %w", bare(err))
	}
	if len(a.Body) > maxAnswerBytes {
		return ask.Answer{}, fmt.Errorf("answer is longer than %d bytes: %w", maxAnswerBytes, cimeter.ErrInvalid)
	}
	switch {
	case get && ok && a.Status == http.StatusNotModified:
		a.Status, a.Body = http.StatusOK, had.body
	case get && a.Status == http.StatusOK:
		s.keep(key, answer{etag: resp.Header.Get("ETag"), token: token, body: a.Body})
	}
	return a, nil
}

// Asked is how many questions were put so far, tries and unchanged answers included.
func (s *Server) Asked() int64 { return s.asked.Load() }

func (s *Server) request(ctx context.Context, q ask.Request) (*http.Request, string, error) {
	u := s.base.JoinPath(q.Path)
	u.RawQuery = q.Query.Encode()
	method := q.Method
	if method == "" {
		method = http.MethodGet
	}
	var body io.Reader
	kind := "application/x-www-form-urlencoded"
	switch {
	case q.JSON != nil:
		b, err := json.Marshal(q.JSON)
		if err != nil {
			return nil, "", err
		}
		body, kind = bytes.NewReader(b), "application/json"
	case q.Form != nil:
		body = strings.NewReader(q.Form.Encode())
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, "", bare(err)
	}
	r.Header.Set("User-Agent", "cimeter")
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", kind)
	}
	for name, value := range s.o.Header {
		r.Header.Set(name, value)
	}
	if s.o.Token == nil {
		return r, "", nil
	}
	token, err := s.o.Token()
	if err != nil {
		return nil, "", fmt.Errorf("read the token: %w", err)
	}
	token = strings.TrimSpace(token)
	switch scheme := q.Sign; {
	case token == "":
	case s.o.User != "":
		r.SetBasicAuth(s.o.User, token)
	case scheme == "":
		r.Header.Set("Authorization", "Bearer "+token)
	default:
		r.Header.Set("Authorization", scheme+" "+token)
	}
	return r, token, nil
}

func (s *Server) keeping(key, token string) (answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.kept[key]
	return a, ok && a.token == token
}

// keep remembers an answer that has an ETag. What is over the bounds makes all
// others be forgotten: they come anew with the next round.
func (s *Server) keep(key string, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size -= len(s.kept[key].body)
	delete(s.kept, key)
	if a.etag == "" || len(a.body) > maxKeptBytes {
		return
	}
	if len(s.kept) >= maxKept || s.size+len(a.body) > maxKeptBytes {
		clear(s.kept)
		s.size = 0
	}
	s.kept[key] = a
	s.size += len(a.body)
}

// bare is an error without the URL, whose query could hold a secret.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// Stream puts a question whose answer does not end, and returns its body, which
// ends with ctx. The error is a [queue.SourceError] where the answer is not a good one.
func (s *Server) Stream(ctx context.Context, q ask.Request) (io.ReadCloser, error) {
	r, _, err := s.request(ctx, q)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := s.http.Do(r)
	if err != nil {
		return nil, &queue.SourceError{Err: fmt.Errorf("GET %s: %w", q.Path, err)}
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, &queue.SourceError{Status: resp.StatusCode, RetryAfter: queue.RetryAfter(resp.Header.Get("Retry-After"), resp.Header.Get("Date")), Err: fmt.Errorf("GET %s", q.Path)}
	}
	return resp.Body, nil
}
