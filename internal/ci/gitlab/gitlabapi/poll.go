package gitlabapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	pageSize  = 100 // the most that GitLab gives
	maxPages  = 50  // of one list in one poll: 5,000 builds that are not over
	maxAtOnce = 9   // builds whose end one query asks for, each 25 of the complexity of 250 that a user has
	maxBehind = 5000

	workersEvery  = time.Minute
	scopeEvery    = 10 * time.Minute // how often is asked anew whether the token is an administrator's
	projectsEvery = time.Hour
)

// scope is what a token sees.
type scope int

const (
	scopeUnknown scope = iota
	scopeServer        // all jobs, by one query
	scopeProjects
)

// pollState is what Poll keeps from one look to the next.
type pollState struct {
	tokens  float64 // requests that may be made now
	filled  time.Time
	scope   scope
	scopeAt time.Time

	workers    []cimeter.Worker
	workersAt  time.Time
	workersOff bool // the server does not tell them to this token

	known    map[string]open // builds that were not over at the last look, by key
	behind   []open          // builds that are over, whose end was not asked for yet
	newest   int64           // the greatest number of a job that was seen on the whole server; 0: none was
	endsNext string          // the page of the server's ended builds to go on with; "": none is left
	endsDown int64           // down to which number
	untold   []cimeter.Job   // ends that were learned and not told: the look failed after them
	over     map[int64]bool  // numbers of builds whose end was told, the newest of them
	began    time.Time       // when the first look was, by the server's clock: what ended before is the past
	graphOff bool            // the server answers no query for single builds
	projectState
}

// open is a build that is not over.
type open struct {
	key     string
	project string // path
	job     int64
}

// Poll asks what waits, is blocked or runs, who works, and how builds that are gone
// from the list ended. See [queue.Report]: WholeJobs is set with an administrator's
// token, and where all projects were asked in one look. Jobs that wait for a person
// (manual) are not told: servers hold them for years.
//
// The report's Wait keeps the requests below those of [Options]. The error is a
// [queue.SourceError].
func (c *Client) Poll(ctx context.Context) (queue.Report, error) {
	ctx, x := c.start(ctx, mayRead)
	now := c.o.Now()
	p := &c.poll
	p.fill(now, c.o.Requests)
	r, err := c.look(ctx, now)
	p.tokens -= float64(x.requests)
	if err != nil {
		return queue.Report{}, err
	}
	r.Clock, r.Requests = x.clock, x.requests
	r.Wait = max(x.wait, p.next(c.o.Requests))
	return r, nil
}

// fill adds the requests that may be made since the last look, at most those of 20 s:
// what is saved longer would be too many in one minute.
func (p *pollState) fill(now time.Time, perMinute int) {
	most := max(1, float64(perMinute)/3)
	if p.filled.IsZero() {
		p.tokens = most
	} else if d := now.Sub(p.filled); d > 0 {
		p.tokens = min(p.tokens+d.Minutes()*float64(perMinute), most)
	}
	p.filled = now
}

// next is how long until the requests of an interval may be made.
func (p *pollState) next(perMinute int) time.Duration {
	if p.tokens >= 1 {
		return 0
	}
	return time.Duration((1 - p.tokens) / float64(perMinute) * float64(time.Minute))
}

func (c *Client) look(ctx context.Context, now time.Time) (queue.Report, error) {
	p := &c.poll
	if len(c.o.Projects) > 0 {
		p.scope = scopeProjects
	} else if p.scope == scopeUnknown || now.Sub(p.scopeAt) >= scopeEvery {
		if err := c.findScope(ctx, now); err != nil {
			return queue.Report{}, err
		}
	}
	var r queue.Report
	var err error
	if p.scope == scopeServer {
		r.Jobs, r.WholeJobs, err = c.serverJobs(ctx)
		if err == nil {
			err = c.newEnds(ctx, now, r.Jobs)
		}
	} else {
		r.Jobs, r.WholeJobs, err = c.projectJobs(ctx, now)
	}
	if err != nil {
		return queue.Report{}, err
	}
	if err := c.ended(ctx, r.Jobs, r.WholeJobs || p.scope == scopeProjects); err != nil {
		return queue.Report{}, err
	}
	if err := c.askWorkers(ctx, now); err != nil {
		return queue.Report{}, err
	}
	r.Jobs = append(r.Jobs, p.untold...)
	p.untold = nil
	if p.began.IsZero() {
		p.began = c.serverTime(ctx, now)
	}
	if !p.workersOff && !p.workersAt.IsZero() {
		r.Workers = busy(p.workers, r.Jobs, p.scope == scopeServer && r.WholeJobs)
		r.WholeWorkers, r.EveryWorker = true, p.scope == scopeServer
	}
	return r, nil
}

// findScope asks for something that only an administrator's token gets. The query
// for all jobs is no test: it answers everybody else with an empty list.
func (c *Client) findScope(ctx context.Context, now time.Time) error {
	var list []struct{}
	_, err := c.get(ctx, "list runners", "runners/all", url.Values{"per_page": {"1"}}, &list)
	switch {
	case err == nil:
		c.poll.scope = scopeServer
	case exchangeOf(ctx).status == 403:
		c.poll.scope = scopeProjects
	default:
		return err
	}
	c.poll.scopeAt = now
	return nil
}

// unfinished are the statuses of builds that are not over, but for manual ones.
var unfinished = [...]string{
	"pending", "running", "canceling", "created", "preparing", "scheduled", "waiting_for_resource", "waiting_for_callback",
}

// serverJobs lists all builds of the server that are not over, newest first.
func (c *Client) serverJobs(ctx context.Context) (jobs []cimeter.Job, whole bool, err error) {
	seen := make(map[string]bool)
	after := ""
	for range maxPages {
		nodes, next, err := c.jobPage(ctx, "list jobs", unfinished[:], after)
		if err != nil {
			return nil, false, err
		}
		for _, n := range nodes {
			if j, ok := c.fromGraph(n); ok && !seen[j.Key] {
				seen[j.Key] = true
				jobs = append(jobs, j)
			}
		}
		if next == "" {
			return jobs, true, nil
		}
		after = next
	}
	return jobs, false, nil
}

// jobPage asks GraphQL for a page of the server's jobs of these statuses, newest
// first, behind the cursor after, "" being the first page. next is the cursor of
// the page behind it, "" where there is none.
func (c *Client) jobPage(ctx context.Context, what string, statuses []string, after string) (nodes []*graphJob, next string, err error) {
	text := fmt.Sprintf(`query($after:String){jobs(statuses:[%s],first:%d,after:$after){pageInfo{hasNextPage endCursor} nodes{%s}}}`,
		strings.ToUpper(strings.Join(statuses, " ")), pageSize, jobFields)
	variables := map[string]any{"after": nil}
	if after != "" {
		variables["after"] = after
	}
	var data struct {
		Jobs *struct {
			PageInfo struct {
				HasNextPage bool   `json:"hasNextPage"`
				EndCursor   string `json:"endCursor"`
			} `json:"pageInfo"`
			Nodes []*graphJob `json:"nodes"`
		} `json:"jobs"`
	}
	if err := c.query(ctx, what, text, variables, &data); err != nil {
		return nil, "", err
	}
	if data.Jobs == nil {
		return nil, "", c.failed(ctx, what, fmt.Errorf("no list in the answer: %w", cimeter.ErrInvalid))
	}
	page := data.Jobs.PageInfo
	if page.HasNextPage && (page.EndCursor == "" || page.EndCursor == after) {
		return nil, "", c.failed(ctx, what, fmt.Errorf("pages do not end: %w", cimeter.ErrInvalid))
	}
	if page.HasNextPage {
		next = page.EndCursor
	}
	// A job that its asker may not read is null.
	return slices.DeleteFunc(data.Jobs.Nodes, func(n *graphJob) bool { return n == nil }), next, nil
}

// ended learns how builds ended that were not over at the last look and are not in
// jobs any more. Those for which there is no request left wait for the next look.
func (c *Client) ended(ctx context.Context, jobs []cimeter.Job, complete bool) error {
	p := &c.poll
	now := make(map[string]open, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		n, err := strconv.ParseInt(j.Number, 10, 64)
		if err == nil && !j.Status.Ended() {
			now[j.Key] = open{j.Key, j.Project, n}
		}
	}
	if !complete { // who is not in a part of a list is not gone
		for key, o := range p.known {
			if _, ok := now[key]; !ok && len(now) < maxBehind {
				now[key] = o
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.known)) {
		if _, ok := now[key]; !ok && len(p.behind) < maxBehind {
			p.behind = append(p.behind, p.known[key])
		}
	}
	p.known = now
	p.behind = slices.DeleteFunc(p.behind, func(o open) bool { _, back := now[o.key]; return back })
	for asked := 0; len(p.behind) > 0 && (p.left(ctx) >= 2 || asked == 0); asked++ {
		batch := p.behind[:min(maxAtOnce, len(p.behind))]
		if p.graphOff {
			batch = batch[:1]
		}
		told, err := c.askEnded(ctx, batch)
		if x := exchangeOf(ctx); err != nil && !p.graphOff && x.status == 200 && x.fault == nil && errors.Is(err, cimeter.ErrInvalid) {
			p.graphOff = true // the schema of an older server
			continue
		}
		if err != nil {
			return err
		}
		p.tell(told...)
		p.behind = slices.Clone(p.behind[len(batch):])
	}
	return nil
}

// left is how many requests this look may still make.
func (p *pollState) left(ctx context.Context) float64 {
	return p.tokens - float64(exchangeOf(ctx).requests)
}

// askEnded asks for single builds, of any projects, in one query. One that the
// server does not know any more was deleted: for whoever waits, it is canceled.
func (c *Client) askEnded(ctx context.Context, builds []open) ([]cimeter.Job, error) {
	if c.poll.graphOff {
		return c.askOneEnded(ctx, builds[0])
	}
	var text strings.Builder
	text.WriteString("{")
	for i, o := range builds {
		fmt.Fprintf(&text, "b%d:project(fullPath:%s){job(id:\"gid://gitlab/Ci::Build/%d\"){%s}}\n", i, quoted(o.project), o.job, jobFields)
	}
	text.WriteString("}")
	var data map[string]*struct {
		Job *graphJob `json:"job"`
	}
	if err := c.query(ctx, "ask how jobs ended", text.String(), nil, &data); err != nil {
		return nil, err
	}
	told := make([]cimeter.Job, 0, len(builds))
	for i, o := range builds {
		if b := data["b"+strconv.Itoa(i)]; b != nil && b.Job != nil {
			if j, ok := c.fromGraph(b.Job); ok && j.Key == o.key {
				told = append(told, j)
			}
			continue
		}
		told = append(told, c.deleted(o))
	}
	slices.SortFunc(told, func(a, b cimeter.Job) int { return cmp.Compare(a.Key, b.Key) })
	return told, nil
}

// askOneEnded does it by REST.
func (c *Client) askOneEnded(ctx context.Context, o open) ([]cimeter.Job, error) {
	var j restJob
	_, err := c.get(ctx, "ask how a job ended", fmt.Sprintf("projects/%s/jobs/%d", url.PathEscape(o.project), o.job), nil, &j)
	switch {
	case errors.Is(err, cimeter.ErrNotFound), exchangeOf(ctx).status == 403:
		return []cimeter.Job{c.deleted(o)}, nil
	case err != nil:
		return nil, err
	case j.ID != o.job:
		return nil, c.failed(ctx, "ask how a job ended", fmt.Errorf("another job in the answer: %w", cimeter.ErrInvalid))
	}
	return []cimeter.Job{c.fromREST(&j, o.project)}, nil
}

func (c *Client) deleted(o open) cimeter.Job {
	return cimeter.Job{
		Build:  cimeter.Build{Key: o.key, CI: gitlab.CI, Server: c.server, Project: o.project, Number: strconv.FormatInt(o.job, 10)},
		Status: cimeter.JobCanceled,
	}
}

// quoted is a string of GraphQL. A project's path is letters, digits, dots, dashes,
// underscores and slashes; anything else cannot be asked for.
func quoted(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r > '~' }) {
		return `""`
	}
	return `"` + path + `"`
}
