package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// jobsAtOnce is how many keys of jobs one transaction writes.
const jobsAtOnce = 200

// PutJobs keeps what a CI server tells of builds: see [store.Told]. Records of
// them and jobs may come in any order, and again. After an error some of the
// jobs may have been kept; putting them again is safe.
func (s *Store) PutJobs(ctx context.Context, jobs []cimeter.Job) error {
	byKey, keys, err := store.JobsByKey(jobs)
	if err != nil {
		return fmt.Errorf("put jobs: %w", err)
	}
	for part := range slices.Chunk(keys, jobsAtOnce) {
		if err := s.putJobs(ctx, byKey, part); err != nil {
			return fmt.Errorf("put %d jobs: %w", len(jobs), coded(err))
		}
	}
	return nil
}

func (s *Store) putJobs(ctx context.Context, byKey map[string][]cimeter.Job, keys []string) error {
	now := time.Now()
	given := byKey
	var alone []*store.Row // as if nothing were kept yet: they tell the weeks
	for _, key := range keys {
		row, _, err := store.Told(byKey[key], nil, now)
		if err != nil {
			return err
		}
		if row != nil {
			alone = append(alone, row)
		}
	}
	if err := s.partitions(ctx, alone); err != nil {
		return err
	}
	var names []store.Name
	var from, unjoined int64
	err := s.transaction(ctx, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT value FROM meta WHERE name = 'kept_from' FOR SHARE").Scan(&from); err != nil {
			return err
		}
		if err := places(ctx, tx, alone); err != nil {
			return err
		}
		byKey := make(map[string][]cimeter.Job, len(keys))
		for _, key := range keys {
			byKey[key] = given[key]
		}
		if err := joined(ctx, tx, alone, byKey, &unjoined); err != nil {
			return err
		}
		keys := slices.Sorted(maps.Keys(byKey))
		// As Put does: first the keys that are new, then those that are there, both
		// in order, so that no two transactions wait for each other.
		alone = slices.DeleteFunc(alone, func(r *store.Row) bool { return r.At < from || byKey[r.Key] == nil })
		fresh, err := newKeys(ctx, tx, alone)
		if err != nil {
			return err
		}
		var there []string
		for _, key := range keys {
			if _, ok := fresh[key]; !ok {
				there = append(there, key)
			}
		}
		kept, ids, err := keptOf(ctx, tx, there, "")
		if err != nil {
			return err
		}
		var rows, replaced []*store.Row
		for _, key := range there {
			if kept[key] == nil {
				continue // not ended yet, or before what retention keeps
			}
			row, old, err := store.Told(byKey[key], kept[key], now)
			if err != nil {
				return err
			}
			if row != nil {
				rows, replaced = append(rows, row), append(replaced, old)
			}
		}
		if err := remove(ctx, tx, rows, replaced, ids); err != nil {
			return err
		}
		for _, row := range alone {
			if id, ok := fresh[row.Key]; ok {
				ids[row.Key] = id
				rows = append(rows, row)
			}
		}
		if len(rows) == 0 {
			return nil
		}
		if err := copyRows(ctx, tx, rows, ids); err != nil {
			return err
		}
		names, err = s.sums(ctx, tx, rows, replaced, from)
		return err
	})
	if err == nil {
		s.remember(names, from)
		s.unjoined.Add(unjoined)
	}
	return err
}

// keptOf returns what is kept of keys that meet a condition, and the ids of all of them,
// and holds all for this transaction.
func keptOf(ctx context.Context, tx pgx.Tx, keys []string, condition string) (kept map[string]*store.Kept, ids map[string]int64, err error) {
	kept, ids = map[string]*store.Kept{}, map[string]int64{}
	shards := make([]int16, len(keys))
	for i, key := range keys {
		shards[i] = store.Shard(key)
	}
	found, err := tx.Query(ctx, `SELECT k.key, k.id FROM build_keys k JOIN unnest($1::smallint[], $2::text[]) want (shard, key) ON want.key = k.key AND want.shard = k.shard
ORDER BY k.key FOR UPDATE OF k`, shards, keys)
	if err != nil {
		return nil, nil, err
	}
	var key string
	var id int64
	if _, err = pgx.ForEachRow(found, []any{&key, &id}, func() error { ids[key] = id; return nil }); err != nil || len(ids) == 0 {
		return kept, ids, err
	}
	// Another statement: it sees what those wrote that this transaction waited for.
	// It also sees keys that came between the two: none of those is held.
	keys, shards = keys[:0:0], shards[:0]
	for key := range ids {
		keys, shards = append(keys, key), append(shards, store.Shard(key))
	}
	found, err = tx.Query(ctx, `SELECT b.key, b.received_at, b.agent, b.flags, b.record, b.trace FROM build_keys k
JOIN unnest($1::smallint[], $2::text[]) want (shard, key) ON want.key = k.key AND want.shard = k.shard
JOIN builds b ON b.id = k.id AND b.shard = k.shard AND b.at = k.at `+condition, shards, keys)
	if err != nil {
		return nil, nil, err
	}
	var k store.Kept
	_, err = pgx.ForEachRow(found, []any{&key, &k.ReceivedAt, &k.Agent, &k.Flags, &k.Record, &k.Trace}, func() error {
		one := k
		one.Record, one.Trace = slices.Clone(k.Record), slices.Clone(k.Trace)
		kept[key] = &one
		return nil
	})
	return kept, ids, err
}

// meter returns the rows to write: those whose key is fresh, and those whose
// build only a CI server told of until now, merged with it, whose keys become
// fresh. The rows that these replace are deleted.
func meter(ctx context.Context, tx pgx.Tx, all []*store.Row, fresh map[string]int64) (rows, replaced []*store.Row, err error) {
	var known []string
	byKey := map[string]*store.Row{}
	for _, r := range all {
		switch _, ok := fresh[r.Key]; {
		case ok:
			rows = append(rows, r)
		case r.Metered == 1:
			known = append(known, r.Key)
			byKey[r.Key] = r
		}
	}
	if len(known) == 0 {
		return rows, nil, nil
	}
	kept, ids, err := keptOf(ctx, tx, known, "AND k.metered = 0")
	if err != nil {
		return nil, nil, err
	}
	var merged []*store.Row
	for _, key := range known {
		if kept[key] == nil {
			continue
		}
		row, old, err := store.Meter(byKey[key], kept[key])
		if err != nil {
			return nil, nil, err
		}
		merged, replaced = append(merged, row), append(replaced, old)
		fresh[key] = ids[key]
	}
	return append(rows, merged...), replaced, remove(ctx, tx, merged, replaced, ids)
}

// remove deletes the rows of builds that others replace, and tells their keys
// where those are.
func remove(ctx context.Context, tx pgx.Tx, rows, replaced []*store.Row, ids map[string]int64) error {
	if len(rows) == 0 {
		return nil
	}
	n := len(rows)
	shards, keys, id, was, at, metered := make([]int16, n), make([]string, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int16, n)
	for i, r := range rows {
		shards[i], keys[i], id[i], was[i], at[i], metered[i] = store.Shard(r.Key), r.Key, ids[r.Key], replaced[i].At, r.At, int16(r.Metered)
	}
	_, err := tx.Exec(ctx, `DELETE FROM builds b USING unnest($1::smallint[], $2::bigint[], $3::bigint[]) old (shard, id, at)
WHERE b.at = old.at AND b.id = old.id AND b.shard = old.shard`, shards, id, was)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE build_keys k SET at = r.at, metered = r.metered FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::smallint[]) r (shard, key, at, metered)
WHERE k.key = r.key AND k.shard = r.shard`, shards, keys, at, metered)
	return err
}

// Note returns what was noted under a name; "": nothing.
func (s *Store) Note(ctx context.Context, name string) (value string, err error) {
	err = s.read.QueryRow(ctx, "SELECT value FROM notes WHERE name = $1", name).Scan(&value)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("note %.200q: %w", name, coded(err))
	}
	return value, nil
}

// SetNote notes a value under a name, durably; "" takes it away.
func (s *Store) SetNote(ctx context.Context, name, value string) (err error) {
	if value == "" {
		_, err = s.write.Exec(ctx, "DELETE FROM notes WHERE name = $1", name)
	} else {
		_, err = s.write.Exec(ctx, "INSERT INTO notes VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", name, value)
	}
	if err != nil {
		return fmt.Errorf("note %.200q: %w", name, coded(err))
	}
	return nil
}
