package jenkinsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
)

const (
	pastBuilds = 100    // of a job in one question, and what a page of the past holds at least
	pastAsks   = 25     // questions of a page of the past
	maxLeft    = 20_000 // folders and jobs that are listed and not done
	maxDepth   = 20     // of folders
)

// history is where a reader of past builds is: its text is the cursor of Builds.
type history struct {
	Left []string `json:"l"`           // folders and jobs that are not done, the next one last; "" is the server
	Done int      `json:"d,omitempty"` // builds of the next one that were read
}

// Builds tells of the builds that began since a time, job after job, newest first in
// each, from where cursor says; "" begins. next is "" at the end. A call makes at most 25
// requests: one for each folder, and one for 100 builds of a job.
func (c *Client) Builds(ctx context.Context, since time.Time, cursor string) (jobs []cimeter.Job, next string, err error) {
	h := history{Left: []string{""}}
	if cursor != "" && (json.Unmarshal([]byte(cursor), &h) != nil || h.Done < 0) {
		return nil, "", fmt.Errorf("cursor of builds: want one that was given: %w", cimeter.ErrInvalid)
	}
	r := ask.NewRound(c.o.Ask)
	for asks := 0; len(h.Left) > 0 && asks < pastAsks && len(jobs) < pastBuilds; asks++ {
		some, err := c.pastOf(ctx, r, since, &h)
		if err != nil {
			return nil, "", err
		}
		jobs = append(jobs, some...)
	}
	if len(h.Left) == 0 {
		return jobs, "", nil
	}
	text, err := json.Marshal(h)
	return jobs, string(text), err
}

// pastOf asks for the next folder or job. One that was deleted since it was listed
// has no builds.
func (c *Client) pastOf(ctx context.Context, r *ask.Round, since time.Time, h *history) (jobs []cimeter.Job, err error) {
	last := len(h.Left) - 1
	at := h.Left[last]
	q := ask.Request{Path: apiPath(at, "api", "json"), Query: url.Values{"tree": {fmt.Sprintf("jobs[url],allBuilds[%s]{%d,%d}", endTree, h.Done, h.Done+pastBuilds)}}}
	var f folder
	if _, err := r.JSON(ctx, q, &f); err != nil && (at == "" || !errors.Is(err, cimeter.ErrNotFound)) {
		return nil, err
	}
	more := len(f.Builds) > 0
	for i := range f.Builds {
		b := &f.Builds[i]
		if begun := ask.Milli(b.Timestamp); !begun.IsZero() && begun.Before(since) {
			more = false
			break
		}
		if j, ok := c.ran(b, b.BuiltOn); ok && j.Project == at {
			jobs = append(jobs, j)
		}
	}
	if h.Done += len(f.Builds); more {
		return jobs, nil
	}
	h.Left, h.Done = h.Left[:last], 0
	seen := map[string]bool{}
	for _, j := range f.Jobs {
		// What is listed elsewhere than below its folder would be asked for without end.
		if below := jobPath(j.URL); len(h.Left) < maxLeft && child(at, below) && !seen[below] {
			seen[below] = true
			h.Left = append(h.Left, below)
		}
	}
	return jobs, nil
}

// child reports whether a path is that of what is in a folder itself.
func child(folder, path string) bool {
	name := path
	if folder != "" {
		var ok bool
		if name, ok = strings.CutPrefix(path, folder+"/"); !ok {
			return false
		}
	}
	return name != "" && !strings.Contains(name, "/") && strings.Count(path, "/") < maxDepth
}
