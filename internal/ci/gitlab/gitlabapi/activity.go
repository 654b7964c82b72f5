package gitlabapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

// How much one query asks for. GitLab counts 1 for each field, adds a hundredth for
// each item of a list that is asked for, and takes 250; a page has at most 100 items. A
// group of projects with whether anything is active or new there is 24, a group with the
// builds themselves some 220.
const (
	lookSize    = 100 // projects of a group
	lookGroups  = 10  // in one query
	openSize    = 50  // projects whose builds one query asks for
	activePipes = 5   // pipelines of a project, of each of both states
	activeJobs  = 20  // of a pipeline
)

// activeWords are the statuses of builds that are asked for in active pipelines.
const activeWords = "PENDING RUNNING CANCELING PREPARING WAITING_FOR_RESOURCE WAITING_FOR_CALLBACK"

// activity asks which projects have a pipeline that waits or runs, a thousand in one
// request, and for the builds of those and of the pipelines that they started, fifty
// projects in one. So new builds are seen whatever made them. It uses at most half of the
// requests that are left. What that does not tell is learned where projects are asked by
// themselves, see projectJobs: builds that no worker can take yet, those of a pipeline
// whose parent is over, and where there is more than a page has.
//
// ok is false where the server does not answer such queries.
func (c *Client) activity(ctx context.Context, now time.Time, all []*project) (ok bool, err error) {
	p := &c.poll
	if p.activityOff {
		return false, nil
	}
	if err := c.learnIDs(ctx, all); refused(ctx, err) {
		p.activityOff = true
		return false, nil
	} else if err != nil {
		return false, err
	}
	due := slices.DeleteFunc(slices.Clone(all), func(pr *project) bool { return pr.gid == "" })
	if len(due) == 0 {
		return false, nil
	}
	slices.SortFunc(due, func(a, b *project) int { return cmp.Or(a.looked.Compare(b.looked), cmp.Compare(a.id, b.id)) })
	requests := max(1, int(p.left(ctx)/2))
	var active []*project
	for n := 0; n < requests && len(due) > 0; n++ {
		batch := due[:min(lookSize*lookGroups, len(due))]
		due = due[len(batch):]
		found, err := c.askActive(ctx, batch)
		if refused(ctx, err) {
			p.activityOff = true
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for _, pr := range batch {
			pr.watch(found[pr.gid], now)
			pr.looked = now
			if found[pr.gid].busy {
				active = append(active, pr)
			} else {
				pr.put(nil, false, now)
			}
		}
	}
	for len(active) > 0 && p.left(ctx) >= 1 {
		batch := active[:min(openSize, len(active))]
		active = active[len(batch):]
		err := c.askOpen(ctx, now, batch)
		if refused(ctx, err) {
			p.activityOff = true
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	for _, pr := range active { // there were more than requests for them: they come first in projectJobs
		pr.touched = now
	}
	return true, c.askEnds(ctx, now, all)
}

// learnIDs asks for the global ids of projects that the settings name by their paths, a
// hundred in each look. Those that the token may not see have none.
func (c *Client) learnIDs(ctx context.Context, all []*project) error {
	var body strings.Builder
	var asked []*project
	for _, pr := range all {
		if pr.gid == "" && !pr.hidden && len(asked) < lookSize {
			fmt.Fprintf(&body, "b%d:project(fullPath:%s){id}\n", len(asked), quoted(pr.path))
			asked = append(asked, pr)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	var data map[string]*struct {
		ID string `json:"id"`
	}
	if err := c.query(ctx, "ask for the ids of projects", "{"+body.String()+"}", nil, &data); err != nil {
		return err
	}
	for i, pr := range asked {
		if d := data["b"+strconv.Itoa(i)]; d != nil && d.ID != "" {
			pr.gid = d.ID
		} else {
			pr.hidden = true
		}
	}
	return nil
}

// refused reports whether the server answered that it knows no such query.
func refused(ctx context.Context, err error) bool {
	x := exchangeOf(ctx)
	return err != nil && x.status == 200 && x.fault == nil && errors.Is(err, cimeter.ErrInvalid)
}

// gidOf is a project's global id.
func gidOf(id string) string { return "gid://gitlab/Project/" + id }

// pulse is what a project's pipelines tell of it.
type pulse struct {
	busy   bool  // one waits or runs
	newest int64 // number of the newest; 0: there is none
}

// askActive asks which projects have an active pipeline, and for their newest one.
func (c *Client) askActive(ctx context.Context, projects []*project) (found map[string]pulse, err error) {
	var head, body strings.Builder
	variables := map[string]any{}
	for i := 0; len(projects) > 0; i++ {
		group := projects[:min(lookSize, len(projects))]
		projects = projects[len(group):]
		ids := make([]string, len(group))
		for n, pr := range group {
			ids[n] = pr.gid
		}
		variables["p"+strconv.Itoa(i)] = ids
		fmt.Fprintf(&head, "$p%d:[ID!]", i)
		fmt.Fprintf(&body, "g%d:projects(ids:$p%d,first:%d){nodes{id w:pipelines(status:PENDING,first:1){nodes{id}} r:pipelines(status:RUNNING,first:1){nodes{id}} n:pipelines(first:1){nodes{id}}}}\n", i, i, lookSize)
	}
	type some struct {
		Nodes []struct {
			ID string `json:"id"`
		} `json:"nodes"`
	}
	var data map[string]*struct {
		Nodes []*struct {
			ID string `json:"id"`
			W  some   `json:"w"`
			R  some   `json:"r"`
			N  some   `json:"n"`
		} `json:"nodes"`
	}
	if err := c.query(ctx, "ask which projects are active", "query("+head.String()+"){"+body.String()+"}", variables, &data); err != nil {
		return nil, err
	}
	if len(data) != len(variables) {
		return nil, c.failed(ctx, "ask which projects are active", fmt.Errorf("%d lists in the answer, want %d: %w", len(data), len(variables), cimeter.ErrInvalid))
	}
	found = map[string]pulse{}
	for _, g := range data {
		if g == nil {
			continue
		}
		for _, n := range g.Nodes {
			if n == nil {
				continue
			}
			is := pulse{busy: len(n.W.Nodes)+len(n.R.Nodes) > 0}
			if len(n.N.Nodes) > 0 {
				is.newest, _ = numberOf(n.N.Nodes[0].ID)
			}
			found[n.ID] = is
		}
	}
	return found, nil
}

// askOpen asks for the builds of the active pipelines of projects that are not over.
func (c *Client) askOpen(ctx context.Context, now time.Time, projects []*project) error {
	found, err := c.askPipes(ctx, "list jobs of active projects", projects, "status:PENDING,", activeWords)
	if err != nil {
		return err
	}
	for pr, n := range found {
		told := map[string]cimeter.Job{}
		more := c.pipes(&n.W, told)
		more = c.pipes(&n.R, told) || more
		if more {
			pr.touched = now // it is asked by itself
		}
		pr.put(told, more, now)
	}
	return nil
}

// twoPipes are pipelines of a project: those that were asked for, and those that run.
type twoPipes struct {
	ID string     `json:"id"`
	W  graphPipes `json:"w"`
	R  graphPipes `json:"r"`
}

// askPipes asks for pipelines of projects, those of which says and those that run, with
// their builds of such statuses.
func (c *Client) askPipes(ctx context.Context, what string, projects []*project, which, statuses string) (map[*project]*twoPipes, error) {
	jobs := fmt.Sprintf("jobs(statuses:[%s],first:%d){pageInfo{hasNextPage} nodes{%s}}", statuses, activeJobs, jobFields)
	pipes := fmt.Sprintf("first:%d){pageInfo{hasNextPage} nodes{id %s downstream{nodes{%s}}}}", activePipes, jobs, jobs)
	text := fmt.Sprintf("query($p0:[ID!]){projects(ids:$p0,first:%d){nodes{id w:pipelines(%s%s r:pipelines(status:RUNNING,%s}}}", openSize, which, pipes, pipes)
	ids := make([]string, len(projects))
	of := map[string]*project{}
	for i, pr := range projects {
		ids[i], of[pr.gid] = pr.gid, pr
	}
	var data struct {
		Projects *struct {
			Nodes []*twoPipes `json:"nodes"`
		} `json:"projects"`
	}
	if err := c.query(ctx, what, text, map[string]any{"p0": ids}, &data); err != nil {
		return nil, err
	}
	if data.Projects == nil {
		return nil, c.failed(ctx, what, fmt.Errorf("no list in the answer: %w", cimeter.ErrInvalid))
	}
	found := make(map[*project]*twoPipes, len(projects))
	for _, n := range data.Projects.Nodes {
		if n != nil && of[n.ID] != nil {
			found[of[n.ID]] = n
		}
	}
	return found, nil
}

// graphPipes is a page of pipelines with their builds.
type graphPipes struct {
	Page  pageInfo     `json:"pageInfo"`
	Nodes []*graphPipe `json:"nodes"`
}

type graphPipe struct {
	ID   string `json:"id"`
	Jobs *struct {
		Page  pageInfo    `json:"pageInfo"`
		Nodes []*graphJob `json:"nodes"`
	} `json:"jobs"`
	Downstream *struct {
		Nodes []*graphPipe `json:"nodes"`
	} `json:"downstream"`
}

type pageInfo struct {
	More bool `json:"hasNextPage"`
}

// pipes collects the builds of pipelines. more is true where that is not all of them.
func (c *Client) pipes(of *graphPipes, told map[string]cimeter.Job) (more bool) {
	more = of.Page.More
	for _, pipe := range of.Nodes {
		if pipe == nil {
			continue
		}
		if pipe.Downstream != nil {
			more = c.pipes(&graphPipes{Nodes: pipe.Downstream.Nodes}, told) || more
		}
		if pipe.Jobs == nil {
			continue
		}
		more = more || pipe.Jobs.Page.More
		for _, g := range pipe.Jobs.Nodes {
			if g == nil {
				continue
			}
			if j, ok := c.fromGraph(g); ok {
				told[j.Key] = j
			}
		}
	}
	return more
}

// put takes up the builds that a project's active pipelines have. What was told so the
// last time and is not now is over; what else is known stays until it is asked for
// itself.
func (pr *project) put(jobs map[string]cimeter.Job, more bool, now time.Time) {
	var open []cimeter.Job
	before, all := pr.told, true
	pr.told = make(map[string]bool, len(jobs))
	for key := range jobs {
		pr.told[key] = true
	}
	for _, was := range pr.open {
		switch j, ok := jobs[was.Key]; {
		case ok:
			open = append(open, merged(was, j))
			delete(jobs, was.Key)
		case before[was.Key] && !more:
		default:
			all = all && was.Status == cimeter.JobBlocked
			open = append(open, was)
		}
	}
	for _, j := range jobs {
		open = append(open, j)
	}
	slices.SortFunc(open, func(a, b cimeter.Job) int { return cmp.Compare(a.Key, b.Key) })
	if pr.open = open; all {
		pr.openAt = now // else they are asked for: see refresh
	}
}
