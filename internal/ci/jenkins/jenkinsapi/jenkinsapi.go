// Package jenkinsapi asks Jenkins for its queue, its nodes and how builds ended,
// ends builds, and reads the webhooks of Jenkins' plugins.
//
// An item of the queue has an id, and the build that it becomes a number: a build
// has one key while it waits and another from its start on. The package owns which
// builds ran at the last poll. Jenkins sends webhooks by plugins alone, which sign
// none. It never logs and makes one try a question. Start with [New]. A Client polls in
// one goroutine at a time; Cancel may be called beside.
package jenkinsapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/jenkins"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	maxEnds  = 20   // builds whose end is asked for in one poll
	maxQueue = 5000 // items that are remembered until their build is seen
)

// Options say which server is asked.
type Options struct {
	URL string   // as people know it
	Ask ask.Doer // puts the questions
}

// Client asks one server. Make it with New.
type Client struct {
	o      Options
	server string

	mu     sync.Mutex
	items  map[int64]time.Time // since when items could have been taken, by id
	before map[string]running  // by key

	jobs      map[string]*counted // by path; nil: they were not listed yet
	countedAt time.Time           // by the server's clock
}

// running is a build that ran at the last poll.
type running struct {
	job, number, worker string
	queued              time.Time
}

// New returns a client. The error wraps [cimeter.ErrInvalid].
func New(o Options) (*Client, error) {
	server := ci.ServerOf(o.URL)
	if server == "" {
		return nil, fmt.Errorf("address of Jenkins: want http://HOST or https://HOST: %w", cimeter.ErrInvalid)
	}
	return &Client{o: o, server: server, items: map[int64]time.Time{}, before: map[string]running{}}, nil
}

// Poll asks for the queue, the nodes with what they run, and the builds that ran and
// do not run any more. The queue is asked for first: a build that begins in between is
// in both, and is told of as running. Every half minute it asks all jobs for the number
// of their newest build, and then for those that came and ended between two polls.
func (c *Client) Poll(ctx context.Context) (queue.Report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := ask.NewRound(c.o.Ask)
	var waiting queueAnswer
	q := ask.Request{Path: "/queue/api/json", Query: url.Values{"tree": {queueTree}}}
	if _, err := r.JSON(ctx, q, &waiting); err != nil {
		return queue.Report{}, err
	}
	if waiting.Items == nil {
		return queue.Report{}, r.Invalid(q, "no items in it")
	}
	if err := c.count(ctx, r); err != nil {
		return queue.Report{}, err
	}
	var nodes computers
	q = ask.Request{Path: "/computer/api/json", Query: url.Values{"tree": {computerTree}}}
	if _, err := r.JSON(ctx, q, &nodes); err != nil {
		return queue.Report{}, err
	}
	if nodes.Computers == nil {
		return queue.Report{}, r.Invalid(q, "no nodes in it")
	}
	report := queue.Report{WholeJobs: true, WholeWorkers: true}
	now, begun := c.runs(*nodes.Computers, &report)
	c.waits(*waiting.Items, begun, &report)
	if err := c.ends(ctx, r, now, &report); err != nil {
		return queue.Report{}, err
	}
	if err := c.short(ctx, r, found{now, begun, &report}); err != nil {
		return queue.Report{}, err
	}
	c.before = now
	c.see(now)
	for id := range begun {
		delete(c.items, id)
	}
	r.Fill(&report)
	return report, nil
}

// runs tells of the nodes and what they run; begun are the items that those builds
// were. A pipeline can be on several executors: it is told of once.
func (c *Client) runs(nodes []computer, report *queue.Report) (now map[string]running, begun map[int64]bool) {
	now, begun = map[string]running{}, map[int64]bool{}
	names := map[string]bool{}
	for i := range nodes {
		n := &nodes[i]
		if n.Name == "" || names[n.Name] {
			continue
		}
		names[n.Name] = true
		var builds []string
		for _, e := range slices.Concat(n.Slots, n.OneOff) {
			if e.Build == nil {
				continue
			}
			j, ok := c.ran(e.Build, n.Name)
			if !ok {
				continue
			}
			if !slices.Contains(builds, j.Key) {
				builds = append(builds, j.Key)
			}
			if _, told := now[j.Key]; told {
				continue
			}
			b := running{job: j.Project, number: j.Number, worker: n.Name, queued: c.items[e.Build.QueueID]}
			if was, ok := c.before[j.Key]; ok {
				b.queued = was.queued
			}
			j.QueuedAt = b.queued
			now[j.Key] = b
			begun[e.Build.QueueID] = true
			report.Jobs = append(report.Jobs, j)
			report.Moved = append(report.Moved, c.moved(e.Build.QueueID, j.Key)...)
		}
		report.Workers = append(report.Workers, c.worker(n, builds))
	}
	return now, begun
}

// waits tells of the queue.
func (c *Client) waits(items []item, begun map[int64]bool, report *queue.Report) {
	seen := map[int64]bool{}
	for i := range items {
		j, ok := c.queued(&items[i])
		if !ok || seen[items[i].ID] || begun[items[i].ID] {
			continue
		}
		seen[items[i].ID] = true
		if !j.QueuedAt.IsZero() && len(c.items) < maxQueue {
			c.items[items[i].ID] = j.QueuedAt
		}
		report.Jobs = append(report.Jobs, j)
	}
	if len(c.items) >= maxQueue {
		clear(c.items) // of builds that were over before they were seen
	}
}

// ends asks for the builds that do not run any more. One that is not asked for, as
// there are too many, is kept for the next poll.
func (c *Client) ends(ctx context.Context, r *ask.Round, now map[string]running, report *queue.Report) error {
	asked := 0
	for _, key := range slices.Sorted(maps.Keys(c.before)) {
		was := c.before[key]
		if _, ok := now[key]; ok {
			continue
		}
		if asked == maxEnds {
			now[key] = was
			continue
		}
		asked++
		var b build
		q := ask.Request{Path: apiPath(was.job, was.number, "api", "json"), Query: url.Values{"tree": {endTree}}}
		_, err := r.JSON(ctx, q, &b)
		if errors.Is(err, cimeter.ErrNotFound) {
			continue // deleted
		}
		if err != nil {
			return err
		}
		j, ok := c.ran(&b, was.worker)
		if !ok || j.Key != key || b.Building == nil {
			return r.Invalid(q, "told of build %d", b.Number)
		}
		j.QueuedAt = was.queued
		if *b.Building {
			now[key] = was // between two steps of a pipeline
		}
		report.Jobs = append(report.Jobs, j)
		report.Moved = append(report.Moved, c.moved(b.QueueID, j.Key)...)
	}
	return nil
}

// Cancel takes an item out of the queue, or ends a build.
func (c *Client) Cancel(ctx context.Context, key string) error {
	bad := fmt.Errorf("build %.200q: want one of %s: %w", key, c.server, cimeter.ErrInvalid)
	rest, ok := strings.CutPrefix(key, cimeter.BuildKey(jenkins.CI, c.server)+"/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < 2 {
		return bad
	}
	for i := range parts {
		p, err := url.PathUnescape(parts[i])
		if err != nil || p == "" || p == "." || p == ".." || strings.Contains(p, "/") {
			return bad
		}
		parts[i] = p
	}
	number := parts[len(parts)-1]
	if n, err := strconv.ParseUint(number, 10, 63); err != nil || n == 0 {
		return bad
	}
	q := ask.Request{Method: "POST", Path: apiPath(strings.Join(parts[:len(parts)-1], "/"), number, "stop")}
	if len(parts) == 2 && parts[0] == "queue" {
		q = ask.Request{Method: "POST", Path: "/queue/cancelItem", Query: url.Values{"id": {number}}}
	}
	_, err := ask.NewRound(c.o.Ask).Send(ctx, q)
	// Jenkins sends those who ended a build to its page.
	var source *queue.SourceError
	if errors.As(err, &source) && source.Status == 302 {
		return nil
	}
	return err
}
