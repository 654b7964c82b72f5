package notes

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
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/summary"
)

// server is a CI server with what is under way there.
type server struct {
	Server
	pipelines map[string]*pipeline // by id
	requests  map[request]*written
	lookups   int // that this look may make
}

// pipeline is one whose builds came lately.
type pipeline struct {
	Pipeline
	keys    map[string]bool // of its builds that were seen
	touched time.Time       // when the last came, or it was told of
	dirty   bool            // there is something to write
	over    bool            // it was seen as ended
	status  bool            // the commit has its line
	fails   int
	next    time.Time // when it is tried again

	lookups int       // for its merge request
	ask     time.Time // when the next may be
}

type request struct {
	project string
	number  int64
}

// written is what a merge request was told.
type written struct {
	id       int64 // of the note
	at       time.Time
	body     string
	pipeline int64
}

// look takes in what is new and writes what is due.
func (n *Notes) look(ctx context.Context, s *server) error {
	now := n.o.Now()
	n.mu.Lock()
	told := n.told[s.Name]
	delete(n.told, s.Name)
	n.mu.Unlock()
	for _, p := range told {
		s.tell(p, now)
	}
	q := store.Query{Limit: store.MaxLimit, Filter: filter.Filter{
		{Field: filter.CI, Op: filter.Eq, Text: s.CI}, {Field: filter.Since, Op: filter.Eq, At: now.Add(-window)},
	}}
	for range 10 {
		page, err := n.o.Store.List(ctx, q)
		if err != nil {
			return fmt.Errorf("list builds: %w", err)
		}
		for _, r := range page.Records {
			s.add(r, now)
		}
		if q.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	s.lookups = lookupsALook
	var errs []error
	ids := make([]string, 0, len(s.pipelines))
	for id := range s.pipelines {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }) // the oldest first
	for _, id := range ids {
		p := s.pipelines[id]
		if now.Sub(p.touched) > 2*window || len(s.pipelines) > maxPipelines {
			delete(s.pipelines, id)
			continue
		}
		if err := n.write(ctx, s, p, now); err != nil {
			errs = append(errs, fmt.Errorf("pipeline %s: %w", p.ID, err))
		}
	}
	for r, w := range s.requests {
		if now.Sub(w.at) > 24*time.Hour {
			delete(s.requests, r) // the note is found again by its marker
		}
	}
	return errors.Join(errs...)
}

func (s *server) tell(p Pipeline, now time.Time) {
	old := s.pipelines[p.ID]
	if old == nil {
		old = &pipeline{keys: map[string]bool{}}
		s.pipelines[p.ID] = old
	}
	if p.MergeRequest == 0 {
		p.MergeRequest, p.Target = old.MergeRequest, cmp.Or(p.Target, old.Target)
	}
	p.SHA, p.Ended = cmp.Or(p.SHA, old.SHA), p.Ended || old.Ended
	old.dirty = old.dirty || len(old.keys) > 0 && old.Pipeline != p
	old.Pipeline, old.touched = p, now
}

func (s *server) add(r *cimeter.Record, now time.Time) {
	if r.Server != s.Host || r.Pipeline == "" || r.Project == "" || r.EndedAt.IsZero() {
		return
	}
	p := s.pipelines[r.Pipeline]
	if p == nil {
		p = &pipeline{keys: map[string]bool{}, Pipeline: Pipeline{ID: r.Pipeline, Project: r.Project}}
		s.pipelines[r.Pipeline] = p
	}
	if p.keys[r.Key] || len(p.keys) >= maxJobs || p.Project != r.Project {
		return
	}
	p.keys[r.Key] = true
	p.dirty, p.touched, p.fails, p.next = true, now, 0, time.Time{}
	p.SHA = cmp.Or(p.SHA, r.SHA)
	if p.MergeRequest == 0 {
		p.MergeRequest = s.MergeRequest(r.Ref)
	}
}

// address is of one of our pages, "" where none is given.
func (s *server) address(path string) string {
	if s.Pages == "" {
		return ""
	}
	return strings.TrimRight(s.Pages, "/") + path
}

// write tells of a pipeline what is due.
func (n *Notes) write(ctx context.Context, s *server, p *pipeline, now time.Time) error {
	rule := s.Rule(p.Project)
	if err := s.find(ctx, p, rule, now); err != nil {
		return err
	}
	over := p.Ended || now.Sub(p.touched) >= quiet
	if over != p.over && len(p.keys) > 0 {
		p.over, p.dirty = over, p.fails < maxRetry
	}
	status := rule.Status && !p.status && over && len(p.keys) > 0
	note := rule.Note && p.dirty && p.MergeRequest != 0
	if !note && !status || now.Before(p.next) {
		return nil
	}
	number, _ := strconv.ParseInt(p.ID, 10, 64)
	to := request{p.Project, p.MergeRequest}
	last := s.requests[to]
	if last == nil {
		last = &written{}
	}
	if note && (now.Sub(last.at) < perNote || number < last.pipeline) {
		if note = false; number < last.pipeline {
			p.dirty = false // a newer pipeline is shown
		}
		if !status {
			return nil
		}
	}
	about, err := n.note(ctx, s, p, over, rule.Always)
	if err != nil {
		return err
	}
	if note {
		var b strings.Builder
		if err := about.Write(&b); err != nil {
			return err
		}
		if body := b.String(); body != last.body {
			id, err := s.Writer.PutNote(ctx, p.Project, p.MergeRequest, summary.NoteMarker, body, last.id)
			last.at = now
			s.requests[to] = last
			if err != nil {
				return p.failed(now, err)
			}
			last.id, last.body, last.pipeline = id, body, number
		}
		p.dirty, p.fails = false, 0
	}
	if status {
		err := s.Writer.PutStatus(ctx, p.Project, p.SHA, summary.PipelineStatus(about), s.address("/builds?pipeline="+p.ID+"&t=all"), number)
		if err != nil && !errors.Is(err, cimeter.ErrConflict) {
			return p.failed(now, err)
		}
		p.status = true
	}
	return nil
}

// find asks for the merge request, or its target branch, of a pipeline of which
// nothing told it. A branch may get its merge request after its pipeline began, so it is
// asked for again when that may have ended.
func (s *server) find(ctx context.Context, p *pipeline, rule Rule, now time.Time) error {
	known := p.MergeRequest != 0 && p.Target != ""
	if s.Finder == nil || known || !rule.Note || len(p.keys) == 0 || p.lookups >= maxLookups || now.Before(p.ask) || s.lookups <= 0 {
		return nil
	}
	if p.MergeRequest == 0 && (len(p.SHA) != 40 && len(p.SHA) != 64) {
		return nil // of what it is not known which commit
	}
	s.lookups--
	p.lookups++
	p.ask = now.Add(quiet)
	var err error
	was := p.Pipeline
	if p.MergeRequest == 0 {
		p.MergeRequest, p.Target, err = s.Finder.FindMergeRequest(ctx, p.Project, p.SHA)
	} else {
		p.Target, err = s.Finder.MergeRequestTarget(ctx, p.Project, p.MergeRequest)
	}
	if err != nil {
		p.ask = now.Add(max(quiet, waitOf(err)))
		return fmt.Errorf("find its merge request: %w", err)
	}
	p.dirty = p.dirty || p.Pipeline != was
	return nil
}

// failed puts the next try off, and gives up what fails for good.
func (p *pipeline) failed(now time.Time, err error) error {
	p.fails++
	p.next = now.Add(max(perNote<<min(p.fails-1, 4), waitOf(err)))
	if p.fails >= maxRetry || errors.Is(err, cimeter.ErrNotFound) || errors.Is(err, cimeter.ErrInvalid) {
		p.dirty, p.status, p.fails = false, true, maxRetry
	}
	return err
}

// waitOf is how long the forge wants to be left alone.
func waitOf(err error) time.Duration {
	var e *queue.SourceError
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}

// note gathers the builds of a pipeline, the last try of each job, and those before
// them on the target branch.
func (n *Notes) note(ctx context.Context, s *server, p *pipeline, over, always bool) (summary.Note, error) {
	note := summary.Note{Pipeline: p.ID, URL: s.PipelineURL(p.Project, p.ID), Target: p.Target, Finished: over, Help: s.address("/"), Always: always}
	jobs := map[string]*cimeter.Record{}
	q := store.Query{Limit: store.MaxLimit, Filter: filter.Filter{
		{Field: filter.CI, Op: filter.Eq, Text: s.CI}, {Field: filter.Pipeline, Op: filter.Eq, Text: p.ID},
	}}
	for range 10 {
		page, err := n.o.Store.List(ctx, q)
		if err != nil {
			return note, fmt.Errorf("list builds of it: %w", err)
		}
		for _, r := range page.Records {
			if r.Server != s.Host || r.Project != p.Project || r.EndedAt.IsZero() || len(jobs) >= maxJobs {
				continue
			}
			if old := jobs[r.Name]; old == nil || r.StartedAt.After(old.StartedAt) {
				jobs[r.Name] = r
			}
		}
		if q.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	for _, r := range jobs {
		before, err := n.o.Store.History(ctx, store.HistoryQuery{Project: r.Project, Name: r.Name, Ref: p.Target, Before: r.StartedAt, Limit: 20})
		if err != nil {
			return note, fmt.Errorf("list builds before it: %w", err)
		}
		note.Jobs = append(note.Jobs, summary.NoteJob{Record: r, URL: s.address("/builds/" + r.Key), Before: before})
		if r.EndedAt.After(note.At) {
			note.At = r.EndedAt
		}
	}
	slices.SortFunc(note.Jobs, func(a, b summary.NoteJob) int {
		return cmp.Or(a.Record.StartedAt.Compare(b.Record.StartedAt), cmp.Compare(a.Record.Key, b.Record.Key))
	})
	return note, nil
}
