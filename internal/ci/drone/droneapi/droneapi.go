// Package droneapi asks a Drone server for its queue and its builds, cancels them,
// and reads its global webhooks.
//
// It owns what it knows of unfinished builds between two polls. It never logs and
// makes one try a question. Drone's API tells of no runner but the machine that a
// stage is on. Start with [New] or [Hook]. A Client polls in one goroutine at a time;
// the rest of it, and a Hook, may be used by many.
package droneapi

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
	"github.com/cimeter/cimeter/internal/ci/drone"
	"github.com/cimeter/cimeter/internal/queue"
)

// maxDetails is the most builds that are looked at in one poll: a request each.
// The rest follows with the next polls.
const maxDetails = 20

// repo is a repository, with one of its builds where it is in a list of builds.
type repo struct {
	ID      int64           `json:"id"`
	Slug    string          `json:"slug"`
	Counter int64           `json:"counter"` // number of its newest build
	Build   *drone.BuildRow `json:"build"`
}

// Options say which server is asked.
type Options struct {
	URL string   // as builds know it: its host stands in their keys
	Ask ask.Doer // puts the questions; its token must be an administrator's
}

// Client asks one Drone server. Make it with New.
type Client struct {
	o      Options
	server drone.Server

	mu   sync.Mutex
	open map[int64]*known // unfinished builds by id

	repos     map[int64]*counted // by id; nil: they were not listed yet
	countedAt time.Time          // by the server's clock
}

// known is an unfinished build as it was told last.
type known struct {
	slug  string
	build drone.BuildRow // with its stages once it was looked at
	// looked is what the queue told when it was looked at; another tells that a
	// stage has moved on. "": it was not yet.
	looked string
}

// New returns a client. The error wraps [cimeter.ErrInvalid] for an address that
// is none.
func New(o Options) (*Client, error) {
	s := drone.NewServer(o.URL)
	if s.Host() == "" {
		return nil, fmt.Errorf("address of Drone: want http://HOST or https://HOST: %w", cimeter.ErrInvalid)
	}
	return &Client{o: o, server: s, open: make(map[int64]*known)}, nil
}

// Poll asks for the stages that wait or run, for the builds that they are of, and
// for each of those builds in full when it has changed or ended. Every half minute it
// asks how many builds each repository has had, and then for those that came and ended
// between two polls. Drone lists the 50 newest unfinished builds alone: of older ones
// only those are known that were seen when they were among them.
func (c *Client) Poll(ctx context.Context) (queue.Report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := ask.NewRound(c.o.Ask)
	var stages []drone.StageRow
	if _, err := r.JSON(ctx, ask.Request{Path: "/api/queue"}, &stages); err != nil {
		return queue.Report{}, err
	}
	var repos []repo
	if _, err := r.JSON(ctx, ask.Request{Path: "/api/builds/incomplete"}, &repos); err != nil {
		return queue.Report{}, err
	}
	queued := make(map[int64][]drone.StageRow)
	for _, st := range stages {
		queued[st.BuildID] = append(queued[st.BuildID], st)
	}
	for _, rp := range repos {
		if rp.Build == nil || rp.Build.ID <= 0 || rp.Slug == "" {
			return queue.Report{}, r.Invalid(ask.Request{Path: "/api/builds/incomplete"}, "build without id or repository")
		}
		c.see(rp.ID, rp.Build.Number)
		if k := c.open[rp.Build.ID]; k != nil {
			stages := k.build.Stages
			k.build = *rp.Build
			k.build.Stages = stages
			continue
		}
		c.open[rp.Build.ID] = &known{slug: rp.Slug, build: *rp.Build}
	}
	if err := c.count(ctx, r); err != nil {
		return queue.Report{}, err
	}
	if err := c.short(ctx, r, queued); err != nil {
		return queue.Report{}, err
	}
	report := queue.Report{WholeJobs: true}
	if err := c.look(ctx, r, queued, &report); err != nil {
		return queue.Report{}, err
	}
	for id := range queued {
		if c.open[id] == nil {
			report.WholeJobs = false // of a build that nothing names
		}
	}
	r.Fill(&report)
	return report, nil
}

// look asks for the builds that changed, oldest first, and tells of all. What a
// failed poll has learned already is told by the next.
func (c *Client) look(ctx context.Context, r *ask.Round, queued map[int64][]drone.StageRow, report *queue.Report) error {
	looks := 0
	var ended []int64
	for _, id := range slices.Sorted(maps.Keys(c.open)) {
		k := c.open[id]
		now := moved(queued[id])
		if k.looked != now && looks < maxDetails {
			looks++
			full, err := c.find(ctx, r, k.slug, k.build.Number)
			if errors.Is(err, cimeter.ErrNotFound) {
				delete(c.open, id) // with its repository
				continue
			}
			if err != nil {
				return err
			}
			k.build, k.looked = full, now
		}
		if k.looked == "" {
			report.WholeJobs = false // its stages that wait for others are not known
			k.build.Stages = nil
		}
		overlay(&k.build, queued[id])
		report.Jobs = append(report.Jobs, c.server.Jobs(k.slug, &k.build)...)
		if len(queued[id]) == 0 && k.looked == now {
			ended = append(ended, id)
		}
	}
	for _, id := range ended {
		delete(c.open, id)
	}
	return nil
}

// overlay puts what the queue tells of a build's stages over what is known.
func overlay(b *drone.BuildRow, queued []drone.StageRow) {
	for _, st := range queued {
		i := slices.IndexFunc(b.Stages, func(s drone.StageRow) bool { return s.ID == st.ID })
		switch {
		case i < 0:
			b.Stages = append(b.Stages, st)
		case st.Version >= b.Stages[i].Version:
			b.Stages[i] = st
		}
	}
}

// moved changes when one of a build's stages does.
func moved(queued []drone.StageRow) string {
	if len(queued) == 0 {
		return "none"
	}
	slices.SortFunc(queued, func(a, b drone.StageRow) int { return int(a.Number - b.Number) })
	var b strings.Builder
	for _, st := range queued {
		fmt.Fprintf(&b, "%d:%s ", st.ID, st.Status)
	}
	return b.String()
}

func (c *Client) find(ctx context.Context, r *ask.Round, slug string, number int64) (b drone.BuildRow, err error) {
	path, err := repoPath(slug)
	if err != nil {
		return b, err
	}
	q := ask.Request{Path: path + "/builds/" + strconv.FormatInt(number, 10)}
	if _, err := r.JSON(ctx, q, &b); err != nil {
		return b, err
	}
	if b.Number != number || b.ID <= 0 {
		return b, r.Invalid(q, "told of build %d", b.Number)
	}
	return b, nil
}

// repoPath is where the API has a repository.
func repoPath(slug string) (string, error) {
	owner, name, ok := strings.Cut(slug, "/")
	if !ok || owner == "" || name == "" || owner == ".." || name == ".." || owner == "." || name == "." {
		return "", fmt.Errorf("repository %.100q: want OWNER/NAME: %w", slug, cimeter.ErrInvalid)
	}
	return "/api/repos" + ask.Path(owner, name), nil
}

// Cancel ends the build that a key's stage is of, with all its stages: Drone ends
// no single one.
func (c *Client) Cancel(ctx context.Context, key string) error {
	slug, number, err := c.split(key)
	if err != nil {
		return err
	}
	path, err := repoPath(slug)
	if err != nil {
		return err
	}
	_, err = ask.NewRound(c.o.Ask).Send(ctx, ask.Request{Method: "DELETE", Path: path + "/builds/" + number})
	return err
}

// split reads a key of this server.
func (c *Client) split(key string) (slug, number string, err error) {
	bad := fmt.Errorf("build %.200q: want one of %s: %w", key, c.server.Host(), cimeter.ErrInvalid)
	rest, ok := strings.CutPrefix(key, cimeter.BuildKey(drone.CI, c.server.Host())+"/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 4 {
		return "", "", bad
	}
	for i := range parts {
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			return "", "", bad
		}
	}
	if n, err := strconv.ParseUint(parts[2], 10, 63); err != nil || n == 0 {
		return "", "", bad
	}
	return parts[0] + "/" + parts[1], parts[2], nil
}

// Builds tells of the builds that began since a time, a page of one repository a
// call, from where cursor says; "" begins. next is "" at the end. It asks for each
// build of the page: 25 requests and one or two more.
func (c *Client) Builds(ctx context.Context, since time.Time, cursor string) (jobs []cimeter.Job, next string, err error) {
	r := ask.NewRound(c.o.Ask)
	slug, page := "", 1
	if cursor != "" {
		at, after, ok := strings.Cut(cursor, " ")
		if page, err = strconv.Atoi(after); !ok || err != nil || page < 1 {
			return nil, "", fmt.Errorf("cursor %.100q: want REPOSITORY PAGE: %w", cursor, cimeter.ErrInvalid)
		}
		slug = at
	}
	if slug == "" {
		if slug, err = c.after(ctx, r, ""); err != nil || slug == "" {
			return nil, "", err
		}
	}
	path, err := repoPath(slug)
	if err != nil {
		return nil, "", err
	}
	const perPage = 25
	var builds []drone.BuildRow
	if _, err := r.JSON(ctx, ask.Request{Path: path + "/builds", Query: url.Values{"page": {strconv.Itoa(page)}, "per_page": {strconv.Itoa(perPage)}}}, &builds); err != nil {
		return nil, "", err
	}
	more := len(builds) == perPage
	for _, b := range builds {
		if created := ask.Unix(b.Created); created.Before(since) {
			more = false // newest first
			break
		}
		full, err := c.find(ctx, r, slug, b.Number)
		if err != nil {
			return nil, "", err
		}
		jobs = append(jobs, c.server.Jobs(slug, &full)...)
	}
	if more {
		return jobs, slug + " " + strconv.Itoa(page+1), nil
	}
	if slug, err = c.after(ctx, r, slug); err != nil || slug == "" {
		return jobs, "", err
	}
	return jobs, slug + " 1", nil
}

// after is the repository that follows one in the order of their names; "" is the end.
func (c *Client) after(ctx context.Context, r *ask.Round, slug string) (next string, err error) {
	repos, err := listRepos(ctx, r)
	if err != nil {
		return "", err
	}
	for _, rp := range repos {
		if rp.Slug > slug && (next == "" || rp.Slug < next) {
			next = rp.Slug
		}
	}
	return next, nil
}
