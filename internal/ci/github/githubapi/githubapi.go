// Package githubapi asks GitHub for the runs, jobs and runners of repositories,
// cancels runs, and reads the webhook workflow_job.
//
// GitHub lists no jobs of an organisation that wait: those of each repository are
// asked for, by its newest runs, and what has not changed is not told again (an ETag:
// that costs nothing of the rate limit). It owns the runs that are not finished. It
// never logs and makes one try a question. Start with [New] or [Hook]. A Client polls in
// one goroutine at a time; the rest of it, and a Hook, may be used by many.
//
// A job has a key of the run's and its own number. Runners do not know its own, and the
// API does not tell its key in the workflow: so agents give it another, and the two are
// joined by run, runner and time, as [cimeter.Build.Place] says.
package githubapi

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
	"github.com/cimeter/cimeter/internal/ci/github"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	perPage  = 100
	maxPages = 10
	maxLooks = 50 // runs whose jobs are asked for in one poll
)

// Options say which server is asked.
type Options struct {
	URL string   // the server's own address: https://github.com
	Ask ask.Doer // puts the questions, at [API] of the address
	// Projects are repositories, OWNER/NAME, whose runs and runners are asked for, and
	// organisations, OWNER, whose runners are.
	Projects []string
}

// API is where the REST API of a server is.
func API(address string) string {
	address = strings.TrimRight(address, "/")
	if ci.ServerOf(address) == "github.com" {
		return "https://api.github.com"
	}
	return address + "/api/v3"
}

// Header is sent with each question.
func Header() map[string]string {
	return map[string]string{"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
}

// Client asks one server. Make it with New.
type Client struct {
	o      Options
	server string

	mu   sync.Mutex
	open map[int64]*known // runs that are not finished, by id
	last map[string]int64 // the newest run of each repository that a poll found
}

// known is a run as it was told last.
type known struct {
	repo string
	run  run
}

// New returns a client. The error wraps [cimeter.ErrInvalid].
func New(o Options) (*Client, error) {
	server := ci.ServerOf(o.URL)
	if server == "" {
		return nil, fmt.Errorf("address of GitHub: want https://HOST: %w", cimeter.ErrInvalid)
	}
	if len(o.Projects) == 0 {
		return nil, fmt.Errorf("GitHub is asked by repository: want at least one project: %w", cimeter.ErrInvalid)
	}
	for _, p := range o.Projects {
		if _, err := scope(p); err != nil {
			return nil, err
		}
	}
	return &Client{o: o, server: server, open: make(map[int64]*known), last: make(map[string]int64)}, nil
}

// scope is where the API has a repository or an organisation.
func scope(project string) (string, error) {
	parts := strings.Split(project, "/")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." {
			parts = nil
		}
	}
	switch len(parts) {
	case 1:
		return "/orgs" + ask.Path(parts...), nil
	case 2:
		return "/repos" + ask.Path(parts...), nil
	}
	return "", fmt.Errorf("project %.100q: want OWNER/NAME or OWNER: %w", project, cimeter.ErrInvalid)
}

// Poll asks each repository for its newest 100 runs, each run that is not finished,
// or just became so, for its jobs, and repositories and organisations for their
// runners. A token that may not see runners leaves them out.
func (c *Client) Poll(ctx context.Context) (queue.Report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := ask.NewRound(c.o.Ask)
	report := queue.Report{WholeJobs: true, WholeWorkers: true}
	var workers []runner
	for _, project := range c.o.Projects {
		path, err := scope(project)
		if err != nil {
			return queue.Report{}, err
		}
		if strings.Contains(project, "/") {
			if err := c.newest(ctx, r, project, path); err != nil {
				return queue.Report{}, err
			}
		}
		some, ok, err := c.runners(ctx, r, path)
		if err != nil {
			return queue.Report{}, err
		}
		report.WholeWorkers = report.WholeWorkers && ok
		workers = append(workers, some...)
	}
	if err := c.look(ctx, r, &report); err != nil {
		return queue.Report{}, err
	}
	has := map[int64][]string{}
	for i := range report.Jobs {
		if j := &report.Jobs[i]; j.Status == cimeter.JobRunning && j.Worker != "" {
			if id, err := strconv.ParseInt(j.Worker, 10, 64); err == nil {
				has[id] = append(has[id], j.Key)
			}
		}
	}
	seen := map[int64]bool{}
	for i := range workers {
		if w := &workers[i]; !seen[w.ID] {
			seen[w.ID] = true
			report.Workers = append(report.Workers, w.worker(c.server, has[w.ID]))
		}
	}
	r.Fill(&report)
	return report, nil
}

// newest takes up the runs that are not finished, what changed of those that were not,
// and those that began and finished since the last poll.
func (c *Client) newest(ctx context.Context, r *ask.Round, repo, path string) error {
	var list runs
	q := ask.Request{Path: path + "/actions/runs", Query: url.Values{"per_page": {strconv.Itoa(perPage)}}}
	if _, err := r.JSON(ctx, q, &list); err != nil {
		return err
	}
	if list.Runs == nil {
		return r.Invalid(q, "no runs in it")
	}
	last, polled := c.last[repo]
	newest := last
	for _, run := range *list.Runs {
		if run.ID <= 0 {
			return r.Invalid(q, "run without id")
		}
		if k := c.open[run.ID]; k != nil || run.Status != "completed" || polled && run.ID > last {
			c.open[run.ID] = &known{repo: repo, run: run}
		}
		newest = max(newest, run.ID)
	}
	c.last[repo] = newest
	return nil
}

// look asks for the jobs of the runs that are not finished, oldest first.
func (c *Client) look(ctx context.Context, r *ask.Round, report *queue.Report) error {
	looks := 0
	var ended []int64
	for _, id := range slices.Sorted(maps.Keys(c.open)) {
		k := c.open[id]
		if looks == maxLooks {
			report.WholeJobs = false
			break
		}
		looks++
		found, err := c.jobs(ctx, r, k.repo, id, "latest")
		if errors.Is(err, cimeter.ErrNotFound) {
			ended = append(ended, id) // deleted
			continue
		}
		if err != nil {
			return err
		}
		over := len(found) > 0
		jobs := k.run.jobs(c.server, k.repo, found)
		for i := range jobs {
			over = over && jobs[i].Status.Ended()
		}
		report.Jobs = append(report.Jobs, jobs...)
		// A run whose jobs have all ended can get more, as long as it is not finished.
		if k.run.Status == "completed" && (over || len(found) == 0) {
			ended = append(ended, id)
		}
	}
	for _, id := range ended {
		delete(c.open, id)
	}
	return nil
}

// jobs lists those of a run: as they were tried last (latest), or of all its attempts
// (all).
func (c *Client) jobs(ctx context.Context, r *ask.Round, repo string, run int64, filter string) (all []job, err error) {
	path, err := scope(repo)
	if err != nil {
		return nil, err
	}
	seen := map[int64]bool{}
	for page := 1; page <= maxPages; page++ {
		var list jobs
		q := ask.Request{
			Path:  path + "/actions/runs/" + strconv.FormatInt(run, 10) + "/jobs",
			Query: url.Values{"filter": {filter}, "per_page": {strconv.Itoa(perPage)}, "page": {strconv.Itoa(page)}},
		}
		if _, err := r.JSON(ctx, q, &list); err != nil {
			return nil, err
		}
		if list.Jobs == nil {
			return nil, r.Invalid(q, "no jobs in it")
		}
		for _, j := range *list.Jobs {
			if j.ID <= 0 || j.RunID != run {
				return nil, r.Invalid(q, "job without id, or of another run")
			}
			if !seen[j.ID] {
				seen[j.ID] = true
				all = append(all, j)
			}
		}
		if len(*list.Jobs) == 0 || len(all) >= list.Total {
			break
		}
	}
	return all, nil
}

// runners asks for them; ok is false where the token may not see them.
func (c *Client) runners(ctx context.Context, r *ask.Round, path string) (all []runner, ok bool, err error) {
	for page := 1; page <= maxPages; page++ {
		var list runners
		q := ask.Request{Path: path + "/actions/runners", Query: url.Values{"per_page": {strconv.Itoa(perPage)}, "page": {strconv.Itoa(page)}}}
		_, err := r.JSON(ctx, q, &list)
		var source *queue.SourceError
		if errors.As(err, &source) && (source.Status == 404 || source.Status == 403 && source.RetryAfter == 0) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		if list.Runners == nil {
			return nil, false, r.Invalid(q, "no runners in it")
		}
		all = append(all, *list.Runners...)
		if len(*list.Runners) == 0 || len(all) >= list.Total {
			break
		}
	}
	return all, true, nil
}

// Cancel ends the run that a key's job is of, with all its jobs: GitHub ends no
// single one.
func (c *Client) Cancel(ctx context.Context, key string) error {
	bad := fmt.Errorf("build %.200q: want one of %s: %w", key, c.server, cimeter.ErrInvalid)
	rest, ok := strings.CutPrefix(key, cimeter.BuildKey(github.CI, c.server)+"/")
	parts := strings.Split(rest, "/")
	// OWNER/NAME/RUN/job/ID or OWNER/NAME/RUN/ATTEMPT/RUNNER/JOB; a name may hold slashes.
	if !ok || len(parts) < 5 || len(parts) == 5 && parts[3] != "job" {
		return bad
	}
	owner, ownerErr := url.PathUnescape(parts[0])
	name, nameErr := url.PathUnescape(parts[1])
	number, err := strconv.ParseUint(parts[2], 10, 63)
	if err := errors.Join(ownerErr, nameErr, err); err != nil || number == 0 {
		return bad
	}
	path, err := scope(owner + "/" + name)
	if err != nil {
		return bad
	}
	_, err = ask.NewRound(c.o.Ask).Send(ctx, ask.Request{Method: "POST", Path: fmt.Sprintf("%s/actions/runs/%d/cancel", path, number)})
	return err
}

// Builds tells of the jobs of runs that were made since a time, a page of one
// repository a call, from where cursor says; "" begins. next is "" at the end. It asks
// for the jobs of each run: 30 requests.
func (c *Client) Builds(ctx context.Context, since time.Time, cursor string) (jobs []cimeter.Job, next string, err error) {
	at, page := 0, 1
	if cursor != "" {
		if _, err := fmt.Sscanf(cursor, "%d %d", &at, &page); err != nil || at < 0 || page < 1 {
			return nil, "", fmt.Errorf("cursor %.100q: want PROJECT PAGE: %w", cursor, cimeter.ErrInvalid)
		}
	}
	for at < len(c.o.Projects) && !strings.Contains(c.o.Projects[at], "/") {
		at, page = at+1, 1
	}
	if at >= len(c.o.Projects) {
		return nil, "", nil
	}
	repo := c.o.Projects[at]
	path, err := scope(repo)
	if err != nil {
		return nil, "", err
	}
	const size = 30
	r := ask.NewRound(c.o.Ask)
	var list runs
	q := ask.Request{Path: path + "/actions/runs", Query: url.Values{
		"created": {">=" + since.UTC().Format("2006-01-02T15:04:05Z")}, "per_page": {strconv.Itoa(size)}, "page": {strconv.Itoa(page)},
	}}
	if _, err := r.JSON(ctx, q, &list); err != nil {
		return nil, "", err
	}
	if list.Runs == nil {
		return nil, "", r.Invalid(q, "no runs in it")
	}
	for _, run := range *list.Runs {
		found, err := c.jobs(ctx, r, repo, run.ID, "all")
		if err != nil {
			return nil, "", err
		}
		jobs = append(jobs, run.jobs(c.server, repo, found)...)
	}
	switch {
	case len(*list.Runs) == size:
		next = fmt.Sprintf("%d %d", at, page+1)
	case at+1 < len(c.o.Projects):
		next = fmt.Sprintf("%d 1", at+1)
	}
	return jobs, next, nil
}
