// Package giteaapi asks Gitea or Forgejo for the queue of its Actions, its runners
// and how jobs ended, and reads Gitea's webhooks.
//
// A runner names the containers of a job by its task, which the server makes when a
// runner takes the job. So a job that waits has a key of its own, and from its start
// that of its task, by which an agent knows it too. The package owns which task a job
// has. It never logs and makes one try a question. Start with [New] or [Hook]. A Client
// polls in one goroutine at a time; the rest of it, and a Hook, may be used by many.
package giteaapi

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

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/gitea"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	perPage  = 50 // the server's own bound
	maxPages = 40
	maxEnds  = 20 // jobs whose end is asked for in one poll: a request each
	maxKnown = 10000
)

// Options say which server is asked.
type Options struct {
	Kind string   // gitea.CI or gitea.Forgejo
	URL  string   // as builds know it
	Ask  ask.Doer // puts the questions; without Projects its token must be an administrator's
	// Projects are the repositories that are asked for, OWNER/NAME; none: all of the server.
	Projects []string
}

// Client asks one server. Make it with New.
type Client struct {
	o      Options
	server server

	polling sync.Mutex // what polls and what reads the past
	past    past
	over    map[string]map[int64]bool // finished runs of each scope that are told of, among the newest
	noRuns  bool                      // the server does not list runs: Gitea before 1.25
	mu      sync.Mutex
	open    map[int64]*known // unfinished jobs by id
}

// known is an unfinished job as it was told last.
type known struct {
	repo    string
	run     int64
	attempt int
	task    int64 // 0: it has none, or it is not known
	blocked bool  // it was seen to wait for another job
}

// New returns a client. The error wraps [cimeter.ErrInvalid].
func New(o Options) (*Client, error) {
	s := newServer(o.Kind, o.URL)
	if s.host == "" || o.Kind != gitea.CI && o.Kind != gitea.Forgejo {
		return nil, fmt.Errorf("address of %s: want http://HOST or https://HOST: %w", o.Kind, cimeter.ErrInvalid)
	}
	for _, p := range o.Projects {
		if _, err := repoPath(p); err != nil {
			return nil, err
		}
	}
	return &Client{o: o, server: s, open: make(map[int64]*known), over: make(map[string]map[int64]bool)}, nil
}

// Poll asks for the jobs that are not finished, for the runners, for the tasks of
// jobs that began, for the end of those that are not told any more, and for the newest
// runs: those that began and finished since the last poll.
func (c *Client) Poll(ctx context.Context) (queue.Report, error) {
	c.polling.Lock()
	defer c.polling.Unlock()
	if c.o.Kind == gitea.Forgejo {
		return c.pollForgejo(ctx)
	}
	r := ask.NewRound(c.o.Ask)
	var found []job
	var workers []runner
	for _, scope := range c.scopes() {
		js, err := c.unfinished(ctx, r, scope)
		if err != nil {
			return queue.Report{}, err
		}
		ws, err := c.runners(ctx, r, scope)
		if err != nil {
			return queue.Report{}, err
		}
		found, workers = append(found, js...), append(workers, ws...)
	}
	report := queue.Report{WholeJobs: true, WholeWorkers: true, EveryWorker: len(c.o.Projects) == 0}
	told, err := c.note(ctx, r, found, &report)
	if err != nil {
		return queue.Report{}, err
	}
	was := c.runs()
	if err := c.ends(ctx, r, told, &report); err != nil {
		return queue.Report{}, err
	}
	if err := c.short(ctx, r, was, &report); err != nil {
		return queue.Report{}, err
	}
	report.Workers = c.workers(workers, report.Jobs)
	r.Fill(&report)
	return report, nil
}

// scopes are where the API lists jobs and runners.
func (c *Client) scopes() []string {
	if len(c.o.Projects) == 0 {
		return []string{"/api/v1/admin/actions"}
	}
	var all []string
	for _, p := range c.o.Projects {
		path, err := repoPath(p)
		if err != nil {
			continue // New refused it
		}
		all = append(all, path+"/actions")
	}
	return all
}

func (c *Client) unfinished(ctx context.Context, r *ask.Round, scope string) (all []job, err error) {
	for page := 1; page <= maxPages; page++ {
		var some jobs
		q := ask.Request{Path: scope + "/jobs", Query: url.Values{"status": {"queued", "waiting", "in_progress"}, "page": {strconv.Itoa(page)}, "limit": {strconv.Itoa(perPage)}}}
		if _, err := r.JSON(ctx, q, &some); err != nil {
			return nil, err
		}
		if some.Jobs == nil {
			return nil, r.Invalid(q, "no jobs in it")
		}
		all = append(all, *some.Jobs...)
		if len(*some.Jobs) == 0 || len(all) >= some.Total {
			break
		}
	}
	return all, nil
}

func (c *Client) runners(ctx context.Context, r *ask.Round, scope string) (all []runner, err error) {
	for page := 1; page <= maxPages; page++ {
		var some runners
		q := ask.Request{Path: scope + "/runners", Query: url.Values{"page": {strconv.Itoa(page)}, "limit": {strconv.Itoa(perPage)}}}
		if _, err := r.JSON(ctx, q, &some); err != nil {
			return nil, err
		}
		if some.Runners == nil {
			return nil, r.Invalid(q, "no runners in it")
		}
		all = append(all, *some.Runners...)
		if len(*some.Runners) == 0 || len(all) >= some.Total {
			break
		}
	}
	return all, nil
}

// note remembers the jobs that were found and tells of them. Pages can overlap when
// a job comes in between: each is told of once.
func (c *Client) note(ctx context.Context, r *ask.Round, found []job, report *queue.Report) (told map[int64]bool, err error) {
	told = make(map[int64]bool)
	lists := map[string][]taskRow{}
	for i := range found {
		j := &found[i]
		repo := repoOf(j.URL)
		if j.ID <= 0 || repo == "" {
			return nil, r.Invalid(ask.Request{Path: "/api/v1/admin/actions/jobs"}, "job without id or repository")
		}
		if told[j.ID] {
			continue
		}
		told[j.ID] = true
		k := &known{repo: repo, run: j.RunID, attempt: j.Attempt}
		if was := c.open[j.ID]; was != nil && was.attempt == j.Attempt {
			*k = *was // which Task may be reading
		}
		is := status(j.Status, j.Conclusion)
		k.blocked = k.blocked || is == cimeter.JobBlocked
		if is == cimeter.JobRunning && k.task == 0 {
			if k.task, err = c.task(ctx, r, lists, j, repo); err != nil {
				return nil, err
			}
		}
		c.remember(j.ID, k)
		report.Jobs = append(report.Jobs, c.job(j, k))
		report.Moved = append(report.Moved, c.server.moved(j.ID, k.task)...)
	}
	return told, nil
}

// job tells of one: since when it waits for a runner is told by its creation, but
// for one that waited for another first.
func (c *Client) job(j *job, k *known) cimeter.Job {
	out := c.server.job(k.repo, j, k.task)
	if !k.blocked && out.Status != cimeter.JobSkipped {
		out.QueuedAt = out.CreatedAt
	}
	return out
}

func (c *Client) remember(id int64, k *known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) < maxKnown || c.open[id] != nil {
		c.open[id] = k
	}
}

// Task returns the task of an unfinished job of that attempt, and 0 when it is
// not known.
func (c *Client) Task(job int64, attempt int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.open[job]; k != nil && k.attempt == attempt {
		return k.task
	}
	return 0
}

// task finds a job's task among the newest of its repository: that of the same run
// and name with the greatest id. 0: it is not told.
func (c *Client) task(ctx context.Context, r *ask.Round, lists map[string][]taskRow, j *job, repo string) (int64, error) {
	if _, ok := lists[repo]; !ok {
		path, err := repoPath(repo)
		if err != nil {
			return 0, r.Invalid(ask.Request{Path: "/api/v1/admin/actions/jobs"}, "%v", err)
		}
		var some tasks
		q := ask.Request{Path: path + "/actions/tasks", Query: url.Values{"limit": {strconv.Itoa(perPage)}}}
		if _, err := r.JSON(ctx, q, &some); err != nil {
			return 0, err
		}
		if some.Tasks == nil {
			return 0, r.Invalid(q, "no tasks in it")
		}
		lists[repo] = *some.Tasks
	}
	best := int64(0)
	run := pathOf(j.HTMLURL)
	for _, t := range lists[repo] {
		if p := pathOf(t.URL); t.Name == j.Name && p != "" && strings.HasPrefix(run, p+"/jobs/") {
			best = max(best, t.ID)
		}
	}
	return best, nil
}

// pathOf is the path of an address: its host may be another than that asked.
func pathOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Path
}

// ends asks for the jobs that are not told any more.
func (c *Client) ends(ctx context.Context, r *ask.Round, told map[int64]bool, report *queue.Report) error {
	c.mu.Lock()
	open := maps.Clone(c.open)
	c.mu.Unlock()
	lists := map[string][]taskRow{}
	asked := 0
	var over []int64
	for _, id := range slices.Sorted(maps.Keys(open)) {
		if told[id] || asked == maxEnds {
			continue
		}
		asked++
		k := *open[id]
		path, err := repoPath(k.repo)
		if err != nil {
			return err
		}
		var j job
		q := ask.Request{Path: path + "/actions/jobs/" + strconv.FormatInt(id, 10)}
		if _, err := r.JSON(ctx, q, &j); errors.Is(err, cimeter.ErrNotFound) {
			over = append(over, id)
			continue
		} else if err != nil {
			return err
		}
		if j.ID != id {
			return r.Invalid(q, "told of job %d", j.ID)
		}
		if k.task == 0 && j.RunnerID > 0 {
			if k.task, err = c.task(ctx, r, lists, &j, k.repo); err != nil {
				return err
			}
		}
		out := c.job(&j, &k)
		report.Jobs = append(report.Jobs, out)
		report.Moved = append(report.Moved, c.server.moved(j.ID, k.task)...)
		if out.Status.Ended() {
			over = append(over, id)
		} else {
			c.remember(id, &k)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range over {
		delete(c.open, id)
	}
	return nil
}

// workers joins the runners to the jobs that they have; one may be told of by
// several repositories.
func (c *Client) workers(found []runner, told []cimeter.Job) (all []cimeter.Worker) {
	has := map[string][]string{}
	for i := range told {
		if j := &told[i]; j.Status == cimeter.JobRunning && j.Worker != "" {
			has[j.Worker] = append(has[j.Worker], j.Key)
		}
	}
	seen := map[int64]bool{}
	for i := range found {
		if !seen[found[i].ID] {
			seen[found[i].ID] = true
			all = append(all, c.server.worker(&found[i], has[strconv.FormatInt(found[i].ID, 10)]))
		}
	}
	return all
}

// repoPath is where the API has a repository.
func repoPath(slug string) (string, error) {
	owner, name, ok := strings.Cut(slug, "/")
	bad := func(s string) bool { return s == "" || s == "." || s == ".." }
	if !ok || bad(owner) || bad(name) || strings.Contains(name, "/") {
		return "", fmt.Errorf("repository %.100q: want OWNER/NAME: %w", slug, cimeter.ErrInvalid)
	}
	return "/api/v1/repos" + ask.Path(owner, name), nil
}
