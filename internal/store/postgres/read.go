package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/store"
)

// queryer runs the reads of package store.
type queryer struct{ s *Store }

func (q queryer) Dialect() store.Dialect { return store.Postgres }

func (q queryer) Query(ctx context.Context, text string, args []any, row func(scan func(dest ...any) error) error) error {
	rows, err := q.s.read.Query(ctx, text, args...)
	if err != nil {
		return coded(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return coded(rows.Err())
}

func (q queryer) Load(ctx context.Context, refs []store.Ref, traces bool, fn func(i int, record, trace []byte) error) error {
	shards, ids, ats := make([]int16, len(refs)), make([]int64, len(refs)), make([]int64, len(refs))
	for i, r := range refs {
		shards[i], ids[i], ats[i] = store.Shard(r.Key), r.ID, r.At
	}
	column := "NULL::bytea"
	if traces {
		column = "b.trace"
	}
	rows, err := q.s.read.Query(ctx, "SELECT k.n, b.record, "+column+` FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY k (shard, id, at, n)
JOIN builds b ON b.id = k.id AND b.shard = k.shard AND b.at = k.at`, shards, ids, ats)
	if err != nil {
		return coded(err)
	}
	var n int64
	var record, trace []byte
	_, err = pgx.ForEachRow(rows, []any{&n, &record, &trace}, func() error { return fn(int(n-1), record, trace) })
	return coded(err)
}

// Get returns the record of a key with its trace. The error wraps
// [cimeter.ErrNotFound] when there is none.
func (s *Store) Get(ctx context.Context, key string) (*cimeter.Record, error) {
	if !store.ValidKey(key) { // the database would refuse to look for it
		return nil, fmt.Errorf("build %.200q: %w", key, cimeter.ErrNotFound)
	}
	var record, trace []byte
	err := s.read.QueryRow(ctx, `SELECT b.record, b.trace FROM build_keys k JOIN builds b ON b.id = k.id AND b.shard = k.shard AND b.at = k.at
WHERE k.key = $1 AND k.shard = $2`, key, store.Shard(key)).Scan(&record, &trace)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("build %.200q: %w", key, cimeter.ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("build %.200q: %w", key, coded(err))
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

const sizeOfAll = `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c WHERE c.oid IN
(SELECT inhrelid FROM pg_inherits WHERE inhparent IN ('builds'::regclass, 'stages'::regclass) UNION SELECT unnest(ARRAY['build_keys', 'rollups', 'names', 'meta']::regclass[]))`

// Stats tells about the store. It counts all keys.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	var st store.Stats
	var oldest, newest int64
	err := s.read.QueryRow(ctx, "SELECT (SELECT version FROM schema_version), (SELECT count(*) FROM build_keys), coalesce((SELECT min(at) FROM builds), 0), coalesce((SELECT max(at) FROM builds), 0), ("+sizeOfAll+")").
		Scan(&st.Version, &st.Builds, &oldest, &newest, &st.Bytes)
	st.Oldest, st.Newest = store.Time(oldest), store.Time(newest)
	return st, wrap("store's figures", coded(err))
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
