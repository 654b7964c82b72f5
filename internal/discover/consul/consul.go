// Package consul registers services with a Consul agent and keeps their checks
// alive.
//
// It speaks the three endpoints of Consul's agent API that this takes, by
// net/http: HashiCorp's client costs 1.9 MiB of resident memory in a process
// that never calls it, and 15 modules. Each method makes one try; schedule and
// retry are package discover's. It never logs, and no error of it holds the
// token. Start with [New]. A Client may be used by many goroutines at once.
package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/outbound"
)

const (
	timeout        = 5 * time.Second // of a whole try; a Consul agent is near
	maxAnswerBytes = 64 << 10
	maxDetailWidth = 200
	maxMetaBytes   = 512 // of a value; Consul refuses more
)

// Options say which Consul agent is told, and as whom.
type Options struct {
	URL      string                 // http or https, without user and password
	Token    func() (string, error) // ACL token, asked for before each request; nil or "": none
	CAFile   string                 // PEM of the authorities that may sign its certificate; "": the system's
	CertFile string                 // PEM of the certificate that it asks for; "": none is shown
	KeyFile  string
}

// Service is what is registered.
type Service struct {
	ID      string // unique in the Consul agent
	Name    string
	Address string // host without port; "": that of Consul's own node
	Port    int
	Tags    []string
	Meta    map[string]string // keys of letters, digits, _ and -; longer values than 512 bytes are cut
	// TTL is how long Consul waits for the next Pass before it calls the service
	// critical; after DeregisterAfter more, at least a minute, it forgets it.
	// Consul looks only now and then: allow half a minute more.
	TTL, DeregisterAfter time.Duration
}

// Client talks to one Consul agent. Make it with New.
type Client struct {
	o    Options
	base *url.URL
	http *outbound.Client
}

// New returns a client. The error wraps [cimeter.ErrInvalid] for an address
// that is no http or https URL.
func New(o Options) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(o.URL, "/"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("consul address: want http://HOST:PORT or https://HOST:PORT, without user and password: %w", cimeter.ErrInvalid)
	}
	return &Client{o: o, base: u, http: outbound.New(outbound.Options{
		CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, Dial: timeout, Answer: timeout,
	})}, nil
}

// Address is Consul's.
func (c *Client) Address() string { return c.base.String() }

// Outward returns the address of this machine that Consul sees: "" when Consul
// is on this machine, as its node's address is the better one then.
func (c *Client) Outward(ctx context.Context) (string, error) {
	port := c.base.Port()
	if port == "" {
		port = "8500"
	}
	conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "udp", net.JoinHostPort(c.base.Hostname(), port)) // chooses a route and sends nothing
	if err != nil {
		return "", fmt.Errorf("find the way to consul: %w: %w", err, cimeter.ErrUnavailable)
	}
	defer conn.Close()
	here, err := netip.ParseAddrPort(conn.LocalAddr().String())
	there, err2 := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil || err2 != nil || here.Addr() == there.Addr() || there.Addr().IsLoopback() {
		return "", nil
	}
	return here.Addr().WithZone("").String(), nil
}

// Leader asks Consul for the address of its leader, which everybody may know. It is
// "" where there is none, and nothing can be registered.
func (c *Client) Leader(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := c.do(ctx, http.MethodGet, "/v1/status/leader", nil)
	if err != nil {
		return "", fmt.Errorf("ask consul at %s for its leader: %w", c.base.Host, err)
	}
	var leader string
	if err := json.Unmarshal(answer, &leader); err != nil {
		return "", fmt.Errorf("ask consul at %s for its leader: what answers is no Consul: %w", c.base.Host, cimeter.ErrInvalid)
	}
	return leader, nil
}

// Register tells Consul of a service that passes. One of the same ID is
// replaced, with its checks.
func (c *Client) Register(ctx context.Context, s Service) error {
	type check struct {
		Name                           string
		TTL                            string
		Status                         string
		DeregisterCriticalServiceAfter string
	}
	body := struct {
		ID, Name, Address string
		Port              int
		Tags              []string
		Meta              map[string]string
		Check             check
	}{s.ID, s.Name, s.Address, s.Port, s.Tags, map[string]string{}, check{
		Name: s.Name + " says that it runs", TTL: s.TTL.String(), Status: "passing", DeregisterCriticalServiceAfter: s.DeregisterAfter.String(),
	}}
	for k, v := range s.Meta {
		body.Meta[k] = cut(v)
	}
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("register %s: %w", s.ID, err)
	}
	if err := c.put(ctx, "/v1/agent/service/register?replace-existing-checks=true", b); err != nil {
		return fmt.Errorf("register %s with consul at %s: %w", s.ID, c.base.Host, err)
	}
	return nil
}

func cut(v string) string {
	if len(v) > maxMetaBytes {
		v = strings.ToValidUTF8(v[:maxMetaBytes], "")
	}
	return v
}

// Pass tells Consul that a service lives. The error wraps [cimeter.ErrNotFound]
// when Consul knows none of that ID, as after its restart.
func (c *Client) Pass(ctx context.Context, id string) error {
	if err := c.put(ctx, "/v1/agent/check/pass/"+url.PathEscape("service:"+id), nil); err != nil {
		return fmt.Errorf("pass %s with consul at %s: %w", id, c.base.Host, err)
	}
	return nil
}

// Deregister takes a service back. One that Consul does not know is no error.
func (c *Client) Deregister(ctx context.Context, id string) error {
	if err := c.put(ctx, "/v1/agent/service/deregister/"+url.PathEscape(id), nil); err != nil && !errors.Is(err, cimeter.ErrNotFound) {
		return fmt.Errorf("deregister %s from consul at %s: %w", id, c.base.Host, err)
	}
	return nil
}

// Close closes the connections that wait for the next request.
func (c *Client) Close() { c.http.Close() }

func (c *Client) put(ctx context.Context, path string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := c.do(ctx, http.MethodPut, path, body)
	return err
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("request cannot be made: %w", cimeter.ErrInvalid)
	}
	r.Header.Set("User-Agent", "cimeter")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.o.Token != nil {
		token, err := c.o.Token()
		if err != nil {
			return nil, err
		}
		if token != "" {
			r.Header.Set("X-Consul-Token", token)
		}
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w: %w", err, cimeter.ErrUnavailable)
	}
	return answer, judge(resp.StatusCode, string(answer))
}

// judge turns an answer into an error. Consul tells of an unknown check with
// 404 since 1.12 or so, and before with 500 and a text.
func judge(status int, answer string) error {
	detail := display.Fit(strings.TrimSpace(answer), maxDetailWidth, "…")
	kind := cimeter.ErrUnavailable
	switch {
	case status/100 == 2:
		return nil
	case status == http.StatusNotFound,
		status == http.StatusInternalServerError && (strings.Contains(answer, "does not have associated TTL") || strings.Contains(answer, "Unknown check") || strings.Contains(answer, "Unknown service")):
		kind = cimeter.ErrNotFound
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		kind = cimeter.ErrUnauthorized
	case status/100 == 4:
		kind = cimeter.ErrInvalid
	}
	return fmt.Errorf("%d %s: %w", status, detail, kind)
}
