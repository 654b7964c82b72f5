package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

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

func (q queryer) Load(ctx context.Context, refs []store.Ref, traces bool, fn func(i int, key string, record, trace []byte) error) error {
	shards, ids, ats := make([]int16, len(refs)), make([]int64, len(refs)), make([]int64, len(refs))
	for i, r := range refs {
		shards[i], ids[i], ats[i] = r.Shard, r.ID, r.At
	}
	column := "NULL::bytea"
	if traces {
		column = "b.trace"
	}
	rows, err := q.s.read.Query(ctx, "SELECT k.n, b.key, b.record, "+column+` FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY k (shard, id, at, n)
JOIN builds b ON b.id = k.id AND b.shard = k.shard AND b.at = k.at`, shards, ids, ats)
	if err != nil {
		return coded(err)
	}
	var n int64
	var key string
	var record, trace []byte
	_, err = pgx.ForEachRow(rows, []any{&n, &key, &record, &trace}, func() error { return fn(int(n-1), key, record, trace) })
	return coded(err)
}

const sizeOfAll = `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c WHERE c.oid IN
(SELECT inhrelid FROM pg_inherits WHERE inhparent = 'builds'::regclass UNION SELECT unnest(ARRAY['build_keys', 'rollups', 'stage_totals', 'names', 'notes', 'meta']::regclass[]))`

// countOfAll is how many builds there are: by the totals of the days, and one by
// one only in what retention took a part of. A million take a second to count.
const countOfAll = `(WITH first AS (SELECT greatest(
  (SELECT (value + 86399999999) / 86400000000 * 86400000000 FROM meta WHERE name = 'kept_from'),
  coalesce((SELECT min(at) FROM rollups WHERE dim = 7), 9223372036854775807)) AS at)
SELECT (SELECT coalesce(sum(r.builds), 0)::bigint FROM rollups r WHERE r.dim = 7 AND r.at >= first.at) + (SELECT count(*) FROM builds b WHERE b.at < first.at AND b.flags & 2 = 0) FROM first)`

// Stats tells about the store.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	var st store.Stats
	var oldest, newest int64
	err := s.read.QueryRow(ctx, "SELECT (SELECT version FROM schema_version), "+countOfAll+", coalesce((SELECT min(at) FROM builds), 0), coalesce((SELECT max(at) FROM builds), 0), ("+sizeOfAll+")").
		Scan(&st.Version, &st.Builds, &oldest, &newest, &st.Bytes)
	st.Oldest, st.Newest, st.Unjoined = store.Time(oldest), store.Time(newest), s.unjoined.Load()
	if err != nil {
		return store.Stats{}, fmt.Errorf("store's figures: %w", coded(err))
	}
	return st, nil
}
