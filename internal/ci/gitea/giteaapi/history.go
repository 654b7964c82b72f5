package giteaapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/gitea"
)

const (
	pastRuns     = 10      // runs of a page of the past: a request each
	pastTasks    = 20      // pages of tasks that one page of the past asks for
	pastRunPages = 5       // pages of runs that one page of Forgejo's past asks for
	maxPastTasks = 500_000 // that are remembered: some 100 MB
)

// history is where a reader of past builds is: its text is the cursor of Builds.
type history struct {
	Scope int      `json:"s,omitempty"` // index of scopes
	Page  int      `json:"p,omitempty"` // pages that are done: of runs, or of tasks of the first repository that is left
	Left  []string `json:"l,omitempty"` // repositories that are listed and not done
	Repos int      `json:"r,omitempty"` // pages of repositories that were listed
	Calls int      `json:"n,omitempty"` // so that no cursor comes twice
}

// past is what is remembered of tasks between two pages: a task says which run it is
// of, and nothing says which tasks a job had.
type past struct {
	tasks int
	repos map[string]*repoTasks
	runs  map[string]pastRun // Forgejo's, by path
	pages map[string]int     // of runs that were asked for, by repository
	none  bool               // the server does not list runs
}

type repoTasks struct {
	pages  int
	whole  bool      // there are no more
	oldest time.Time // when the last one of them was made
	seen   map[int64]bool
	of     map[string][]taskRow // of a run's job, by jobOf; newest first
}

type pastRun struct {
	id      int64
	stopped time.Time
}

// Builds tells of the builds that were made since a time, newest first, some runs a
// call, from where cursor says; "" begins. next is "" at the end. A call makes at most 32
// requests. A job that was tried again is a build for each of its tasks; of the
// earlier ones Gitea tells no end but the last change, as of all of Forgejo's.
func (c *Client) Builds(ctx context.Context, since time.Time, cursor string) (jobs []cimeter.Job, next string, err error) {
	c.polling.Lock()
	defer c.polling.Unlock()
	var h history
	if cursor != "" && json.Unmarshal([]byte(cursor), &h) != nil || h.Scope < 0 || h.Page < 0 || h.Repos < 0 {
		return nil, "", fmt.Errorf("cursor of builds: want one that was given: %w", cimeter.ErrInvalid)
	}
	if c.past.repos == nil || c.past.tasks > maxPastTasks {
		c.past = past{repos: map[string]*repoTasks{}, runs: map[string]pastRun{}, pages: map[string]int{}, none: c.past.none}
	}
	h.Calls++
	r, more := ask.NewRound(c.o.Ask), false
	if c.o.Kind == gitea.Forgejo {
		jobs, more, err = c.forgejoHistory(ctx, r, since, &h)
	} else {
		jobs, more, err = c.history(ctx, r, since, &h)
	}
	if err != nil || !more {
		return jobs, "", err
	}
	text, err := json.Marshal(h)
	return jobs, string(text), err
}

// history reads a page of runs of a scope, the jobs of each, and the tasks of their
// repositories that are not older than they.
func (c *Client) history(ctx context.Context, r *ask.Round, since time.Time, h *history) (jobs []cimeter.Job, more bool, err error) {
	scopes := c.scopes()
	if h.Scope >= len(scopes) {
		return nil, false, nil
	}
	var list runs
	q := ask.Request{Path: scopes[h.Scope] + "/runs", Query: pageOf(h.Page+1, pastRuns)}
	if _, err := r.JSON(ctx, q, &list); err != nil {
		return nil, false, err
	}
	if list.Runs == nil {
		return nil, false, r.Invalid(q, "no runs in it")
	}
	type of struct {
		repo, event string
		job         job
	}
	var found []of
	oldest := map[string]time.Time{} // job of a repository
	over := len(*list.Runs) == 0
	for i := range *list.Runs {
		run := &(*list.Runs)[i]
		repo := repoOf(run.URL)
		if run.ID <= 0 || repo == "" {
			return nil, false, r.Invalid(q, "run without id or repository")
		}
		its, err := c.runJobs(ctx, r, repo, run.ID)
		if err != nil {
			return nil, false, err
		}
		for _, j := range its {
			made := ask.Known(j.CreatedAt)
			if over = over || !made.IsZero() && made.Before(since); over {
				break
			}
			if at, ok := oldest[repo]; !made.IsZero() && (!ok || made.Before(at)) {
				oldest[repo] = made
			}
			found = append(found, of{repo, run.Event, j})
		}
		if over { // runs are newest first
			break
		}
	}
	left := pastTasks
	for _, repo := range slices.Sorted(maps.Keys(oldest)) {
		whole, err := c.learnTasks(ctx, r, repo, oldest[repo], &left)
		if err != nil {
			return nil, false, err
		}
		if !whole {
			return nil, true, nil // the next call goes on, with this page
		}
	}
	for i := range found {
		jobs = append(jobs, c.pastJobs(found[i].repo, found[i].event, &found[i].job)...)
	}
	if h.Page++; over {
		h.Scope, h.Page = h.Scope+1, 0
	}
	return jobs, h.Scope < len(scopes), nil
}

// runJobs lists the jobs of a run, as they were tried last.
func (c *Client) runJobs(ctx context.Context, r *ask.Round, repo string, run int64) (all []job, err error) {
	path, err := repoPath(repo)
	if err != nil {
		return nil, r.Invalid(ask.Request{Path: "/api/v1/admin/actions/runs"}, "%v", err)
	}
	seen := map[int64]bool{}
	for page := 1; page <= maxPages; page++ {
		var some jobs
		q := ask.Request{Path: path + "/actions/runs/" + strconv.FormatInt(run, 10) + "/jobs", Query: pageOf(page, perPage)}
		if _, err := r.JSON(ctx, q, &some); err != nil {
			return nil, err
		}
		if some.Jobs == nil {
			return nil, r.Invalid(q, "no jobs in it")
		}
		for _, j := range *some.Jobs {
			if j.ID > 0 && !seen[j.ID] {
				seen[j.ID] = true
				all = append(all, j)
			}
		}
		if len(*some.Jobs) == 0 || len(all) >= some.Total {
			break
		}
	}
	return all, nil
}

// learnTasks lists the tasks of a repository as far back as at. whole is false when
// that takes more requests than are left.
func (c *Client) learnTasks(ctx context.Context, r *ask.Round, repo string, at time.Time, left *int) (whole bool, err error) {
	t := c.past.repos[repo]
	if t == nil {
		t = &repoTasks{seen: map[int64]bool{}, of: map[string][]taskRow{}}
		c.past.repos[repo] = t
	}
	for !t.whole && (t.pages == 0 || !t.oldest.Before(at)) {
		if *left == 0 {
			return false, nil
		}
		*left--
		rows, err := c.taskPage(ctx, r, repo, t.pages+1)
		if err != nil {
			return false, err
		}
		t.pages++
		t.whole = len(rows) == 0
		for _, row := range rows {
			if made := ask.Known(row.CreatedAt); !made.IsZero() {
				t.oldest = made
			}
			if row.ID <= 0 || t.seen[row.ID] {
				continue
			}
			t.seen[row.ID] = true
			c.past.tasks++
			key := jobOf(pathOf(row.URL), row.Name)
			t.of[key] = append(t.of[key], row)
		}
	}
	return true, nil
}

func jobOf(run, name string) string { return run + "\n" + name }

func (c *Client) taskPage(ctx context.Context, r *ask.Round, repo string, page int) ([]taskRow, error) {
	path, err := repoPath(repo)
	if err != nil {
		return nil, r.Invalid(ask.Request{Path: "/api/v1/repos"}, "%v", err)
	}
	var some tasks
	q := ask.Request{Path: path + "/actions/tasks", Query: pageOf(page, perPage)}
	if _, err := r.JSON(ctx, q, &some); err != nil {
		return nil, err
	}
	if some.Tasks == nil {
		return nil, r.Invalid(q, "no tasks in it")
	}
	return *some.Tasks, nil
}

// pastJobs are the builds of a job: as it was tried last, and each task before.
func (c *Client) pastJobs(repo, event string, j *job) (all []cimeter.Job) {
	run, _, _ := strings.Cut(pathOf(j.HTMLURL), "/jobs/")
	var had []taskRow
	if t := c.past.repos[repo]; t != nil {
		had = slices.Clone(t.of[jobOf(run, j.Name)])
	}
	slices.SortFunc(had, func(a, b taskRow) int { return cmp.Compare(b.ID, a.ID) })
	k := known{repo: repo}
	attempt := j.Attempt
	if j.RunnerID > 0 && len(had) > 0 { // else no runner took the last try
		k.task = had[0].ID
	}
	last := c.job(j, &k)
	last.Event, last.QueuedAt = event, time.Time{} // whether it waited for another job first is not told
	all = append(all, last)
	if k.task > 0 {
		had = had[1:]
		attempt--
	}
	bound := last.StartedAt // of the try that followed
	if bound.IsZero() {
		bound = last.EndedAt
	}
	for i := range had {
		out := c.server.taskJob(repo, &had[i], bound)
		if len(had) == attempt { // each of its tries had a task
			out.Attempt = attempt - i
		}
		out.Pipeline, out.Tags = last.Pipeline, last.Tags
		all = append(all, out)
		bound = ask.Known(had[i].StartedAt)
	}
	return all
}

// taskJob maps a task. It ended when it was changed last, or before the bound, where
// there is one: a log that is thrown away changes a task too.
func (s server) taskJob(repo string, t *taskRow, bound time.Time) (out cimeter.Job) {
	key, number := s.key(0, t.ID)
	out.Build = cimeter.Build{
		Key: key, CI: s.ci, Server: s.host, Project: repo, Number: number, Name: t.Name, Ref: t.HeadBranch, SHA: t.HeadSHA, Event: t.Event, URL: ci.PageOf(t.URL),
	}
	out.Status = taskStatus(t.Status)
	out.StartedAt = ask.Known(t.StartedAt)
	if out.Status.Ended() {
		if out.EndedAt = ask.Known(t.UpdatedAt); !bound.IsZero() && (out.EndedAt.IsZero() || bound.Before(out.EndedAt)) {
			out.EndedAt = bound
		}
		if out.EndedAt.Before(out.StartedAt) {
			out.EndedAt = out.StartedAt
		}
	}
	return out
}

// forgejoHistory reads a page of the tasks of one repository, and how the runs that
// they are of ended.
func (c *Client) forgejoHistory(ctx context.Context, r *ask.Round, since time.Time, h *history) (jobs []cimeter.Job, more bool, err error) {
	listed := len(c.o.Projects) > 0
	switch {
	case len(h.Left) > 0:
	case listed && h.Repos == 0:
		h.Left, h.Repos = slices.Clone(c.o.Projects), 1
	case listed:
		return nil, false, nil
	default:
		var some repos
		q := ask.Request{Path: "/api/v1/repos/search", Query: pageOf(h.Repos+1, perPage)}
		q.Query.Set("sort", "id")
		q.Query.Set("order", "asc")
		if _, err := r.JSON(ctx, q, &some); err != nil {
			return nil, false, err
		}
		if some.Data == nil {
			return nil, false, r.Invalid(q, "no repositories in it")
		}
		h.Repos++
		for _, rp := range *some.Data {
			if rp.Actions == nil || *rp.Actions {
				h.Left = append(h.Left, rp.FullName)
			}
		}
		if len(h.Left) == 0 {
			return nil, len(*some.Data) > 0, nil
		}
	}
	repo := h.Left[0]
	rows, err := c.taskPage(ctx, r, repo, h.Page+1)
	if err != nil && (listed || !gone(err)) {
		return nil, false, err
	}
	over := len(rows) == 0
	for i := range rows {
		if made := ask.Known(rows[i].CreatedAt); !made.IsZero() && made.Before(since) {
			rows, over = rows[:i], true
			break
		}
	}
	if err := c.learnRuns(ctx, r, repo, rows); err != nil {
		return nil, false, err
	}
	for i := range rows {
		if rows[i].ID <= 0 {
			continue
		}
		run := c.past.runs[pathOf(rows[i].URL)]
		j := c.server.taskJob(repo, &rows[i], run.stopped)
		if run.id > 0 {
			j.Pipeline = strconv.FormatInt(run.id, 10)
		}
		jobs = append(jobs, j)
	}
	if h.Page++; over {
		h.Left, h.Page = h.Left[1:], 0
	}
	return jobs, len(h.Left) > 0 || !listed, nil
}

// learnRuns lists the runs of a repository, newest first, until those of the tasks
// are known. Servers that do not list them are not asked again.
func (c *Client) learnRuns(ctx context.Context, r *ask.Round, repo string, of []taskRow) error {
	path, err := repoPath(repo)
	if err != nil || c.past.none {
		return err
	}
	unknown := func(t taskRow) bool { _, ok := c.past.runs[pathOf(t.URL)]; return !ok }
	for range pastRunPages {
		if !slices.ContainsFunc(of, unknown) {
			break
		}
		var list runs
		q := ask.Request{Path: path + "/actions/runs", Query: pageOf(c.past.pages[repo]+1, perPage)}
		if _, err := r.JSON(ctx, q, &list); gone(err) {
			c.past.none = true
			return nil
		} else if err != nil {
			return err
		}
		if list.Runs == nil {
			return r.Invalid(q, "no runs in it")
		}
		if len(*list.Runs) == 0 {
			break
		}
		c.past.pages[repo]++
		for _, run := range *list.Runs {
			c.past.runs[pathOf(run.HTMLURL)] = pastRun{id: run.ID, stopped: ask.Known(run.Stopped)}
			c.past.tasks++
		}
	}
	return nil
}

func pageOf(page, limit int) url.Values {
	return url.Values{"page": {strconv.Itoa(page)}, "limit": {strconv.Itoa(limit)}}
}

// gone reports whether the server says that it has no such thing.
func gone(err error) bool { return errors.Is(err, cimeter.ErrNotFound) }
