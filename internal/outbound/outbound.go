// Package outbound carries the HTTP requests that cimeter makes of other
// programs: with whose certificates, within which times.
//
// It owns the idle connections to one of them. It makes one try a call, follows
// no redirect, as one could carry a credential to another host, and names no
// address in an error, as its query could hold a secret. It knows nothing of what
// is said: credentials, bodies and their bounds are its callers'. Start with
// [New]; a Client may be used by many goroutines at once.
package outbound

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
)

// Options say how the other program is reached. The zero value is usable.
type Options struct {
	CAFile   string        // PEM of the authorities that may sign its certificate; "" is the system's
	CertFile string        // PEM of the certificate that is shown when it asks for one; "" shows none
	KeyFile  string        // PEM of the key of CertFile
	Dial     time.Duration // bounds connecting, and the TLS handshake; 0 is 10 s
	Answer   time.Duration // until the header of an answer, where a request has no deadline; 0 is 60 s
	// Transport carries the requests instead; the above is not used then.
	Transport http.RoundTripper
}

// Client asks one other program. Make it with New.
type Client struct {
	o Options

	mu   sync.Mutex
	http *http.Client // replaced after a failure, so that new files of certificates are read
}

// New returns a client that does nothing yet: files are read with the first
// request.
func New(o Options) *Client { return &Client{o: o} }

// Do makes one request. The error wraps [cimeter.ErrUnavailable] when there is no
// answer; any other means that a file of certificates is no good.
func (c *Client) Do(r *http.Request) (*http.Response, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(r)
	if err != nil {
		c.forget(client)
		if inner := (*url.Error)(nil); errors.As(err, &inner) { // repeats method and URL
			err = inner.Err
		}
		return nil, fmt.Errorf("%w: %w", err, cimeter.ErrUnavailable)
	}
	return resp, nil
}

// Close closes the connections that wait for the next request.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
}

func (c *Client) client() (*http.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.http != nil {
		return c.http, nil
	}
	transport := c.o.Transport
	if transport == nil {
		t, err := Transport(c.o)
		if err != nil {
			return nil, err
		}
		transport = t
	}
	c.http = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c.http, nil
}

// forget drops a client that failed: the next one reads the files anew.
func (c *Client) forget(failed *http.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.http == failed {
		failed.CloseIdleConnections()
		c.http = nil
	}
}

// Transport returns what carries requests by the options, for clients that are not
// ours. It reads the files of certificates now and never again.
func Transport(o Options) (*http.Transport, error) {
	if o.Dial == 0 {
		o.Dial = 10 * time.Second
	}
	if o.Answer == 0 {
		o.Answer = time.Minute
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA file: %w", err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA file %s: no certificate in it: want PEM: %w", o.CAFile, cimeter.ErrInvalid)
		}
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read certificate %s: %w", o.CertFile, err)
		}
		trust.Certificates = []tls.Certificate{pair}
	}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: o.Dial}).DialContext,
		TLSClientConfig:        trust,
		TLSHandshakeTimeout:    o.Dial,
		ResponseHeaderTimeout:  o.Answer,
		MaxResponseHeaderBytes: 64 << 10,
		IdleConnTimeout:        time.Minute,
		MaxIdleConnsPerHost:    2,
		ForceAttemptHTTP2:      true,
	}, nil
}
