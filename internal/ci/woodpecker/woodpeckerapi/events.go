package woodpeckerapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/queue"
)

// Streamer opens a stream: its body, until ctx ends. The error is a
// [queue.SourceError] for an answer that is not a good one.
type Streamer interface {
	Stream(ctx context.Context, q ask.Request) (io.ReadCloser, error)
}

// maxEvent is the longest event that is read, in bytes.
const maxEvent = 4 << 20

// Events calls each with what every event of the server tells, until the stream
// ends or ctx does: one try. A server tells of public repositories and those of
// the token's user alone, so a report is never of the whole queue. Lines that are no
// event are passed over.
func (c *Client) Events(ctx context.Context, each func(queue.Report)) error {
	body, err := c.o.Stream.Stream(ctx, ask.Request{Path: "/api/stream/events"})
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		// An event of Woodpecker is one line; a ping is a comment.
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		if r, err := c.server.event(data); err == nil && len(r.Jobs) > 0 {
			each(r)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return &queue.SourceError{Err: fmt.Errorf("events: one is longer than %d bytes: %w", maxEvent, cimeter.ErrInvalid)}
	case err != nil:
		return &queue.SourceError{Err: fmt.Errorf("events: %w", err)}
	}
	return &queue.SourceError{Err: fmt.Errorf("events: the server ended the stream: %w", cimeter.ErrUnavailable)}
}

// event reads one event.
func (s server) event(data []byte) (r queue.Report, err error) {
	var e struct {
		Repo     *repository `json:"repo"`
		Pipeline *pipeline   `json:"pipeline"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return r, fmt.Errorf("event of %d bytes is not the JSON that was wanted: %w", len(data), cimeter.ErrInvalid)
	}
	if e.Repo == nil || e.Pipeline == nil {
		return r, fmt.Errorf("event without repository or pipeline: %w", cimeter.ErrUnsupported)
	}
	if e.Pipeline.RepoID == 0 {
		e.Pipeline.RepoID = e.Repo.ID
	}
	// Whether a workflow that is pending waits for an agent or for another workflow
	// is told by the queue alone.
	r.Jobs = slices.DeleteFunc(s.jobs(e.Repo.FullName, e.Pipeline, nil), func(j cimeter.Job) bool { return j.Status == cimeter.JobWaiting })
	return r, nil
}
