// Package client reads builds from the HTTP API of an agent or a server, for
// the command line.
//
// It owns one connection's worth of requests: each method makes one try and
// returns an error that names the operation and never a password or token. It
// keeps no state but idle connections and may be used by many goroutines at
// once. Start with [New].
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/section"
)

const (
	// DefaultURL is where an agent listens by default.
	DefaultURL = "http://127.0.0.1:9808"

	dialTimeout    = 10 * time.Second
	answerTimeout  = 30 * time.Second // for the header of an answer: what a server gives a request
	maxBuildBytes  = 2 << 20          // a record is at most 1 MiB; escapes may add to that
	maxListBytes   = 64 << 20         // a page of 500 builds, each more than four times a usual one
	maxErrorBytes  = 64 << 10
	maxDetailWidth = 300
)

// Options say where to ask and as whom.
type Options struct {
	URL      string // http or https; user and password in it are taken as User and Password; "" is DefaultURL
	User     string // basic auth; "" is none
	Password string
	Token    string // bearer token; excludes User
	// Transport carries the requests; nil is one with time limits, HTTP/2 and
	// the proxy of the environment.
	Transport http.RoundTripper
}

// Client asks one agent or server. Make it with New.
type Client struct {
	base  *url.URL // without user and password, path without a last slash
	o     Options
	http  *http.Client
	shown string
}

// New returns a client. The error wraps [cimeter.ErrInvalid] for an address
// that is no http or https URL, or two ways to authenticate.
func New(o Options) (*Client, error) {
	if o.URL == "" {
		o.URL = DefaultURL
	}
	u, err := url.Parse(o.URL)
	if err != nil { // its text would repeat the URL, password included
		return nil, fmt.Errorf("server address cannot be read: want http://host:port or https://host:port: %w", cimeter.ErrInvalid)
	}
	if u.User != nil {
		o.User = u.User.Username()
		o.Password, _ = u.User.Password()
		u.User = nil
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("server address %s: want http://host:port or https://host:port: %w", display.Fit(u.Redacted(), maxDetailWidth, "…"), cimeter.ErrInvalid)
	}
	if o.Token != "" && o.User != "" {
		return nil, fmt.Errorf("server address %s: a token and a user: want one of them: %w", u.Redacted(), cimeter.ErrInvalid)
	}
	o.URL = ""
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	c := &Client{base: u, o: o, shown: u.String()}
	transport := o.Transport
	if transport == nil {
		transport = &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout:   dialTimeout,
			ResponseHeaderTimeout: answerTimeout,
			IdleConnTimeout:       dialTimeout,
			ForceAttemptHTTP2:     true,
		}
	}
	c.http = &http.Client{
		Transport: transport,
		// A redirect could carry the token to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Address is the server's address, without user and password.
func (c *Client) Address() string { return c.shown }

// Filter says which builds are wanted; an empty field wants all. An agent
// refuses those of the second line, which only a server knows.
type Filter struct {
	Project, CI, Name, Stage, Runner, Machine, Result                string
	Query, Ref, Event, Pipeline, Verdict, Since, Before, Sort, Order string
	Sections                                                         bool   // with what is kept of the sections of their logs: Divided
	Limit                                                            int    // builds in a page, 1 to 500; 0 is the server's own
	Cursor                                                           string // of the page, from the one before; "" is the newest
}

func (f Filter) query() string {
	q := url.Values{}
	for name, v := range map[string]string{"project": f.Project, "ci": f.CI, "name": f.Name, "stage": f.Stage, "runner": f.Runner,
		"machine": f.Machine, "result": f.Result, "cursor": f.Cursor, "q": f.Query, "ref": f.Ref, "event": f.Event, "pipeline": f.Pipeline,
		"verdict": f.Verdict, "since": f.Since, "before": f.Before, "sort": f.Sort, "order": f.Order} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if f.Sections {
		q.Set("sections", "true")
	}
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return q.Encode()
}

// Builds returns a page of builds, the latest end first, and the cursor of the
// next page, "" at the end. A page may be short, even empty, though there is a
// next one. The error wraps [cimeter.ErrInvalid] when the server refused a
// value, [cimeter.ErrUnauthorized], or [cimeter.ErrUnavailable] when it was not
// reached or not ready.
func (c *Client) Builds(ctx context.Context, f Filter) ([]*cimeter.Record, string, error) {
	page, next, err := c.Divided(ctx, f)
	if err != nil {
		return nil, "", err
	}
	records := make([]*cimeter.Record, 0, len(page))
	for _, d := range page {
		records = append(records, d.Record)
	}
	return records, next, nil
}

// Divided returns what Builds does, with sections where the filter wants them.
func (c *Client) Divided(ctx context.Context, f Filter) ([]section.Divided, string, error) {
	var page struct {
		Builds []section.Divided `json:"builds"`
		Next   string            `json:"next"`
	}
	if err := c.get(ctx, "/api/v1/builds", f.query(), maxListBytes, &page); err != nil {
		return nil, "", fmt.Errorf("list builds from %s: %w", c.shown, err)
	}
	for _, d := range page.Builds {
		if d.Record == nil {
			return nil, "", fmt.Errorf("list builds from %s: null among the builds: want records", c.shown)
		}
	}
	return page.Builds, page.Next, nil
}

// Build returns the record of a key, which is percent-encoded as
// [cimeter.BuildKey] makes it. The error wraps [cimeter.ErrNotFound] when there
// is none, or what Builds does.
func (c *Client) Build(ctx context.Context, key string) (*cimeter.Record, error) {
	r := new(cimeter.Record)
	if err := c.get(ctx, "/api/v1/builds/"+key, "", maxBuildBytes, r); err != nil {
		return nil, fmt.Errorf("get build %s from %s: %w", display.Fit(key, maxDetailWidth, "…"), c.shown, err)
	}
	return r, nil
}

// Sections returns what the sections of a build's log divide its stages into, as far
// as they are kept: no CI server is asked. The error wraps [cimeter.ErrNotFound] where
// there are none, as of an agent.
func (c *Client) Sections(ctx context.Context, key string) (section.Parts, error) {
	var p section.Parts
	if err := c.get(ctx, "/api/v1/sections/"+key, "kept=true", maxBuildBytes, &p); err != nil {
		return section.Parts{}, fmt.Errorf("get sections of build %s from %s: %w", display.Fit(key, maxDetailWidth, "…"), c.shown, err)
	}
	return p, nil
}

// Machines returns what a build did on each of the machines that it worked on, the
// earliest start first, without traces; nothing of a build of one machine. An agent and
// an older server know nothing of it: the error wraps [cimeter.ErrInvalid].
func (c *Client) Machines(ctx context.Context, key string) ([]*cimeter.Record, error) {
	var r struct {
		Machines []*cimeter.Record `json:"machines"`
	}
	if err := c.get(ctx, "/api/v1/builds/"+key, "machines=true", maxListBytes, &r); err != nil {
		return nil, fmt.Errorf("get machines of build %s from %s: %w", display.Fit(key, maxDetailWidth, "…"), c.shown, err)
	}
	return slices.DeleteFunc(r.Machines, func(r *cimeter.Record) bool { return r == nil }), nil
}

// get asks for a path, which is escaped already, and decodes the answer.
func (c *Client) get(ctx context.Context, path, query string, limit int64, into any) error {
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return fmt.Errorf("key is not percent-encoded: %w", cimeter.ErrInvalid)
	}
	u := *c.base
	u.RawPath = u.EscapedPath() + path
	u.Path += decoded
	u.RawQuery = query
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("request cannot be made: %w", cimeter.ErrInvalid)
	}
	r.Header.Set("Accept", "application/json")
	switch {
	case c.o.Token != "":
		r.Header.Set("Authorization", "Bearer "+c.o.Token)
	case c.o.User != "":
		r.SetBasicAuth(c.o.User, c.o.Password)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// *url.Error repeats method and URL, which the caller names.
		if inner := (*url.Error)(nil); errors.As(err, &inner) {
			err = inner.Err
		}
		return fmt.Errorf("%v: %w", err, cimeter.ErrUnavailable)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("read answer: %v: %w", err, cimeter.ErrUnavailable)
	case int64(len(b)) > limit:
		return fmt.Errorf("answer is larger than %d bytes: %w", limit, cimeter.ErrInvalid)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("answer is no JSON of cimeter's: %s", display.Fit(err.Error(), maxDetailWidth, "…"))
	}
	return nil
}

// refusal makes an error of an answer that is not 200, with the server's own
// words where it gives any.
func refusal(resp *http.Response) error {
	var p struct {
		Detail string `json:"detail"`
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/problem+json" {
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
		if err != nil || json.Unmarshal(b, &p) != nil {
			p.Detail = ""
		}
	}
	text := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if p.Detail != "" {
		text += ": " + display.Fit(p.Detail, maxDetailWidth, "…")
	}
	var code error
	switch resp.StatusCode {
	case http.StatusNotFound:
		code = cimeter.ErrNotFound
	case http.StatusBadRequest:
		code = cimeter.ErrInvalid
	case http.StatusConflict:
		code = cimeter.ErrConflict
	case http.StatusUnauthorized, http.StatusForbidden:
		code = cimeter.ErrUnauthorized
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		code = cimeter.ErrUnavailable
	case http.StatusNotImplemented:
		code = cimeter.ErrUnsupported
	default:
		return errors.New(text)
	}
	return fmt.Errorf("%s: %w", text, code)
}
