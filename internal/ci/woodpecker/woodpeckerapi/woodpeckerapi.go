// Package woodpeckerapi asks a Woodpecker server for its queue, its agents and
// its pipelines, follows its stream of events, and cancels pipelines.
//
// It owns what it knows of unfinished pipelines between two polls. It never logs and
// makes one try a question. Woodpecker sends no webhooks of its own. Start with [New].
// A Client polls in one goroutine at a time; the rest of it may be used beside.
package woodpeckerapi

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
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/woodpecker"
	"github.com/cimeter/cimeter/internal/queue"
)

const (
	maxDetails = 20 // pipelines that are looked at in one poll: a request each
	perPage    = 50 // the server's own bound
	maxPages   = 20
)

// Options say which server is asked.
type Options struct {
	URL string   // as builds know it: its host stands in their keys
	Ask ask.Doer // puts the questions; its token must be an administrator's
	// Stream opens the stream of [Client.Events], which needs it.
	Stream Streamer
}

// Client asks one Woodpecker server. Make it with New.
type Client struct {
	o      Options
	server server

	mu   sync.Mutex
	open map[int64]*known // unfinished pipelines by id
}

// known is an unfinished pipeline as it was told last.
type known struct {
	repo     string
	pipeline pipeline
	looked   string // what the queue told when it was looked at; "": it was not yet
}

// New returns a client. The error wraps [cimeter.ErrInvalid] for an address that
// is none.
func New(o Options) (*Client, error) {
	s := newServer(o.URL)
	if s.host == "" {
		return nil, fmt.Errorf("address of Woodpecker: want http://HOST or https://HOST: %w", cimeter.ErrInvalid)
	}
	return &Client{o: o, server: s, open: make(map[int64]*known)}, nil
}

// queued is a task and the list of the queue that it is in.
type queued struct {
	task
	status cimeter.JobStatus
}

// Poll asks for the queue, the agents, and each pipeline in full when one of its
// workflows has moved on or ended.
func (c *Client) Poll(ctx context.Context) (queue.Report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := ask.NewRound(c.o.Ask)
	var info queueInfo
	q := ask.Request{Path: "/api/queue/info"}
	if _, err := r.JSON(ctx, q, &info); err != nil {
		return queue.Report{}, err
	}
	if info.Stats == nil {
		return queue.Report{}, r.Invalid(q, "no stats in it")
	}
	tasks := make(map[int64][]queued) // by pipeline
	for _, l := range [...]struct {
		tasks  []task
		status cimeter.JobStatus
	}{{info.Pending, cimeter.JobWaiting}, {info.Waiting, cimeter.JobBlocked}, {info.Running, cimeter.JobRunning}} {
		for _, t := range l.tasks {
			tasks[t.PipelineID] = append(tasks[t.PipelineID], queued{t, l.status})
		}
	}
	agents, err := c.agents(ctx, r)
	if err != nil {
		return queue.Report{}, err
	}
	report := queue.Report{WholeJobs: true, WholeWorkers: true, EveryWorker: true}
	if err := c.name(ctx, r, tasks, &report); err != nil {
		return queue.Report{}, err
	}
	if err := c.look(ctx, r, tasks, &report); err != nil {
		return queue.Report{}, err
	}
	has := make(map[string][]string)
	for _, j := range report.Jobs {
		if j.Status == cimeter.JobRunning && j.Worker != "" {
			has[j.Worker] = append(has[j.Worker], j.Key)
		}
	}
	for i := range agents {
		report.Workers = append(report.Workers, c.server.worker(&agents[i], has[strconv.FormatInt(agents[i].ID, 10)], r.Now()))
	}
	r.Fill(&report)
	return report, nil
}

func (c *Client) agents(ctx context.Context, r *ask.Round) (all []agent, err error) {
	for page := 1; page <= maxPages; page++ {
		var some []agent
		q := ask.Request{Path: "/api/agents", Query: url.Values{"page": {strconv.Itoa(page)}, "perPage": {strconv.Itoa(perPage)}}}
		if _, err := r.JSON(ctx, q, &some); err != nil {
			return nil, err
		}
		if all = append(all, some...); len(some) < perPage {
			break
		}
	}
	return all, nil
}

// name makes known the pipelines of the queue that are new: repository and number
// are told by the task, or by the list of pipelines where the server is older.
func (c *Client) name(ctx context.Context, r *ask.Round, tasks map[int64][]queued, report *queue.Report) error {
	var feed []pipeline
	for id, ts := range tasks {
		t := ts[0]
		if c.open[id] != nil {
			continue
		}
		p := pipeline{ID: id, RepoID: t.RepoID, Number: t.PipelineNumber}
		if p.Number <= 0 && feed == nil {
			if _, err := r.JSON(ctx, ask.Request{Path: "/api/pipelines"}, &feed); err != nil {
				return err
			}
		}
		if i := slices.IndexFunc(feed, func(f pipeline) bool { return f.ID == id }); p.Number <= 0 && i >= 0 {
			p.Number = feed[i].Number
		}
		repo := t.Labels["repo"]
		if p.Number <= 0 || p.RepoID <= 0 || repo == "" {
			report.WholeJobs = false // nothing names it
			continue
		}
		c.open[id] = &known{repo: repo, pipeline: p}
	}
	return nil
}

// look asks for the pipelines that changed, oldest first, and tells of all.
func (c *Client) look(ctx context.Context, r *ask.Round, tasks map[int64][]queued, report *queue.Report) error {
	looks := 0
	var ended []int64
	for _, id := range slices.Sorted(maps.Keys(c.open)) {
		k, ts := c.open[id], tasks[id]
		now := moved(ts)
		if k.looked != now && looks < maxDetails {
			looks++
			p, err := c.find(ctx, r, k.pipeline.RepoID, k.pipeline.Number)
			if errors.Is(err, cimeter.ErrNotFound) {
				delete(c.open, id) // with its repository
				continue
			}
			if err != nil {
				return err
			}
			p.RepoID = k.pipeline.RepoID
			k.pipeline, k.looked = p, now
		}
		for _, t := range ts {
			if !slices.ContainsFunc(k.pipeline.Workflows, func(w workflow) bool { return same(w, t.task) }) && t.PID > 0 {
				k.pipeline.Workflows = append(k.pipeline.Workflows, workflow{ID: decimal(t.ID), PID: t.PID, Name: t.Name, State: "pending"})
			}
		}
		report.Jobs = append(report.Jobs, c.server.jobs(k.repo, &k.pipeline, func(w *workflow, j *cimeter.Job) {
			if at := slices.IndexFunc(ts, func(t queued) bool { return same(*w, t.task) }); at >= 0 {
				overlay(j, ts[at])
			}
		})...)
		if len(ts) == 0 && k.looked == now {
			ended = append(ended, id)
		}
	}
	for _, id := range ended {
		delete(c.open, id)
	}
	return nil
}

// same says that a task is a workflow: its id is the workflow's.
func same(w workflow, t task) bool { return strconv.FormatInt(w.ID, 10) == t.ID }

func decimal(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// overlay puts what the queue tells over what the pipeline did.
func overlay(j *cimeter.Job, t queued) {
	j.Status = t.status
	j.Tags = tags(t.Labels)
	if t.AgentID > 0 && t.status == cimeter.JobRunning {
		j.Worker = strconv.FormatInt(t.AgentID, 10)
	}
	if len(t.Dependencies) > 0 || t.status == cimeter.JobBlocked {
		return // since when it waits for an agent is not told
	}
	if j.QueuedAt = ask.Unix(t.Created); j.QueuedAt.IsZero() {
		j.QueuedAt = j.CreatedAt
	}
}

// moved changes when one of a pipeline's workflows does.
func moved(ts []queued) string {
	if len(ts) == 0 {
		return "none"
	}
	slices.SortFunc(ts, func(a, b queued) int { return strings.Compare(a.ID, b.ID) })
	var b strings.Builder
	for _, t := range ts {
		fmt.Fprintf(&b, "%s:%s ", t.ID, t.status)
	}
	return b.String()
}

func (c *Client) find(ctx context.Context, r *ask.Round, repo, number int64) (p pipeline, err error) {
	q := ask.Request{Path: "/api/repos/" + strconv.FormatInt(repo, 10) + "/pipelines/" + strconv.FormatInt(number, 10)}
	if _, err := r.JSON(ctx, q, &p); err != nil {
		return p, err
	}
	if p.Number != number || p.ID <= 0 {
		return p, r.Invalid(q, "told of pipeline %d", p.Number)
	}
	return p, nil
}

// Cancel ends the pipeline that a key's workflow is of, with all its workflows:
// Woodpecker ends no single one.
func (c *Client) Cancel(ctx context.Context, key string) error {
	bad := fmt.Errorf("build %.200q: want one of %s: %w", key, c.server.host, cimeter.ErrInvalid)
	rest, ok := strings.CutPrefix(key, cimeter.BuildKey(woodpecker.CI, c.server.host)+"/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < 4 || len(parts) > 5 || slices.ContainsFunc(parts, func(p string) bool { return p == "" || p == "." || p == ".." }) {
		return bad
	}
	number, err := strconv.ParseUint(parts[2], 10, 63)
	if err != nil || number == 0 {
		return bad
	}
	owner, ownerErr := url.PathUnescape(parts[0])
	name, nameErr := url.PathUnescape(parts[1])
	if ownerErr != nil || nameErr != nil {
		return bad
	}
	r := ask.NewRound(c.o.Ask)
	var repo repository
	q := ask.Request{Path: "/api/repos/lookup" + ask.Path(owner, name)}
	if _, err := r.JSON(ctx, q, &repo); err != nil {
		return err
	}
	if repo.ID <= 0 || repo.FullName != owner+"/"+name {
		return r.Invalid(q, "told of repository %d", repo.ID)
	}
	_, err = r.Send(ctx, ask.Request{Method: "POST", Path: fmt.Sprintf("/api/repos/%d/pipelines/%d/cancel", repo.ID, number)})
	return err
}

// Builds tells of the pipelines that began since a time, a page of one repository a
// call, from where cursor says; "" begins. next is "" at the end.
func (c *Client) Builds(ctx context.Context, since time.Time, cursor string) (jobs []cimeter.Job, next string, err error) {
	r := ask.NewRound(c.o.Ask)
	var after, page int64
	page = 1
	if cursor != "" {
		if _, err := fmt.Sscanf(cursor, "%d %d", &after, &page); err != nil || page < 1 {
			return nil, "", fmt.Errorf("cursor %.100q: want REPOSITORY PAGE: %w", cursor, cimeter.ErrInvalid)
		}
	}
	var repos []repository
	if _, err := r.JSON(ctx, ask.Request{Path: "/api/user/repos"}, &repos); err != nil {
		return nil, "", err
	}
	slices.SortFunc(repos, func(a, b repository) int { return int(a.ID - b.ID) })
	at := slices.IndexFunc(repos, func(rp repository) bool { return rp.ID >= after })
	if at < 0 {
		return nil, "", nil
	}
	if repos[at].ID != after {
		page = 1
	}
	const size = 25
	var pipelines []pipeline
	path := fmt.Sprintf("/api/repos/%d/pipelines", repos[at].ID)
	if _, err := r.JSON(ctx, ask.Request{Path: path, Query: url.Values{"page": {strconv.FormatInt(page, 10)}, "perPage": {strconv.Itoa(size)}}}, &pipelines); err != nil {
		return nil, "", err
	}
	more := len(pipelines) == size
	for _, p := range pipelines {
		if ask.Unix(p.Created).Before(since) {
			more = false // newest first
			break
		}
		full, err := c.find(ctx, r, repos[at].ID, p.Number)
		if err != nil {
			return nil, "", err
		}
		full.RepoID = repos[at].ID
		jobs = append(jobs, c.server.jobs(repos[at].FullName, &full, nil)...)
	}
	switch {
	case more:
		next = fmt.Sprintf("%d %d", repos[at].ID, page+1)
	case at+1 < len(repos):
		next = fmt.Sprintf("%d 1", repos[at+1].ID)
	}
	return jobs, next, nil
}
