package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

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
			return fmt.Errorf("put %d jobs: %w", len(jobs), s.damaged(err))
		}
	}
	return nil
}

func (s *Store) putJobs(ctx context.Context, byKey map[string][]cimeter.Job, keys []string) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer func() { <-s.turn }()
	var names []store.Name
	var unjoined int64
	err := s.transaction(ctx, func(tx *sql.Tx) (err error) {
		in := &inserter{ctx: ctx, s: s, tx: tx, known: map[string]*sql.Stmt{}}
		var from int64
		if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(value), 0) FROM meta WHERE name = 'kept_from'").Scan(&from); err != nil {
			return err
		}
		var rows, replaced []*store.Row
		for _, key := range keys {
			id, kept, err := in.kept(key, "")
			if err != nil {
				return err
			}
			jobs := byKey[key]
			row, old, err := store.Told(jobs, kept, time.Now())
			if err == nil && row != nil && old == nil {
				var beside *store.Beside
				if beside, err = in.beside(row); err == nil && beside != nil {
					id = beside.ID
					row, old, err = store.Told(store.Rekeyed(jobs, beside.Key), &beside.Kept, time.Now())
				}
			}
			switch {
			case err != nil:
				return err
			case row == nil, row.At < from:
				continue
			case old == nil:
				_, err = in.build(row)
			default:
				replaced = append(replaced, old)
				err = in.replace(id, row)
			}
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		unjoined = in.unjoined
		names, err = in.sums(rows, replaced)
		return err
	})
	if err == nil {
		s.named.Add(names)
		s.unjoined.Add(unjoined)
	}
	return err
}

// kept returns what is kept of a key; nil: nothing is that meets the condition.
func (in *inserter) kept(key, condition string) (id int64, k *store.Kept, err error) {
	k = &store.Kept{}
	err = in.tx.QueryRowContext(in.ctx, "SELECT id, received_at, agent, flags, record, trace FROM builds JOIN bodies USING (id) WHERE key = ?"+condition, key).
		Scan(&id, &k.ReceivedAt, &k.Agent, &k.Flags, &k.Record, &k.Trace)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil, nil
	}
	return id, k, err
}

// meter writes a record whose build only a CI server told of until now; nil: it
// is a duplicate.
func (in *inserter) meter(r *store.Row) (merged, old *store.Row, err error) {
	if r.Metered == 0 {
		return nil, nil, nil
	}
	id, kept, err := in.kept(r.Key, " AND metered = 0")
	if err != nil || kept == nil {
		return nil, nil, err
	}
	if merged, old, err = store.Meter(r, kept); err != nil {
		return nil, nil, err
	}
	return merged, old, in.replace(id, merged)
}

// beside returns the other side of a build that has no key which agent and CI server
// both know; nil: it has none yet, or it cannot be told which it is.
func (in *inserter) beside(r *store.Row) (*store.Beside, error) {
	s, ok := store.Around(r)
	if !ok {
		return nil, nil
	}
	rows, err := in.tx.QueryContext(in.ctx, `SELECT key, id, received_at, agent, flags, record, trace FROM builds JOIN bodies USING (id)
WHERE pipeline = ? AND at BETWEEN ? AND ? AND runner = ? LIMIT ?`, s.Pipeline, s.From, s.To, s.Runner, store.MaxAround)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var around []store.Beside
	for rows.Next() {
		var b store.Beside
		if err := rows.Scan(&b.Key, &b.ID, &b.ReceivedAt, &b.Agent, &b.Flags, &b.Record, &b.Trace); err != nil {
			return nil, err
		}
		around = append(around, b)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	at, ambiguous := store.Join(r, around)
	switch {
	case ambiguous:
		in.unjoined++
		return nil, nil
	case at < 0:
		return nil, nil
	}
	return &around[at], nil
}

// joined writes a record that was just inserted together with what a CI server told of
// its build under another key, which is taken away; nil: nothing was told yet.
func (in *inserter) joined(r *store.Row) (merged, old *store.Row, err error) {
	if r.Metered == 0 {
		return nil, nil, nil
	}
	beside, err := in.beside(r)
	if err != nil || beside == nil {
		return nil, nil, err
	}
	if merged, old, err = store.Meter(r, &beside.Kept); err != nil {
		return nil, nil, err
	}
	if _, err := in.exec("DELETE FROM builds WHERE key = ?", r.Key); err != nil {
		return nil, nil, err
	}
	return merged, old, in.replace(beside.ID, merged)
}

func (in *inserter) replace(id int64, r *store.Row) error {
	if _, err := in.exec("DELETE FROM builds WHERE id = ?", id); err != nil {
		return err
	}
	_, err := in.build(r)
	return err
}

// Note returns what was noted under a name; "": nothing.
func (s *Store) Note(ctx context.Context, name string) (value string, err error) {
	err = s.read.QueryRowContext(ctx, "SELECT value FROM notes WHERE name = ?", name).Scan(&value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("note %.200q: %w", name, s.damaged(err))
	}
	return value, nil
}

// SetNote notes a value under a name, durably; "" takes it away.
func (s *Store) SetNote(ctx context.Context, name, value string) error {
	if err := s.take(ctx); err != nil {
		return fmt.Errorf("note %.200q: %w", name, err)
	}
	defer func() { <-s.turn }()
	err := s.transaction(ctx, func(tx *sql.Tx) error {
		if value == "" {
			return s.exec(ctx, tx, "DELETE FROM notes WHERE name = ?", name)
		}
		return s.exec(ctx, tx, "INSERT INTO notes VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", name, value)
	})
	if err != nil {
		return fmt.Errorf("note %.200q: %w", name, s.damaged(err))
	}
	return nil
}
