package gitlabapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	gl "gitlab.com/gitlab-org/api/client-go/v2"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/outbound"
	"github.com/cimeter/cimeter/internal/queue"
)

// Interval is how often a server should be polled for new pending builds to be seen
// within 15 s.
const Interval = 10 * time.Second

const (
	defaultRequests = 50 // a minute: the fleet's other requests, of notes and traces, fit below 60
	requestTimeout  = 30 * time.Second
)

// Token gives a token before each request, so that a new one needs no restart.
type Token func() (string, error)

// Options say which server to ask, and as whom.
type Options struct {
	URL         string            // https://gitlab.example.com, with the path under which it is served if it has one
	Token       Token             // reads: scope read_api. An administrator's sees the whole server
	CancelToken Token             // cancels builds: scope api; nil: Cancel is refused
	WriteToken  Token             // writes notes and statuses: scope api; nil: both are refused
	Projects    []string          // paths of the projects to ask; empty: the whole server, else all that the token is a member of
	Requests    int               // most requests of Poll in a minute; 0 is 50
	Transport   http.RoundTripper // nil is one with the system's authorities
	Now         func() time.Time  // nil is time.Now
}

// Client asks one GitLab server. Make it with [New].
type Client struct {
	o      Options
	server string // host and port, as keys have it
	origin string // scheme, host and port, for pages
	gl     *gl.Client
	http   *http.Client
	poll   pollState
}

// New returns a client. The error wraps [cimeter.ErrInvalid] for an address that is
// none.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("address of GitLab: want https://HOST[:PORT][/PATH], without user and password: %w", cimeter.ErrInvalid)
	}
	if o.Requests <= 0 {
		o.Requests = defaultRequests
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Transport == nil {
		if o.Transport, err = outbound.Transport(outbound.Options{}); err != nil {
			return nil, err
		}
	}
	c := &Client{o: o, server: ci.ServerOf(o.URL), origin: u.Scheme + "://" + u.Host}
	c.http = &http.Client{
		Transport:     &wire{base: o.Transport, host: u.Host, now: o.Now},
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.gl, err = gl.NewAuthSourceClient(auth{c},
		gl.WithBaseURL(o.URL), gl.WithHTTPClient(c.http), gl.WithoutRetries(), gl.WithCustomLimiter(noLimit{}), gl.WithUserAgent("cimeter"),
		gl.WithURLWarningLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, fmt.Errorf("address of GitLab: %w", cimeter.ErrInvalid)
	}
	return c, nil
}

// Server is the host of the server, as keys of builds have it.
func (c *Client) Server() string { return c.server }

// noLimit: requests are counted where they are made, and nothing here sleeps.
type noLimit struct{}

func (noLimit) Wait(context.Context) error { return nil }

// right is which token a request is made with.
type right int

const (
	mayRead right = iota
	mayCancel
	mayWrite
)

// auth gives client-go the token for a request.
type auth struct{ c *Client }

func (auth) Init(context.Context, *gl.Client) error { return nil }

func (a auth) Header(ctx context.Context) (key, value string, err error) {
	x := exchangeOf(ctx)
	give := [...]Token{a.c.o.Token, a.c.o.CancelToken, a.c.o.WriteToken}[x.right]
	if give == nil {
		x.fault = fmt.Errorf("no token for this is given: %w", cimeter.ErrUnauthorized)
		return "", "", x.fault
	}
	token, err := give()
	if err == nil && (token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })) {
		err = fmt.Errorf("token: want printable ASCII without spaces: %w", cimeter.ErrInvalid)
	}
	if err != nil {
		x.fault = err
		return "", "", err
	}
	return "PRIVATE-TOKEN", token, nil
}

// start returns a context whose requests are accounted for in the exchange.
func (c *Client) start(ctx context.Context, r right) (context.Context, *exchange) {
	x := &exchange{right: r}
	return context.WithValue(ctx, exchangeKey{}, x), x
}

// get asks one path below /api/v4 and decodes its JSON into v. next is the query of
// the page that follows, nil when there is none.
func (c *Client) get(ctx context.Context, what, path string, q url.Values, v any) (next url.Values, err error) {
	req, err := c.gl.NewRequest(http.MethodGet, path, nil, []gl.RequestOptionFunc{gl.WithContext(ctx)})
	if err != nil {
		return nil, c.failed(ctx, what, err)
	}
	req.URL.RawQuery = q.Encode()
	resp, err := c.gl.Do(req, v)
	if err != nil {
		return nil, c.failed(ctx, what, err)
	}
	if resp.NextLink == "" {
		return nil, nil
	}
	// Only the query of the link is taken: where it points to is the server's word.
	u, err := url.Parse(resp.NextLink)
	if err != nil || u.RawQuery == "" || u.RawQuery == req.URL.RawQuery {
		return nil, nil
	}
	return u.Query(), nil
}

// query asks GraphQL and decodes data into v.
func (c *Client) query(ctx context.Context, what, text string, variables map[string]any, v any) error {
	var answer struct {
		Data   json.RawMessage `json:"data"`
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	if _, err := c.gl.GraphQL.Do(gl.GraphQLQuery{Query: text, Variables: variables}, &answer, gl.WithContext(ctx)); err != nil {
		return c.failed(ctx, what, err)
	}
	if len(answer.Errors) > 0 {
		why := cimeter.ErrInvalid
		if m := strings.ToLower(answer.Errors[0].Message); strings.Contains(m, "timeout") || strings.Contains(m, "timed out") || strings.Contains(m, "internal server error") {
			why = cimeter.ErrUnavailable
		}
		return c.failed(ctx, what, fmt.Errorf("%w: GraphQL says %s", why, ci.Quote(answer.Errors[0].Message)))
	}
	if err := json.Unmarshal(answer.Data, v); err != nil {
		return c.failed(ctx, what, err)
	}
	return nil
}

// failed makes the error of a request: what was asked, and why it failed, without
// the server's URL and words.
func (c *Client) failed(ctx context.Context, what string, err error) error {
	x := exchangeOf(ctx)
	e := &queue.SourceError{Status: x.status, RetryAfter: x.wait, Requests: x.requests}
	var ours *queue.SourceError
	switch {
	case errors.As(err, &ours):
		return err
	case x.fault != nil: // there was no whole answer
		err = x.fault
	case x.status < 200 || x.status >= 300:
		err = nil
	case errors.Is(err, cimeter.ErrInvalid), errors.Is(err, cimeter.ErrUnavailable):
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("answer ends in the middle: %w", cimeter.ErrUnavailable)
	default:
		err = fmt.Errorf("answer is not what was asked for: %w", cimeter.ErrInvalid)
	}
	if err == nil {
		e.Err = errors.New(what)
	} else {
		e.Err = fmt.Errorf("%s: %w", what, err)
	}
	return e
}
