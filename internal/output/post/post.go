// Package post carries the requests of outputs that speak HTTP: where to, as
// whom, with whose certificates.
//
// It owns one receiver's address, credentials and idle connections. It makes
// one try a call, follows no redirect (one could carry a credential to another
// host), reads a bounded answer, and never names a credential, or the query of
// an address, in an error. Start with [New]; a Target may be used by many
// goroutines at once.
package post

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/outbound"
	"github.com/cimeter/cimeter/internal/refusal"
)

const (
	maxAnswerBytes = 4 << 20 // what OTLP suggests
	maxDetailWidth = 300
)

// Options say where to send and as whom.
type Options struct {
	URL     string                 // http or https, without user and password
	Headers map[string]string      // sent with each request
	User    string                 // of basic authentication; "" makes the secret a bearer token
	Secret  func() (string, error) // password of User, or token; asked before each request, so that a new one needs no restart. "" sends none
	CAFile  string                 // PEM of the authorities that may sign the receiver's certificate; "" is the system's
}

// Target is one receiver. Make it with New.
type Target struct {
	o     Options
	url   *url.URL
	shown string
	http  *outbound.Client
}

// New returns a target. The error wraps [cimeter.ErrInvalid] for an address
// that is no http or https URL and for a header that cannot be sent.
func New(o Options) (*Target, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, fmt.Errorf("address of receiver: want http://host:port/path or https://host:port/path, without user and password: %w", cimeter.ErrInvalid)
	}
	for name, value := range o.Headers {
		if !validHeader(name, value) {
			return nil, fmt.Errorf("header %q: want a name of letters, digits and dashes, and a value without line breaks: %w", display.Clean(name), cimeter.ErrInvalid)
		}
	}
	o.Headers = maps.Clone(o.Headers)
	shown := *u
	shown.RawQuery = ""
	return &Target{o: o, url: u, shown: shown.String(), http: outbound.New(outbound.Options{CAFile: o.CAFile})}, nil
}

func validHeader(name, value string) bool {
	token := func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	return name != "" && !strings.ContainsFunc(name, token) && textproto.CanonicalMIMEHeaderKey(name) != "Host" &&
		utf8.ValidString(value) && !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Address is the receiver's, without what may hold a secret.
func (t *Target) Address() string { return t.shown }

// Close closes the connections that wait for the next request.
func (t *Target) Close() { t.http.Close() }

// Post sends one body to the address with path behind it, and returns header
// and body of a 2xx answer. Any other answer is a *[refusal.Error], returned
// with its header; no answer wraps [cimeter.ErrUnavailable].
func (t *Target) Post(ctx context.Context, path string, header http.Header, body []byte) (http.Header, []byte, error) {
	to := t.url
	if path != "" {
		to = to.JoinPath(path)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, fmt.Errorf("request to %s cannot be made: %w", t.shown, cimeter.ErrInvalid)
	}
	for name, value := range t.o.Headers {
		r.Header.Set(name, value)
	}
	maps.Copy(r.Header, header)
	r.Header.Set("User-Agent", "cimeter")
	if err := t.authorize(r); err != nil {
		return nil, nil, err
	}
	resp, err := t.http.Do(r)
	if err != nil {
		return nil, nil, fmt.Errorf("post to %s: %w", t.shown, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case resp.StatusCode/100 != 2: // whatever its body is
		return resp.Header, nil, fmt.Errorf("post to %s: %w", t.shown, refused(resp, answer))
	case err != nil:
		return nil, nil, fmt.Errorf("post to %s: read answer: %w: %w", t.shown, err, cimeter.ErrUnavailable)
	case len(answer) > maxAnswerBytes:
		return nil, nil, fmt.Errorf("post to %s: answer: want at most %d bytes: %w", t.shown, maxAnswerBytes, cimeter.ErrUnavailable)
	}
	return resp.Header, answer, nil
}

func refused(resp *http.Response, answer []byte) *refusal.Error {
	detail := ""
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/plain" || kind == "application/json" {
		detail = display.Fit(strings.TrimSpace(string(answer[:min(len(answer), 4*maxDetailWidth)])), maxDetailWidth, "…")
	}
	return refusal.New(resp.StatusCode, resp.Header.Get("Retry-After"), resp.Header.Get("Date"), detail)
}

func (t *Target) authorize(r *http.Request) error {
	if t.o.Secret == nil {
		return nil
	}
	secret, err := t.o.Secret()
	switch {
	case err != nil:
		return err
	case t.o.User != "":
		r.SetBasicAuth(t.o.User, secret)
	case secret != "":
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	return nil
}
