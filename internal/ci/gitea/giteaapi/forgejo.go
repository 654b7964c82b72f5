package giteaapi

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/queue"
)

// runJob is Forgejo's ActionRunJob. It has no times.
type runJob struct {
	ID      int64    `json:"id"`
	RunID   int64    `json:"run_id"`
	Attempt int      `json:"attempt"`
	RepoID  int64    `json:"repo_id"`
	Name    string   `json:"name"`
	RunsOn  []string `json:"runs_on"`
	TaskID  int64    `json:"task_id"`
	Status  string   `json:"status"`
}

// pollForgejo asks for the jobs that wait for a runner, and the runners. Forgejo
// tells neither when a job was made nor of those that run or ended, so those are
// known by agents alone; a report is whole as to what waits.
func (c *Client) pollForgejo(ctx context.Context) (queue.Report, error) {
	r := ask.NewRound(c.o.Ask)
	report := queue.Report{WholeJobs: true, WholeWorkers: true}
	seenJobs, workers := map[int64]bool{}, []runner(nil)
	for i, scope := range c.scopes() {
		var waiting []runJob
		q := ask.Request{Path: scope + "/runners/jobs"}
		if _, err := r.JSON(ctx, q, &waiting); err != nil {
			return queue.Report{}, err
		}
		for _, j := range waiting {
			if j.ID <= 0 {
				return queue.Report{}, r.Invalid(q, "job without id")
			}
			if seenJobs[j.ID] {
				continue
			}
			seenJobs[j.ID] = true
			job := c.forgejoJob(&j)
			if len(c.o.Projects) > 0 {
				job.Project = c.o.Projects[i]
			}
			report.Jobs = append(report.Jobs, job)
			report.Moved = append(report.Moved, c.server.moved(j.ID, j.TaskID)...)
		}
		for page := 1; page <= maxPages; page++ {
			var some []runner
			q := ask.Request{Path: scope + "/runners", Query: url.Values{"page": {strconv.Itoa(page)}, "limit": {strconv.Itoa(perPage)}}}
			if _, err := r.JSON(ctx, q, &some); err != nil {
				return queue.Report{}, err
			}
			if workers = append(workers, some...); len(some) < perPage {
				break
			}
		}
	}
	report.Workers = c.workers(workers, report.Jobs)
	r.Fill(&report)
	return report, nil
}

func (c *Client) forgejoJob(j *runJob) (out cimeter.Job) {
	key, number := c.server.key(j.ID, j.TaskID)
	out.Build = cimeter.Build{Key: key, CI: c.server.ci, Server: c.server.host, Number: number, Name: j.Name, Attempt: max(j.Attempt, 0)}
	if j.RunID > 0 {
		out.Pipeline = strconv.FormatInt(j.RunID, 10)
	}
	out.Tags = j.RunsOn
	out.Status = taskStatus(j.Status)
	return out
}

// Cancel ends nothing: neither Gitea's API nor Forgejo's does. The error wraps
// [cimeter.ErrUnsupported].
func (c *Client) Cancel(context.Context, string) error {
	return fmt.Errorf("%s ends no job by its API: %w", c.o.Kind, cimeter.ErrUnsupported)
}
