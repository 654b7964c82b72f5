package gitlabapi

import (
	"context"
	"strconv"

	"github.com/cimeter/cimeter"
)

// newEnds asks for the newest builds of the server that are over: by one request it
// learns how most of those ended that were not over at the last look, and of those that
// came and ended since. jobs are the ones that are not over.
func (c *Client) newEnds(ctx context.Context, jobs []cimeter.Job) error {
	p := &c.poll
	nodes, _, err := c.jobPage(ctx, "list jobs that are over", []string{"success", "failed", "canceled"}, "")
	if err != nil {
		return err
	}
	open := make(map[string]bool, len(jobs))
	before := p.newest
	for i := range jobs {
		open[jobs[i].Key] = true
		p.newest = max(p.newest, numberIn(&jobs[i]))
	}
	for _, n := range nodes {
		j, ok := c.fromGraph(n)
		if !ok || open[j.Key] || !j.Status.Ended() {
			continue
		}
		id := numberIn(&j)
		p.newest = max(p.newest, id)
		if _, known := p.known[j.Key]; known || before > 0 && id > before {
			delete(p.known, j.Key)
			p.untold = append(p.untold, j)
		}
	}
	return nil
}

// numberIn is a job's number; 0 where it has none.
func numberIn(j *cimeter.Job) int64 {
	n, err := strconv.ParseInt(j.Number, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
