package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// places takes, for this transaction, the places of rows, so that of two servers which
// write the two sides of one build the later one sees what the other wrote. They come
// before any other lock, in one order.
func places(ctx context.Context, tx pgx.Tx, rows []*store.Row) error {
	var numbers []int64
	for _, r := range rows {
		if s, ok := store.Around(r); ok {
			numbers = append(numbers, s.Number())
		}
	}
	slices.Sort(numbers)
	for _, n := range slices.Compact(numbers) {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", n); err != nil {
			return err
		}
	}
	return nil
}

// beside returns the other side of a build that has no key which agent and CI server
// both know; nil: it has none yet, or it cannot be told which it is.
func beside(ctx context.Context, tx pgx.Tx, r *store.Row, unjoined *int64) (*store.Beside, error) {
	s, ok := store.Around(r)
	if !ok {
		return nil, nil
	}
	found, err := tx.Query(ctx, `SELECT key, id, received_at, agent, flags, record, trace FROM builds WHERE pipeline = $1 AND at BETWEEN $2 AND $3 AND runner = $4 LIMIT $5`,
		s.Pipeline, s.From, s.To, s.Runner, store.MaxAround)
	if err != nil {
		return nil, err
	}
	var around []store.Beside
	var b store.Beside
	_, err = pgx.ForEachRow(found, []any{&b.Key, &b.ID, &b.ReceivedAt, &b.Agent, &b.Flags, &b.Record, &b.Trace}, func() error {
		one := b
		one.Record, one.Trace = slices.Clone(b.Record), slices.Clone(b.Trace)
		around = append(around, one)
		return nil
	})
	if err != nil {
		return nil, err
	}
	at, ambiguous := store.Join(r, around)
	if ambiguous {
		*unjoined++
	}
	if at < 0 {
		return nil, nil
	}
	return &around[at], nil
}

// join merges records whose keys are fresh with what CI servers told of their builds
// under other keys, which it takes away.
func join(ctx context.Context, tx pgx.Tx, rows []*store.Row, fresh map[string]int64, unjoined *int64) (replaced []*store.Row, err error) {
	for i, r := range rows {
		if _, ok := fresh[r.Key]; !ok || r.Metered == 0 {
			continue
		}
		other, err := beside(ctx, tx, r, unjoined)
		if err != nil {
			return nil, err
		}
		if other == nil {
			continue
		}
		gone, err := tx.Exec(ctx, "DELETE FROM build_keys WHERE shard = $1 AND key = $2 AND metered = 0", store.Shard(other.Key), other.Key)
		if err != nil {
			return nil, err
		}
		if gone.RowsAffected() == 0 {
			continue // retention took it
		}
		merged, old, err := store.Meter(r, &other.Kept)
		if err != nil {
			return nil, err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM builds WHERE at = $1 AND id = $2 AND shard = $3", old.At, other.ID, store.Shard(other.Key)); err != nil {
			return nil, err
		}
		rows[i], replaced = merged, append(replaced, old)
	}
	return replaced, nil
}

// joined puts jobs of builds whose records are there under another key to that key.
// Rows are those of jobs alone.
func joined(ctx context.Context, tx pgx.Tx, rows []*store.Row, byKey map[string][]cimeter.Job, unjoined *int64) error {
	for _, r := range rows {
		if _, ok := store.Around(r); !ok {
			continue
		}
		var there bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM build_keys WHERE shard = $1 AND key = $2)", store.Shard(r.Key), r.Key).Scan(&there); err != nil {
			return err
		}
		if there {
			continue
		}
		other, err := beside(ctx, tx, r, unjoined)
		if err != nil {
			return err
		}
		if other != nil && byKey[other.Key] == nil {
			byKey[other.Key] = store.Rekeyed(byKey[r.Key], other.Key)
			delete(byKey, r.Key)
		}
	}
	return nil
}
