// Package neighbour tells whether an exporter of others runs on this machine.
//
// It asks the program who it is, so that something else on the same port is not
// taken for it. One try each, no retry, no log, no state. Start with [Find],
// which may be called from anywhere.
package neighbour

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

// The exporters that can be found, as their job is called in lists of targets.
const (
	NodeExporter = "node_exporter"
	Cadvisor     = "cadvisor"
)

const (
	timeout      = 2 * time.Second
	maxPageBytes = 16 << 10
)

// Find reports whether that exporter answers at HOST:PORT over plain HTTP. Not
// found is no error; one that asks for TLS or a password is not found.
func Find(ctx context.Context, job, address string) (bool, error) {
	// The cheapest page that names the program: a scrape would take 10 ms of CPU.
	path, wanted := "", ""
	switch job {
	case NodeExporter:
		path, wanted = "/", "Node Exporter"
	case Cadvisor:
		path, wanted = "/containers/", "cAdvisor"
	default:
		return false, fmt.Errorf("find exporter %s: want %s or %s: %w", job, NodeExporter, Cadvisor, cimeter.ErrInvalid)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return false, fmt.Errorf("find exporter %s: address %q: want HOST:PORT: %w", job, address, cimeter.ErrInvalid)
	}
	r.Header.Set("User-Agent", "cimeter")
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true}, // no proxy: it is on this machine
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(r)
	if err != nil {
		return false, nil // nobody listens, or nobody that speaks HTTP
	}
	defer resp.Body.Close()
	page, _ := io.ReadAll(io.LimitReader(resp.Body, maxPageBytes))
	return resp.StatusCode == http.StatusOK && strings.Contains(string(page), wanted), nil
}
