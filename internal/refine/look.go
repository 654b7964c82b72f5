package refine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/section"
	"github.com/cimeter/cimeter/internal/store"
)

// server is a CI server with the logs that are to be read there.
type server struct {
	Server
	due    map[string]*build    // by key
	done   map[string]time.Time // end of those that were read or given up, by key
	widely time.Time            // when all of a day was looked at last
	paused time.Time            // nothing is read before
	left   float64              // requests that may be made now
	at     time.Time            // of left
}

// build is one whose log is to be read.
type build struct {
	key, project string
	ended        time.Time
	fails        int
	next         time.Time // not before
}

// look finds builds that ended and reads the logs that are due.
func (f *Refiner) look(ctx context.Context, s *server) error {
	now := f.o.Now()
	if err := f.find(ctx, s, now); err != nil {
		return err
	}
	return f.read(ctx, s, now)
}

// find adds the builds whose log was not read yet.
func (f *Refiner) find(ctx context.Context, s *server, now time.Time) error {
	all := now.Sub(s.widely) >= wideEvery
	since := now.Add(-narrow)
	if all {
		since = now.Add(-wide)
	}
	q := store.Query{Limit: store.MaxLimit, Filter: filter.Filter{
		{Field: filter.CI, Op: filter.Eq, Text: s.CI}, {Field: filter.Since, Op: filter.Eq, At: since},
	}}
	for range maxPages {
		page, err := f.o.Store.List(ctx, q)
		if err != nil {
			return fmt.Errorf("list builds: %w", err)
		}
		fresh, err := f.add(ctx, s, page.Records)
		if err != nil {
			return err
		}
		// The latest end comes first: behind a page that is known all is, but for
		// what came late.
		if q.Cursor = page.Next; page.Next == "" || !all && fresh == 0 && len(page.Records) > 0 {
			break
		}
	}
	if all {
		s.widely = now
	}
	for key, ended := range s.done {
		if now.Sub(ended) > wide+wideEvery {
			delete(s.done, key)
		}
	}
	return nil
}

func (f *Refiner) add(ctx context.Context, s *server, records []*cimeter.Record) (fresh int, err error) {
	var keys []string
	byKey := map[string]*cimeter.Record{}
	for _, r := range records {
		_, done := s.done[r.Key]
		if done || s.due[r.Key] != nil || r.Server != s.Host || r.EndedAt.IsZero() || len(r.Stages) == 0 || !s.Wanted(r.Project) {
			continue
		}
		keys = append(keys, r.Key)
		byKey[r.Key] = r
	}
	kept, err := f.o.Store.SectionsOf(ctx, keys)
	if err != nil {
		return 0, err
	}
	for _, key := range keys {
		r := byKey[key]
		if _, ok := kept[key]; ok {
			s.done[key] = r.EndedAt
		} else if len(s.due) < maxDue {
			s.due[key] = &build{key: key, project: r.Project, ended: r.EndedAt}
		}
	}
	return len(keys), nil
}

// read reads what is due, the latest first, as far as the server lets it.
func (f *Refiner) read(ctx context.Context, s *server, now time.Time) error {
	if !s.at.IsZero() {
		s.left = min(float64(s.Requests), s.left+float64(s.Requests)*max(0, now.Sub(s.at).Minutes()))
	}
	s.at = now
	if now.Before(s.paused) {
		return nil
	}
	due := make([]*build, 0, len(s.due))
	for _, b := range s.due {
		if !now.Before(b.next) && now.Sub(b.ended) >= settle {
			due = append(due, b)
		}
	}
	slices.SortFunc(due, func(x, y *build) int { return cmp.Or(y.ended.Compare(x.ended), cmp.Compare(x.key, y.key)) })
	for _, b := range due {
		if s.left < 1 || ctx.Err() != nil || now.Before(s.paused) {
			return ctx.Err()
		}
		s.left--
		if err := f.one(ctx, s, b, now); err != nil {
			return fmt.Errorf("build %s: %w", b.key, err)
		}
	}
	return nil
}

// one reads a log and keeps its sections.
func (f *Refiner) one(ctx context.Context, s *server, b *build, now time.Time) error {
	log, err := s.once(ctx, b)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	result := "kept"
	switch {
	case errors.Is(err, cimeter.ErrNotFound):
		result, err = "gone", nil // it will not come again
	case err == nil:
		var doc []byte
		if doc, err = json.Marshal(log); err == nil {
			err = f.o.Store.PutSections(ctx, []store.Sections{{Key: b.key, EndedAt: b.ended, JSON: doc}})
		}
	}
	if err == nil {
		s.finish(b)
	} else {
		result = "failed"
		s.failed(b, now, err)
	}
	f.o.Tally.Value(catalog.ServerLogsRead, s.Name, result).Add(1)
	return err
}

// once reads a log. One that its reader is not ready for is an error of that log, not
// the end of the server.
func (s *server) once(ctx context.Context, b *build) (log section.Log, err error) {
	ctx, stop := context.WithTimeout(ctx, readTime)
	defer stop()
	defer func() {
		if v := recover(); v != nil {
			log, err = section.Log{}, fmt.Errorf("read its log: panic: %v: %w", v, cimeter.ErrInvalid)
		}
	}()
	return s.Reader.Sections(ctx, b.project, b.key)
}

func (s *server) finish(b *build) {
	delete(s.due, b.key)
	s.done[b.key] = b.ended
}

// failed puts the next try off: of the log, or of all of the server where it says so.
func (s *server) failed(b *build, now time.Time, err error) {
	b.fails++
	b.next = now.Add(firstPause << (b.fails - 1))
	if b.fails >= maxTries {
		s.finish(b)
	}
	var e *queue.SourceError
	if errors.As(err, &e) && e.RetryAfter > 0 {
		s.paused = now.Add(e.RetryAfter)
	}
	if errors.Is(err, cimeter.ErrUnauthorized) {
		s.paused = now.Add(wrongPause)
	}
}
