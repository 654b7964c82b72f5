package gitlabapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/cimeter/cimeter"
)

const (
	maxProjects = 20000
	hotEvery    = time.Minute      // how often a project is asked in which builds are not over
	openEvery   = 25 * time.Second // how often such a build itself is asked for
	maxRefresh  = 2                // requests for builds that are known, in one look
	maxFailed   = 3                // projects that fail in one look before all of it does
	reserved    = 1                // requests that are kept for workers and ends
)

// projectState is what is kept where the server is asked project by project.
type projectState struct {
	projects  map[string]*project // by the id or path that it is asked by
	listed    time.Time           // when all of them were listed last
	listPage  url.Values          // the next page of the list that is being read
	listing   map[string]bool     // what that list had so far
	eventsOff bool                // the token may not ask for events
	// activityOff: the server does not tell which of many projects are active.
	activityOff bool
	endsOff     bool  // nor what ended there, fifty projects at once
	eventSince  int64 // the last push that is known
}

// project is one that is asked for its builds.
type project struct {
	id, path string
	gid      string          // global id; "" while it is not known
	hidden   bool            // the token may not see it: it has no gid
	looked   time.Time       // when was asked whether it is active
	told     map[string]bool // builds that its active pipelines had then
	asked    time.Time       // when its builds were asked for; zero: never
	touched  time.Time       // when something happened there
	open     []cimeter.Job
	openAt   time.Time // when its builds were asked for last
	gone     bool
	watched
}

// projectJobs asks which projects are active: see activity. Where the server does not
// tell, it asks which were pushed to. Then it asks as many projects by themselves as
// there are requests for: those that were pushed to first, then those that have builds
// which are not over, the longest not asked of the others after them. Builds that are
// known are asked for by nine. So with a server that tells no activity a build that
// nobody pushed for, of a project where nothing ran, is seen when its turn comes, unless
// a webhook tells.
func (c *Client) projectJobs(ctx context.Context, now time.Time) (jobs []cimeter.Job, whole bool, err error) {
	p := &c.poll
	if err := c.listProjects(ctx, now); err != nil {
		return nil, false, err
	}
	order := make([]*project, 0, len(p.projects))
	for _, pr := range p.projects {
		if !pr.gone {
			order = append(order, pr)
		}
	}
	told, err := c.activity(ctx, now, order)
	if err == nil && !told {
		err = c.pushes(ctx, now)
	}
	if err != nil {
		return nil, false, err
	}
	rank := func(pr *project) int {
		switch {
		case pr.asked.Before(pr.touched), len(pr.open) == 0 && !pr.touched.IsZero() && pr.asked.Sub(pr.touched) < Interval/2:
			return 0 // a pipeline is made some seconds after its push
		case len(pr.open) > 0 && now.Sub(pr.asked) >= hotEvery:
			return 1
		case len(pr.open) > 0:
			return 3
		}
		return 2
	}
	slices.SortFunc(order, func(a, b *project) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.asked.Compare(b.asked), cmp.Compare(a.id, b.id))
	})
	// A look may use what is due since the last one, so that the next has its share.
	share := float64(c.o.Requests) * (Interval + Interval/2).Minutes()
	keep := float64(reserved)
	if told { // the next look needs as many
		keep += 2 * float64(len(order)/(lookSize*lookGroups)+1)
	}
	if err := c.refresh(ctx, now, order); err != nil {
		return nil, false, err
	}
	if err := c.listEnds(ctx, now, order, keep); err != nil {
		return nil, false, err
	}
	asked, failed := 0, 0
	for _, pr := range order {
		if n := float64(exchangeOf(ctx).requests); asked > 0 && (p.left(ctx) < 1+keep || n >= share) {
			break
		}
		if err := c.askProject(ctx, now, pr); err != nil {
			// One project that its server cannot list (too large, damaged) hides no other.
			if failed++; exchangeOf(ctx).status < 500 || failed >= min(maxFailed, len(order)) {
				return nil, false, err
			}
		}
		asked++
	}
	for _, pr := range order {
		jobs = append(jobs, pr.open...)
	}
	slices.SortFunc(jobs, func(a, b cimeter.Job) int { return cmp.Compare(a.Key, b.Key) })
	return jobs, asked == len(order) && failed == 0 && p.listPage == nil, nil
}

// askProject asks for the builds of one project that are not over. One that is gone,
// or forbidden, is not asked again until the next list.
func (c *Client) askProject(ctx context.Context, now time.Time, pr *project) error {
	pr.asked = now
	q := url.Values{"scope[]": unfinished[:], "pagination": {"keyset"}, "order_by": {"id"}, "sort": {"desc"}, "per_page": {strconv.Itoa(pageSize)}}
	var open []cimeter.Job
	seen := make(map[string]bool)
	for range maxPages {
		var list []restJob
		next, err := c.get(ctx, "list jobs of project "+pr.id, "projects/"+url.PathEscape(pr.id)+"/jobs", q, &list)
		if errors.Is(err, cimeter.ErrNotFound) || exchangeOf(ctx).status == 403 {
			pr.gone, pr.open = true, nil
			return nil
		}
		if err != nil {
			return err
		}
		for i := range list {
			if j := c.fromREST(&list[i], pr.path); list[i].ID > 0 && !seen[j.Key] {
				seen[j.Key] = true
				open = append(open, j)
			}
		}
		if next == nil {
			break
		}
		q = next
	}
	pr.open, pr.openAt = open, now
	return nil
}

// refresh asks for the builds that are known and not over, those that were not asked
// for longest first, nine in one request.
func (c *Client) refresh(ctx context.Context, now time.Time, all []*project) error {
	p := &c.poll
	if p.graphOff {
		return nil
	}
	due := slices.DeleteFunc(slices.Clone(all), func(pr *project) bool { return len(pr.open) == 0 || now.Sub(pr.openAt) < openEvery })
	slices.SortFunc(due, func(a, b *project) int { return cmp.Or(a.openAt.Compare(b.openAt), cmp.Compare(a.id, b.id)) })
	for n := 0; n < maxRefresh && len(due) > 0 && p.left(ctx) >= 1+reserved; n++ {
		var batch []open
		of := make(map[string]*project)
		for len(due) > 0 && (len(batch) == 0 || len(batch)+len(due[0].open) <= maxAtOnce) {
			for _, j := range due[0].open[:min(maxAtOnce, len(due[0].open))] {
				if o := p.known[j.Key]; o.key != "" {
					batch = append(batch, o)
					of[j.Key] = due[0]
				}
			}
			due[0].openAt = now
			due = due[1:]
		}
		if len(batch) == 0 {
			continue
		}
		told, err := c.askEnded(ctx, batch[:min(maxAtOnce, len(batch))])
		if x := exchangeOf(ctx); err != nil && x.status == 200 && x.fault == nil && errors.Is(err, cimeter.ErrInvalid) {
			p.graphOff = true
			return nil
		}
		if err != nil {
			return err
		}
		for _, j := range told {
			pr := of[j.Key]
			i := slices.IndexFunc(pr.open, func(o cimeter.Job) bool { return o.Key == j.Key })
			switch {
			case i < 0:
			case j.Status.Ended():
				pr.open = slices.Delete(slices.Clone(pr.open), i, i+1)
				delete(p.known, j.Key)
				p.tell(j)
			default:
				pr.open = slices.Clone(pr.open)
				pr.open[i] = merged(pr.open[i], j)
			}
		}
	}
	return nil
}

// merged keeps what only REST tells of a build.
func merged(old, now cimeter.Job) cimeter.Job {
	now.Build = now.Build.Merge(old.Build)
	return now
}

// listProjects reads the list of projects, one page in each look, once an hour.
func (c *Client) listProjects(ctx context.Context, now time.Time) error {
	p := &c.poll
	if p.projects == nil {
		p.projects = make(map[string]*project)
		for _, path := range c.o.Projects {
			p.projects[path] = &project{id: path, path: path}
		}
	}
	if len(c.o.Projects) > 0 {
		if now.Sub(p.listed) >= projectsEvery { // what was gone may be back
			p.listed = now
			for _, pr := range p.projects {
				pr.gone, pr.hidden = false, false
			}
		}
		return nil
	}
	if p.listPage == nil && !p.listed.IsZero() && now.Sub(p.listed) < projectsEvery {
		return nil
	}
	if p.listPage == nil {
		p.listed, p.listing = now, make(map[string]bool)
		p.listPage = url.Values{"membership": {"true"}, "simple": {"true"}, "archived": {"false"}, "pagination": {"keyset"},
			"order_by": {"id"}, "sort": {"asc"}, "per_page": {strconv.Itoa(pageSize)}}
	}
	pages := 1
	if len(p.projects) == 0 {
		pages = 4 // at the start
	}
	for range pages {
		var list []struct {
			ID   int64  `json:"id"`
			Path string `json:"path_with_namespace"`
		}
		next, err := c.get(ctx, "list projects", "projects", p.listPage, &list)
		if err != nil {
			return err
		}
		for _, l := range list {
			id := strconv.FormatInt(l.ID, 10)
			if l.ID <= 0 || len(p.projects) >= maxProjects {
				continue
			}
			p.listing[id] = true
			if pr := p.projects[id]; pr != nil {
				pr.path, pr.gone = l.Path, false
			} else {
				p.projects[id] = &project{id: id, path: l.Path, gid: gidOf(id)}
			}
		}
		if p.listPage = next; next == nil {
			for id := range p.projects {
				if !p.listing[id] {
					delete(p.projects, id)
				}
			}
			p.listing = nil
			return nil
		}
	}
	return nil
}

// pushes asks which projects were pushed to: one request for all of them.
func (c *Client) pushes(ctx context.Context, now time.Time) error {
	p := &c.poll
	if len(c.o.Projects) > 0 && float64(len(c.o.Projects)) < float64(c.o.Requests)*Interval.Minutes() {
		for _, pr := range p.projects { // each is asked at every look
			if !p.began.IsZero() && pr.listAt.IsZero() && now.Sub(pr.listedAt) >= endsEvery {
				pr.listAt = now
			}
		}
		return nil
	}
	if p.eventsOff {
		return nil
	}
	var list []struct {
		ID      int64 `json:"id"`
		Project int64 `json:"project_id"`
	}
	q := url.Values{"scope": {"all"}, "action": {"pushed"}, "after": {now.UTC().AddDate(0, 0, -2).Format(time.DateOnly)}, "per_page": {strconv.Itoa(pageSize)}}
	if _, err := c.get(ctx, "list pushes", "events", q, &list); err != nil {
		if s := exchangeOf(ctx).status; s == 403 || s == 404 || s == 400 {
			p.eventsOff = true
			return nil
		}
		return fmt.Errorf("poll: %w", err)
	}
	since := p.eventSince
	for _, e := range list {
		p.eventSince = max(p.eventSince, e.ID)
		if pr := p.projects[strconv.FormatInt(e.Project, 10)]; pr != nil && since > 0 && e.ID > since {
			if pr.touched, pr.since = now, now; pr.listAt.IsZero() {
				pr.listAt = now.Add(endsFor)
			}
		}
	}
	return nil
}
