package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/queue"
)

// Queue returns what the CI servers tell, as far as one server of cimeter knows: at
// most 10,000 builds that wait, as many that run, and as many workers. Errors are those
// of [Client.Builds]; an agent and a server without CI servers answer
// [cimeter.ErrNotFound].
func (c *Client) Queue(ctx context.Context) (queue.State, error) {
	var st queue.State
	for _, path := range []string{"/api/v1/work/pending", "/api/v1/work/started", "/api/v1/workers"} {
		var part queue.State
		if err := c.get(ctx, path, "limit=10000", maxListBytes, &part); err != nil {
			if errors.Is(err, cimeter.ErrNotFound) {
				err = fmt.Errorf("no CI servers are set up there: %w", cimeter.ErrNotFound)
			}
			return queue.State{}, fmt.Errorf("read the queue from %s: %w", c.shown, err)
		}
		st.At, st.Servers = part.At, part.Servers
		st.Builds, st.Workers = append(st.Builds, part.Builds...), append(st.Workers, part.Workers...)
	}
	return st, nil
}

// cancelTime is more than the server gives the CI server.
const cancelTime = 40 * time.Second

// Cancel has a build cancelled by its CI server: one try. token is of the role cancel.
// The error wraps [cimeter.ErrNotFound] for a build that neither waits nor runs, and
// [cimeter.ErrUnsupported] where nobody may, or what Builds does.
func (c *Client) Cancel(ctx context.Context, key, token string) error {
	ctx, stop := context.WithTimeout(ctx, cancelTime)
	defer stop()
	body, err := json.Marshal(map[string]string{"key": key})
	if err != nil {
		return err
	}
	u := c.base.JoinPath("/api/v1/work/cancel")
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("request cannot be made: %w", cimeter.ErrInvalid)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.http.Do(r)
	shown := display.Fit(key, maxDetailWidth, "…")
	if err != nil {
		if inner := (*url.Error)(nil); errors.As(err, &inner) {
			err = inner.Err
		}
		return fmt.Errorf("cancel %s at %s: %v: %w", shown, c.shown, err, cimeter.ErrUnavailable)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("cancel %s at %s: %w", shown, c.shown, refusal(resp))
	}
	return nil
}
