package giteaapi

import (
	"context"

	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	shortPage     = 20 // runs of a page of the newest
	shortPages    = 25 // that one poll reads: as many runs as a server makes while it is not asked for an hour
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
// are told of job by job. It reads on to the first run that an earlier poll told of.
func (c *Client) short(ctx context.Context, r *ask.Round, was map[int64]bool, report *queue.Report) error {
	if c.noRuns || len(c.o.Projects) > shortProjects {
		return nil
	}
	over := map[string]map[int64]bool{}
	lists := map[string][]taskRow{}
	for _, scope := range c.scopes() {
		told := c.over[scope]
		over[scope] = map[int64]bool{}
		for page, met := 1, told == nil; page == 1 || !met && page <= shortPages; page++ {
			var list runs
			q := ask.Request{Path: scope + "/runs", Query: pageOf(page, shortPage)}
			if _, err := r.JSON(ctx, q, &list); gone(err) {
				c.noRuns = true
				return nil
			} else if err != nil {
				return err
			}
			if list.Runs == nil {
				return r.Invalid(q, "no runs in it")
			}
			for i := range *list.Runs {
				run := &(*list.Runs)[i]
				repo := repoOf(run.URL)
				if run.Status != "completed" || repo == "" || over[scope][run.ID] { // a new run moves all to later pages
					continue
				}
				over[scope][run.ID] = true
				met = met || told[run.ID]
				if told == nil || told[run.ID] || was[run.ID] { // told is nil at the first poll
					continue
				}
				if err := c.shortRun(ctx, r, repo, run, lists, report); err != nil {
					return err
				}
			}
			if len(*list.Runs) < shortPage {
				break
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
