// Package buildkiteapi asks Buildkite for the builds and agents of organisations,
// ends builds, and reads its webhooks.
//
// It owns the builds that are not finished. It never logs and makes one try a
// question. Start with [New] or [Hook]. A Client polls in one goroutine at a time; the
// rest of it, and a Hook, may be used by many.
package buildkiteapi

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
	"github.com/cimeter/cimeter/internal/ci/buildkite"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	perPage  = 100
	maxPages = 10
	maxEnds  = 20 // builds whose end is asked for in one poll
)

// Options say which organisations are asked for.
type Options struct {
	URL      string   // the server's own address: https://buildkite.com
	Ask      ask.Doer // puts the questions, at [API] of the address
	Projects []string // organisations
}

// API is where the REST API of a server is.
func API(address string) string {
	address = strings.TrimRight(address, "/")
	if ci.ServerOf(address) == "buildkite.com" {
		return "https://api.buildkite.com"
	}
	return address
}

// Client asks. Make it with New.
type Client struct {
	o      Options
	server string

	mu   sync.Mutex
	open map[string]int64 // numbers of builds that are not finished, by "organisation/pipeline number"
	last time.Time        // when the last good poll was, by the server's clock
	over map[string]bool  // builds that were finished when they were seen first, of the last minute
}

// New returns a client. The error wraps [cimeter.ErrInvalid].
func New(o Options) (*Client, error) {
	server := ci.ServerOf(o.URL)
	if server == "" {
		return nil, fmt.Errorf("address of Buildkite: want https://HOST: %w", cimeter.ErrInvalid)
	}
	if len(o.Projects) == 0 {
		return nil, fmt.Errorf("buildkite is asked by organisation: want at least one project: %w", cimeter.ErrInvalid)
	}
	for _, p := range o.Projects {
		if !slug(p) {
			return nil, fmt.Errorf("project %.100q: want the name of an organisation: %w", p, cimeter.ErrInvalid)
		}
	}
	return &Client{o: o, server: server, open: map[string]int64{}}, nil
}

// Poll asks each organisation for the builds that are not finished, with their jobs,
// for those that were made since the last poll and are, for its agents, and for the
// builds that are not told of any more.
func (c *Client) Poll(ctx context.Context) (queue.Report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := ask.NewRound(c.o.Ask)
	report := queue.Report{WholeJobs: true, WholeWorkers: true}
	now, over := map[string]int64{}, map[string]bool{}
	seen := map[string]bool{}
	for _, org := range c.o.Projects {
		found, err := c.builds(ctx, r, "/v2/organizations/"+org+"/builds", url.Values{"state[]": {"scheduled", "running", "failing", "blocked", "canceling"}, "include_retried_jobs": {"true"}})
		if err != nil {
			return queue.Report{}, err
		}
		if len(found) == maxPages*perPage {
			report.WholeJobs = false // there are more
		}
		for i := range found {
			b := &found[i]
			at := place(b.URL) + " " + strconv.FormatInt(b.Number, 10)
			if _, told := now[at]; told {
				continue
			}
			now[at] = b.Number
			report.Jobs = append(report.Jobs, b.jobs(c.server)...)
		}
		if err := c.short(ctx, r, org, now, over, &report); err != nil {
			return queue.Report{}, err
		}
		agents, err := c.agents(ctx, r, org)
		if err != nil {
			return queue.Report{}, err
		}
		has := map[string][]string{}
		for i := range report.Jobs {
			if j := &report.Jobs[i]; j.Status == cimeter.JobRunning && j.Worker != "" {
				has[j.Worker] = append(has[j.Worker], j.Key)
			}
		}
		for i := range agents {
			if a := &agents[i]; !seen[a.ID] {
				seen[a.ID] = true
				report.Workers = append(report.Workers, a.worker(c.server, has[a.ID]))
			}
		}
	}
	if err := c.ends(ctx, r, now, &report); err != nil {
		return queue.Report{}, err
	}
	c.open, c.over, c.last = now, over, r.Now()
	r.Fill(&report)
	return report, nil
}

// slack is how much longer ago than the last poll a build can have been made that it did
// not see.
const slack = time.Minute

// short tells of the builds of an organisation that were made since the last poll and
// are finished.
func (c *Client) short(ctx context.Context, r *ask.Round, org string, now map[string]int64, over map[string]bool, report *queue.Report) error {
	if c.last.IsZero() {
		return nil
	}
	found, err := c.builds(ctx, r, "/v2/organizations/"+org+"/builds", url.Values{"created_from": {c.last.Add(-slack).UTC().Format(time.RFC3339)}, "include_retried_jobs": {"true"}})
	if err != nil {
		return err
	}
	for i := range found {
		b := &found[i]
		at := place(b.URL) + " " + strconv.FormatInt(b.Number, 10)
		_, runs := now[at]
		_, ran := c.open[at]
		if runs || ran || b.FinishedAt.IsZero() {
			continue
		}
		over[at] = true
		if !c.over[at] {
			report.Jobs = append(report.Jobs, b.jobs(c.server)...)
		}
	}
	return nil
}

func (c *Client) builds(ctx context.Context, r *ask.Round, path string, query url.Values) (all []build, err error) {
	for page := 1; page <= maxPages; page++ {
		var some []build
		v := maps.Clone(query)
		v.Set("page", strconv.Itoa(page))
		v.Set("per_page", strconv.Itoa(perPage))
		q := ask.Request{Path: path, Query: v}
		if _, err := r.JSON(ctx, q, &some); err != nil {
			return nil, err
		}
		for i := range some {
			if some[i].Number <= 0 || place(some[i].URL) == "" {
				return nil, r.Invalid(q, "build without number or address")
			}
		}
		if all = append(all, some...); len(some) < perPage {
			break
		}
	}
	return all, nil
}

func (c *Client) agents(ctx context.Context, r *ask.Round, org string) (all []agent, err error) {
	for page := 1; page <= maxPages; page++ {
		var some []agent
		q := ask.Request{Path: "/v2/organizations/" + org + "/agents", Query: url.Values{"page": {strconv.Itoa(page)}, "per_page": {strconv.Itoa(perPage)}}}
		if _, err := r.JSON(ctx, q, &some); err != nil {
			return nil, err
		}
		for i := range some {
			if some[i].ID == "" {
				return nil, r.Invalid(q, "agent without id")
			}
		}
		if all = append(all, some...); len(some) < perPage {
			break
		}
	}
	return all, nil
}

// ends asks for the builds that are not told of any more. One that is not asked for,
// as there are too many, is kept for the next poll.
func (c *Client) ends(ctx context.Context, r *ask.Round, now map[string]int64, report *queue.Report) error {
	asked := 0
	for _, at := range slices.Sorted(maps.Keys(c.open)) {
		number := c.open[at]
		if _, ok := now[at]; ok {
			continue
		}
		if asked == maxEnds {
			now[at] = number
			continue
		}
		asked++
		project, _, _ := strings.Cut(at, " ")
		q := ask.Request{Path: buildPath(project, number), Query: url.Values{"include_retried_jobs": {"true"}}}
		var b build
		_, err := r.JSON(ctx, q, &b)
		if errors.Is(err, cimeter.ErrNotFound) {
			continue // deleted
		}
		if err != nil {
			return err
		}
		if b.Number != number || place(b.URL) != project {
			return r.Invalid(q, "told of build %d", b.Number)
		}
		report.Jobs = append(report.Jobs, b.jobs(c.server)...)
	}
	return nil
}

// buildPath is where a build of ORGANISATION/PIPELINE is.
func buildPath(project string, number int64) string {
	org, pipeline, _ := strings.Cut(project, "/")
	return "/v2" + ask.Path("organizations", org, "pipelines", pipeline, "builds", strconv.FormatInt(number, 10))
}

// Cancel ends the build that a key's job is of, with all its jobs: Buildkite's API
// ends no single one.
func (c *Client) Cancel(ctx context.Context, key string) error {
	rest, ok := strings.CutPrefix(key, cimeter.BuildKey(buildkite.CI, c.server)+"/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 4 || !slug(parts[0]) || !slug(parts[1]) {
		return fmt.Errorf("build %.200q: want one of %s: %w", key, c.server, cimeter.ErrInvalid)
	}
	number, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || number <= 0 {
		return fmt.Errorf("build %.200q: want one of %s: %w", key, c.server, cimeter.ErrInvalid)
	}
	_, err = ask.NewRound(c.o.Ask).Send(ctx, ask.Request{Method: "PUT", Path: buildPath(parts[0]+"/"+parts[1], number) + "/cancel"})
	return err
}

// Builds tells of the builds that were made since a time, a page of one organisation
// a call, from where cursor says; "" begins. next is "" at the end.
func (c *Client) Builds(ctx context.Context, since time.Time, cursor string) (jobs []cimeter.Job, next string, err error) {
	at, page := 0, 1
	if cursor != "" {
		if _, err := fmt.Sscanf(cursor, "%d %d", &at, &page); err != nil || at < 0 || page < 1 {
			return nil, "", fmt.Errorf("cursor %.100q: want PROJECT PAGE: %w", cursor, cimeter.ErrInvalid)
		}
	}
	if at >= len(c.o.Projects) {
		return nil, "", nil
	}
	r := ask.NewRound(c.o.Ask)
	var some []build
	q := ask.Request{Path: "/v2/organizations/" + c.o.Projects[at] + "/builds", Query: url.Values{
		"created_from": {since.UTC().Format(time.RFC3339)}, "include_retried_jobs": {"true"}, "page": {strconv.Itoa(page)}, "per_page": {strconv.Itoa(perPage)},
	}}
	if _, err := r.JSON(ctx, q, &some); err != nil {
		return nil, "", err
	}
	for i := range some {
		jobs = append(jobs, some[i].jobs(c.server)...)
	}
	switch {
	case len(some) == perPage:
		next = fmt.Sprintf("%d %d", at, page+1)
	case at+1 < len(c.o.Projects):
		next = fmt.Sprintf("%d 1", at+1)
	}
	return jobs, next, nil
}
