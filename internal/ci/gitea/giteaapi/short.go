package giteaapi

import (
	"context"

	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	maxShort      = 20 // runs that one poll looks for among the newest
	shortProjects = 5  // with more projects that are asked one by one it would be too many requests
)

// runs are those of the unfinished jobs that are known.
func (c *Client) runs() map[int64]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[int64]bool{}
	for _, k := range c.open {
		all[k.run] = true
	}
	return all
}

// short tells of the runs that began and finished since the last poll; those of was
// are told of job by job.
func (c *Client) short(ctx context.Context, r *ask.Round, was map[int64]bool, report *queue.Report) error {
	if c.noRuns || len(c.o.Projects) > shortProjects {
		return nil
	}
	over := map[string]map[int64]bool{}
	lists := map[string][]taskRow{}
	for _, scope := range c.scopes() {
		var list runs
		q := ask.Request{Path: scope + "/runs", Query: pageOf(1, maxShort)}
		if _, err := r.JSON(ctx, q, &list); gone(err) {
			c.noRuns = true
			return nil
		} else if err != nil {
			return err
		}
		if list.Runs == nil {
			return r.Invalid(q, "no runs in it")
		}
		told := c.over[scope]
		over[scope] = map[int64]bool{}
		for i := range *list.Runs {
			run := &(*list.Runs)[i]
			repo := repoOf(run.URL)
			if run.Status != "completed" || repo == "" {
				continue
			}
			over[scope][run.ID] = true
			if told == nil || told[run.ID] || was[run.ID] { // told is nil at the first poll
				continue
			}
			if err := c.shortRun(ctx, r, repo, run, lists, report); err != nil {
				return err
			}
		}
	}
	for scope, ids := range over { // a poll that failed in between tells of them the next time
		c.over[scope] = ids
	}
	return nil
}

func (c *Client) shortRun(ctx context.Context, r *ask.Round, repo string, run *run, lists map[string][]taskRow, report *queue.Report) error {
	found, err := c.runJobs(ctx, r, repo, run.ID)
	if err != nil {
		return err
	}
	for i := range found {
		j := &found[i]
		k := known{repo: repo}
		if j.RunnerID > 0 {
			if k.task, err = c.task(ctx, r, lists, j, repo); err != nil {
				return err
			}
		}
		out := c.job(j, &k)
		out.Event = run.Event
		report.Jobs = append(report.Jobs, out)
		report.Moved = append(report.Moved, c.server.moved(j.ID, k.task)...)
	}
	return nil
}
