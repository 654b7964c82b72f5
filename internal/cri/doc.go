// Package cri tells what a Kubernetes runtime (containerd, CRI-O) says of its pods
// and containers, over the runtime's own socket: no right on an API server is needed.
//
// It speaks the six calls that it needs of the container runtime interface, version
// 1, over HTTP/2 itself (docs/adr/0007-cri-by-hand.md); every one is a read. It makes
// one attempt of each and returns errors; following a runtime that goes away is the
// caller's. Of a container's environment only the variables named in Options ever
// leave it.
//
// The entry point is [Open]. List and Follow belong to one goroutine; the other
// methods may be called from any.
package cri

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

// Options say which runtime to ask and what to take from it.
type Options struct {
	// Socket is the runtime's, such as unix:///run/containerd/containerd.sock.
	Socket string
	// Variables are the names of the environment variables that may be read out
	// of a container.
	Variables []string
	// Every is the time between two lists while the runtime sends no events, a
	// sixth of that while it does, and how long a stream of events lives: a runtime
	// waits at most so long for a process that was stopped. 0 is ten seconds.
	Every time.Duration
	// NoEvents has the runtime asked, also where it streams events.
	NoEvents bool
}

// maxNoticed bounds the cgroups that are told of and not looked at yet: more than a
// machine starts in the time that a runtime may take for a list.
const maxNoticed = 1024

// Client asks one runtime.
type Client struct {
	socket    string
	variables map[string]bool
	every     time.Duration
	noEvents  bool
	http      *http.Client
	noticed   chan noticed

	// Of the goroutine that follows: what the last events said, by id, and whether
	// there was a list.
	seen   map[string]seen
	listed bool
}

// Open returns a client. It does not connect: the runtime may start later.
func Open(o Options) (*Client, error) {
	path, ok := strings.CutPrefix(o.Socket, "unix://")
	if !ok || !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("cri socket %q: %w: want unix:///path", o.Socket, cimeter.ErrInvalid)
	}
	if o.Every <= 0 {
		o.Every = 10 * time.Second
	}
	var dialer net.Dialer
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	c := &Client{
		socket: o.Socket, every: o.Every, noEvents: o.NoEvents, variables: make(map[string]bool), noticed: make(chan noticed, maxNoticed), seen: make(map[string]seen),
		http: &http.Client{Transport: &http.Transport{
			Protocols: protocols, DisableCompression: true, IdleConnTimeout: time.Minute,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) },
		}},
	}
	for _, v := range o.Variables {
		c.variables[v] = true
	}
	return c, nil
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Version returns name and version of the runtime, such as containerd 1.6.20.
func (c *Client) Version(ctx context.Context) (string, error) {
	b, err := c.call(ctx, "Version", nil)
	if err != nil {
		return "", err
	}
	var name, version string
	err = fields(b, func(f field) error {
		switch f.number {
		case 2:
			name = f.text()
		case 3:
			version = f.text()
		}
		return nil
	})
	if err != nil {
		return "", c.wrap("Version", err)
	}
	return name + " " + version, nil
}
