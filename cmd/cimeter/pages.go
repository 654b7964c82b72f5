package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/server"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/web"
)

// newPages joins a server's store, its fleet and what CI servers tell it (nil:
// there are none) to the pages.
func newPages(role *server.Server, kept builds, ci *ciParts, sections *jobSections, report func(route string, err error)) (http.Handler, error) {
	source := pageSource{kept: kept, agents: role.Agents}
	o := web.Options{Source: source, Totals: source, Fleet: source, Sections: sections.divide, Machines: kept.Machines, Neighbours: source.Neighbours, Names: kept.Names, Past: source.Past, Version: readBuild().Version, Report: report, Queue: nothingWaits}
	if ci != nil {
		o.Queue = (&recentQueue{state: ci.poller.State}).State
	}
	return web.New(o)
}

// recentQueue is a queue as it was at most queueAge ago: everybody who looks at a
// page at once is shown one state, since thousands of builds take long to put in
// order.
type recentQueue struct {
	state func() queue.State

	mu   sync.Mutex
	last queue.State
	at   time.Time
}

const queueAge = time.Second

// State is a web.Queue.
func (r *recentQueue) State() queue.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.at) >= queueAge {
		r.last, r.at = r.state(), now
	}
	return r.last
}

// nothingWaits is the queue of a server that has no CI server: its page says how
// to have one.
func nothingWaits() queue.State { return queue.State{At: time.Now()} }

// pageSource gives the pages what they ask for in their own words.
type pageSource struct {
	kept   builds
	agents func() []httpapi.Agent
}

// Builds implements web.Source.
func (s pageSource) Builds(ctx context.Context, q web.Query) (web.Page, error) {
	var out web.Page
	if q.Limit > 0 {
		page, err := s.kept.List(ctx, store.Query{
			Filter: q.Filter, Sort: store.Sort(q.Sort), Asc: q.Ascending, Cursor: q.Cursor, Limit: min(q.Limit, store.MaxLimit), Trace: !q.Bare,
		})
		if err != nil {
			return web.Page{}, err
		}
		out.Next = page.Next
		for _, r := range page.Records {
			out.Rows = append(out.Rows, web.RowOf(r))
		}
	}
	if q.Sums {
		sum, err := s.kept.Sum(ctx, q.Filter)
		if err != nil {
			return web.Page{}, err
		}
		all := sumsOf(sum)
		out.Sums = &all
	}
	return out, nil
}

// Build implements web.Source. Of a build that still runs it is what the agents
// tell: totals so far, without stages and shape.
func (s pageSource) Build(ctx context.Context, key string) (*cimeter.Record, bool, error) {
	r, err := s.kept.Get(ctx, key)
	if errors.Is(err, cimeter.ErrNotFound) {
		if r := s.soFar(key); r != nil {
			return r, true, nil
		}
	}
	return r, false, err
}

// History implements web.Source.
func (s pageSource) History(ctx context.Context, q web.HistoryQuery) ([]*cimeter.Record, error) {
	return s.kept.History(ctx, store.HistoryQuery{
		Project: q.Project, Name: q.Name, Ref: q.Ref, Before: q.Before, Limit: min(q.Limit, store.MaxHistory),
	})
}

// Neighbours is a web.Neighbours: of what is kept, and of what agents say still runs.
func (s pageSource) Neighbours(ctx context.Context, of *cimeter.Record) (builds int, atOnce float64, err error) {
	n, err := s.kept.Neighbours(ctx, of)
	if err != nil {
		return 0, 0, err
	}
	for _, a := range s.agents() {
		for i := range a.Running {
			if b := &a.Running[i]; a.Machine == of.Machine && b.Key != of.Key {
				n.Add(of.StartedAt, of.EndedAt, b.StartedAt, a.SeenAt)
			}
		}
	}
	return n.Builds, n.AtOnce, nil
}

// Groups implements web.Totals.
func (s pageSource) Groups(ctx context.Context, q web.GroupQuery) ([]web.Group, error) {
	groups, err := s.kept.Groups(ctx, store.GroupQuery{
		By: store.By(q.By), Project: q.Project, Name: q.Name, Machine: q.Machine, From: q.From, To: q.To, Limit: min(q.Limit, store.MaxGroups),
	})
	if err != nil {
		return nil, err
	}
	out := make([]web.Group, 0, len(groups.Groups))
	for _, g := range groups.Groups {
		out = append(out, web.Group{
			Project: g.Project, Name: g.Name, Stage: g.Stage, Machine: g.Machine, Runner: g.Runner, RunnerName: g.RunnerName, Sums: sums(g.Totals),
		})
	}
	return out, nil
}

// Course implements web.Totals.
func (s pageSource) Course(ctx context.Context, q web.CourseQuery) (c web.Course, err error) {
	sum, points, err := s.kept.Course(ctx, q.Filter, min(q.Most, store.MaxExamine))
	if err != nil {
		return c, err
	}
	c.Sums, c.Builds = sumsOf(sum), make([]web.Row, 0, len(points))
	for _, p := range points {
		r := web.Row{EndedAt: p.EndedAt, Result: p.Result, WallSeconds: p.WallSeconds.Value, Unmetered: !p.WallSeconds.Known, CPUSeconds: p.CPUSeconds}
		if v, ok := p.MemoryPeakBytes.Get(); ok {
			r.MemoryPeak = cimeter.Some(uint64(v))
		}
		if v, ok := p.MemoryLimitBytes.Get(); ok {
			r.MemoryLimit = cimeter.Some(uint64(v))
		}
		if p.OOM {
			r.Verdicts = []string{"oom"}
		}
		c.Builds = append(c.Builds, r)
	}
	c.FleetCPUSeconds, err = s.fleetCPU(ctx, q.From, q.To)
	return c, err
}

// fleetCPU is the CPU time of all builds from one time to another, by whole hours or
// days; absent where those would be much of it.
func (s pageSource) fleetCPU(ctx context.Context, from, to time.Time) (seconds cimeter.Opt[float64], err error) {
	const day = 24 * time.Hour
	if from.IsZero() {
		from = time.Unix(0, 0)
	}
	bucket := time.Hour
	switch length := to.Sub(from); {
	case length < 6*time.Hour:
		return seconds, nil
	case length > 900*day:
		bucket = 30 * day
	case length > 35*day:
		bucket = day
	}
	buckets, err := s.kept.Buckets(ctx, store.BucketQuery{From: from, To: to, Bucket: bucket})
	for i := range buckets {
		seconds = cimeter.Some(seconds.Value + buckets[i].CPUSeconds)
	}
	return seconds, err
}

// Buckets implements web.Totals.
func (s pageSource) Buckets(ctx context.Context, q web.BucketQuery) ([]web.Bucket, error) {
	buckets, err := s.kept.Buckets(ctx, store.BucketQuery{
		Project: q.Project, Name: q.Name, Machine: q.Machine, Runner: q.Runner, From: q.From, To: q.To, Bucket: q.Bucket,
	})
	if err != nil {
		return nil, err
	}
	out := make([]web.Bucket, 0, len(buckets))
	for _, b := range buckets {
		out = append(out, web.Bucket{Start: b.Start, Sums: sums(b.Totals)})
	}
	return out, nil
}

func sumsOf(sum store.Sum) web.Sums {
	all := sums(sum.Totals)
	all.WallP50, all.WallP95, all.QueueP50, all.QueueP95, all.Partial = sum.WallP50, sum.WallP95, sum.QueueP50, sum.QueueP95, sum.Partial
	return all
}

func sums(t store.Totals) web.Sums {
	return web.Sums{
		Builds: t.Builds, Failed: t.Failed, Canceled: t.Canceled, OOM: t.OOM, WallSeconds: t.WallSeconds, CPUSeconds: t.CPUSeconds,
		ThrottledSeconds: t.ThrottledSeconds, IOBytes: t.IOBytes, NetworkBytes: t.NetworkBytes, MemoryPeakBytes: t.MemoryPeakBytes, Last: t.Last,
	}
}
