package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter/internal/store"
)

// Retain deletes what the store need not keep, by whole weeks: a build is kept
// until its week is past, and the week that is the newest is never deleted for
// size. A record of a week that was deleted is not taken again: Put counts it
// as expired. Servers that do this at once wait for each other.
func (s *Store) Retain(ctx context.Context, r store.Retention) (store.Retained, error) {
	var out store.Retained
	err := s.transaction(ctx, func(tx pgx.Tx) error { return s.retain(ctx, tx, r, &out) })
	if err != nil {
		return store.Retained{}, fmt.Errorf("retain: %w", coded(err))
	}
	st, err := s.Stats(ctx)
	out.Bytes = st.Bytes
	return out, err
}

// retain drops one week at most: a run is short, and says that there is more.
func (s *Store) retain(ctx context.Context, tx pgx.Tx, r store.Retention, out *store.Retained) error {
	if _, err := s.exec(ctx, tx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
		return err
	}
	if !r.TotalsFrom.IsZero() {
		if _, err := s.exec(ctx, tx, "DELETE FROM rollups WHERE at < $1", store.Micros(r.TotalsFrom)); err != nil {
			return err
		}
		if _, err := s.exec(ctx, tx, "DELETE FROM stage_totals WHERE at < $1", store.Micros(r.TotalsFrom)); err != nil {
			return err
		}
	}
	weeks, err := s.partitioned(ctx, tx)
	if err != nil {
		return err
	}
	// The rest holds only what is older than any week, or forged.
	var rest *int64
	if err := tx.QueryRow(ctx, "SELECT max(at) FROM builds_rest").Scan(&rest); err != nil {
		return err
	}
	over := false
	if r.MaxBytes > 0 {
		var bytes int64
		if err := tx.QueryRow(ctx, sizeOfAll).Scan(&bytes); err != nil {
			return err
		}
		over = bytes > r.MaxBytes
	}
	keep := store.Micros(r.KeepFrom)
	if r.KeepFrom.IsZero() {
		keep = 0
	}
	cut := int64(0)
	switch {
	case len(weeks) > 0 && weeks[0]+weekUS <= keep, len(weeks) > 1 && over:
		cut = weeks[0] + weekUS
		weeks = weeks[:1]
	case rest != nil && *rest < keep:
		cut, weeks = *rest+1, nil
	default:
		return nil
	}
	out.More = true
	// No batch is written meanwhile that has seen the bound before.
	if _, err := s.exec(ctx, tx, "UPDATE meta SET value = greatest(value, $1) WHERE name = 'kept_from'", cut); err != nil {
		return err
	}
	if _, err := s.exec(ctx, tx, "DELETE FROM builds_rest WHERE at < $1", cut); err != nil {
		return err
	}
	// A backup (pg_dump) keeps a table from being dropped until it ends, and who waits to
	// drop it holds up all reads and batches: another run finds the same to delete.
	if _, err := s.exec(ctx, tx, "SET LOCAL lock_timeout = '1s'"); err != nil {
		return err
	}
	for _, start := range weeks {
		if _, err := s.exec(ctx, tx, "DROP TABLE IF EXISTS "+pgx.Identifier{"builds_" + weekName(start)}.Sanitize()); err != nil {
			return err
		}
	}
	if _, err := s.exec(ctx, tx, "DELETE FROM sections WHERE at < $1", cut); err != nil {
		return err
	}
	tag, err := s.exec(ctx, tx, "DELETE FROM build_keys WHERE at < $1", cut)
	out.Builds += tag.RowsAffected()
	if err != nil {
		return err
	}
	for _, kind := range store.NameKinds() {
		column, _ := store.NameColumn(kind)
		if _, err := s.exec(ctx, tx, "DELETE FROM names n WHERE n.kind = $1 AND NOT EXISTS (SELECT 1 FROM builds b WHERE b."+column+" = n.target)", kind); err != nil {
			return err
		}
	}
	s.step() // the commit
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, start := range weeks {
		delete(s.weeks, start)
	}
	return nil
}

// partitioned returns the starts of the weeks that have a partition, the
// earliest first.
func (s *Store) partitioned(ctx context.Context, tx pgx.Tx) (weeks []int64, err error) {
	rows, err := tx.Query(ctx, `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'builds'::regclass AND c.relname <> 'builds_rest' ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	var name string
	_, err = pgx.ForEachRow(rows, []any{&name}, func() error {
		at, err := time.Parse("20060102", strings.TrimPrefix(name, "builds_"))
		if err != nil {
			return fmt.Errorf("partition %s: want builds_ and a day: %w", name, err)
		}
		weeks = append(weeks, store.Micros(at))
		return nil
	})
	return weeks, err
}
