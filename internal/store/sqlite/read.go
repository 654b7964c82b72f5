package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/store"
)

// queryer runs the reads of package store. It prepares nothing: the statements
// differ with each filter.
type queryer struct{ s *Store }

func (q queryer) Dialect() store.Dialect { return store.SQLite }

func (q queryer) Query(ctx context.Context, text string, args []any, row func(scan func(dest ...any) error) error) error {
	rows, err := q.s.read.QueryContext(ctx, text, args...)
	if err != nil {
		return q.s.damaged(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return q.s.damaged(rows.Err())
}

func (q queryer) Load(ctx context.Context, refs []store.Ref, traces bool, fn func(i int, record, trace []byte) error) error {
	text := "SELECT record, NULL FROM bodies WHERE id = ?"
	if traces {
		text = "SELECT record, trace FROM bodies WHERE id = ?"
	}
	stmt, err := q.s.read.PrepareContext(ctx, text)
	if err != nil {
		return q.s.damaged(err)
	}
	defer stmt.Close()
	for i, r := range refs {
		var record, trace []byte
		switch err := stmt.QueryRowContext(ctx, r.ID).Scan(&record, &trace); {
		case errors.Is(err, sql.ErrNoRows):
			continue
		case err != nil:
			return q.s.damaged(err)
		}
		if err := fn(i, record, trace); err != nil {
			return err
		}
	}
	return nil
}

// Get returns the record of a key with its trace. The error wraps
// [cimeter.ErrNotFound] when there is none.
func (s *Store) Get(ctx context.Context, key string) (*cimeter.Record, error) {
	var record, trace []byte
	err := s.read.QueryRowContext(ctx, "SELECT record, trace FROM builds JOIN bodies USING (id) WHERE key = ?", key).Scan(&record, &trace)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, fmt.Errorf("build %.200q: %w", key, cimeter.ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("build %.200q: %w", key, s.damaged(err))
	}
	return store.Decode(key, record, trace)
}

// Trace returns the trace of a key. The error wraps [cimeter.ErrNotFound] when
// there is no such build or it has none.
func (s *Store) Trace(ctx context.Context, key string) (*cimeter.Trace, error) {
	r, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if r.Trace == nil {
		return nil, fmt.Errorf("trace of build %.200q: %w", key, cimeter.ErrNotFound)
	}
	return r.Trace, nil
}

// List returns a page of builds: see [store.Query].
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	page, err := store.List(ctx, queryer{s}, q)
	return page, wrap("list builds", err)
}

// Each calls fn with every build that meets the filter, the earliest end first.
func (s *Store) Each(ctx context.Context, f filter.Filter, traces bool, fn func(*cimeter.Record) error) error {
	return wrap("read builds", store.Each(ctx, queryer{s}, f, traces, fn))
}

// Sum adds up the builds that meet a filter: see [store.Sum].
func (s *Store) Sum(ctx context.Context, f filter.Filter) (store.Sum, error) {
	sum, err := store.SumUp(ctx, queryer{s}, f)
	return sum, wrap("sum builds", err)
}

// Groups returns totals by group: see [store.GroupQuery].
func (s *Store) Groups(ctx context.Context, q store.GroupQuery) (store.Groups, error) {
	groups, err := store.GroupTotals(ctx, queryer{s}, q)
	return groups, wrap("group builds", err)
}

// Buckets returns totals over time: see [store.BucketQuery].
func (s *Store) Buckets(ctx context.Context, q store.BucketQuery) ([]store.Bucket, error) {
	buckets, err := store.BucketTotals(ctx, queryer{s}, q)
	return buckets, wrap("total builds", err)
}

// History returns the last builds of one job, the latest end first.
func (s *Store) History(ctx context.Context, h store.HistoryQuery) ([]*cimeter.Record, error) {
	records, err := store.History(ctx, queryer{s}, h)
	return records, wrap("history", err)
}

// Names returns values of a kind that hold part: see [store.ListNames].
func (s *Store) Names(ctx context.Context, kind, part string, limit int) ([]string, error) {
	names, err := store.ListNames(ctx, queryer{s}, kind, part, limit)
	return names, wrap("list names", err)
}

// Stats tells about the store.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	var st store.Stats
	var oldest, newest, pages, free, size int64
	// The hours of all builds are summed up already; what retention took is not
	// in them, so the builds are counted.
	err := s.read.QueryRowContext(ctx, `SELECT (SELECT user_version FROM pragma_user_version), (SELECT coalesce(max(value), 0) FROM meta WHERE name = 'builds'),
coalesce((SELECT min(at) FROM builds), 0), coalesce((SELECT max(at) FROM builds), 0),
(SELECT page_count FROM pragma_page_count), (SELECT freelist_count FROM pragma_freelist_count), (SELECT page_size FROM pragma_page_size)`).
		Scan(&st.Version, &st.Builds, &oldest, &newest, &pages, &free, &size)
	st.Oldest, st.Newest, st.Bytes = store.Time(oldest), store.Time(newest), (pages-free)*size
	return st, wrap("store's figures", s.damaged(err))
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
