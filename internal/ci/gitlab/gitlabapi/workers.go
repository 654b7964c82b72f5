package gitlabapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
)

// graphRunner is a runner with its managers: the machines that use its token.
type graphRunner struct {
	ID                 string      `json:"id"`
	Description        string      `json:"description"`
	Paused             bool        `json:"paused"`
	Status             string      `json:"status"`
	TagList            []string    `json:"tagList"`
	ContactedAt        gitlab.Time `json:"contactedAt"`
	JobExecutionStatus string      `json:"jobExecutionStatus"`
	Managers           struct {
		Nodes []*struct {
			SystemID           string      `json:"systemId"`
			Status             string      `json:"status"`
			JobExecutionStatus string      `json:"jobExecutionStatus"`
			ContactedAt        gitlab.Time `json:"contactedAt"`
			Version            string      `json:"version"`
			PlatformName       string      `json:"platformName"`
			ArchitectureName   string      `json:"architectureName"`
		} `json:"nodes"`
	} `json:"managers"`
}

const runnerFields = `pageInfo{hasNextPage endCursor} nodes{id description paused status tagList contactedAt jobExecutionStatus
managers{nodes{systemId status jobExecutionStatus contactedAt version platformName architectureName}}}`

// askWorkers lists the runners, once a minute: all of them to an administrator, else
// those that the token's user may manage. A server that tells none of them leaves
// workers untold.
func (c *Client) askWorkers(ctx context.Context, now time.Time) error {
	p := &c.poll
	if p.workersOff || !p.workersAt.IsZero() && now.Sub(p.workersAt) < workersEvery {
		return nil
	}
	text := `query($after:String){runners(first:100,after:$after){` + runnerFields + `}}`
	if p.scope != scopeServer {
		text = `query($after:String){currentUser{runners(first:100,after:$after){` + runnerFields + `}}}`
	}
	type connection struct {
		PageInfo struct {
			HasNextPage bool   `json:"hasNextPage"`
			EndCursor   string `json:"endCursor"`
		} `json:"pageInfo"`
		Nodes []*graphRunner `json:"nodes"`
	}
	var workers []cimeter.Worker
	var after any
	for range maxPages {
		var data struct {
			Runners     *connection `json:"runners"`
			CurrentUser *struct {
				Runners *connection `json:"runners"`
			} `json:"currentUser"`
		}
		err := c.query(ctx, "list runners", text, map[string]any{"after": after}, &data)
		if x := exchangeOf(ctx); err != nil && p.scope != scopeServer && x.status == 200 && x.fault == nil && errors.Is(err, cimeter.ErrInvalid) {
			p.workersOff = true // an older server: users have no such field
			return nil
		}
		if err != nil {
			return err
		}
		list := data.Runners
		if data.CurrentUser != nil {
			list = data.CurrentUser.Runners
		}
		if list == nil {
			return c.failed(ctx, "list runners", fmt.Errorf("no list in the answer: %w", cimeter.ErrInvalid))
		}
		for _, r := range list.Nodes {
			if r != nil {
				workers = c.appendWorkers(workers, r)
			}
		}
		if !list.PageInfo.HasNextPage || list.PageInfo.EndCursor == "" || after == list.PageInfo.EndCursor {
			break
		}
		after = list.PageInfo.EndCursor
	}
	p.workers, p.workersAt = workers, now
	return nil
}

func (c *Client) appendWorkers(dst []cimeter.Worker, r *graphRunner) []cimeter.Worker {
	id, ok := numberOf(r.ID)
	if !ok {
		return dst
	}
	w := cimeter.Worker{
		CI: gitlab.CI, Server: c.server, ID: workerID(id, ""), Name: r.Description, Tags: r.TagList,
		Runner: cimeter.Runner{Name: r.Description}, State: stateOf(r.Paused, r.Status, r.JobExecutionStatus), ContactedAt: r.ContactedAt.Time,
	}
	if len(r.Managers.Nodes) == 0 {
		return append(dst, w)
	}
	for _, m := range r.Managers.Nodes {
		if m == nil || m.SystemID == "" {
			continue
		}
		one := w
		one.ID, one.Runner.ID = workerID(id, m.SystemID), m.SystemID
		one.State, one.ContactedAt, one.Version = stateOf(r.Paused, m.Status, m.JobExecutionStatus), m.ContactedAt.Time, m.Version
		if m.PlatformName != "" {
			one.Platform = strings.Trim(m.PlatformName+"/"+m.ArchitectureName, "/")
		}
		dst = append(dst, one)
	}
	return dst
}

func stateOf(paused bool, status, execution string) cimeter.WorkerState {
	switch {
	case status == "OFFLINE", status == "STALE", status == "NEVER_CONTACTED":
		return cimeter.WorkerOffline
	case paused:
		return cimeter.WorkerDraining
	case execution == "ACTIVE":
		return cimeter.WorkerBusy
	case execution == "IDLE":
		return cimeter.WorkerIdle
	}
	return cimeter.WorkerUnknown
}

// busy gives workers the builds that run on them. Where all builds of the server are
// known, so is how many each has, and who is busy: runners are asked less often.
func busy(workers []cimeter.Worker, jobs []cimeter.Job, whole bool) []cimeter.Worker {
	builds := make(map[string][]string)
	for i := range jobs {
		if j := &jobs[i]; j.Status == cimeter.JobRunning && j.Worker != "" {
			builds[j.Worker] = append(builds[j.Worker], j.Key)
		}
	}
	// A job that does not tell the machine runs on the only one of its runner.
	machines := make(map[string][]string)
	for i := range workers {
		runner, _, many := strings.Cut(workers[i].ID, "/")
		if machines[runner] = append(machines[runner], workers[i].ID); !many {
			machines[runner] = nil
		}
	}
	for runner, ids := range machines {
		if len(ids) == 1 && len(builds[runner]) > 0 {
			builds[ids[0]] = append(builds[ids[0]], builds[runner]...)
		}
	}
	out := slices.Clone(workers)
	for i := range out {
		w := &out[i]
		w.Builds = builds[w.ID]
		slices.Sort(w.Builds)
		if !whole {
			continue
		}
		w.Running = cimeter.Some(len(w.Builds))
		switch {
		case w.State == cimeter.WorkerIdle && len(w.Builds) > 0:
			w.State = cimeter.WorkerBusy
		case w.State == cimeter.WorkerBusy && len(w.Builds) == 0:
			w.State = cimeter.WorkerIdle
		}
	}
	return out
}
