package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/cimeter/cimeter/internal/store"
)

// Retention deletes in small transactions, so that records are taken meanwhile.
const (
	deleteBuilds = 500 // builds in a transaction
	deleteRounds = 20  // transactions in a run
)

// Retain deletes what the store need not keep. Its work is bounded: see
// [store.Retained]. A record that ended before what was deleted is not taken
// again: Put counts it as expired.
func (s *Store) Retain(ctx context.Context, r store.Retention) (store.Retained, error) {
	var out store.Retained
	for range deleteRounds {
		n, err := s.retain(ctx, r, &out)
		if err != nil {
			return out, fmt.Errorf("retain: %w", s.damaged(err))
		}
		out.Builds += n
		if out.More = n > 0; !out.More {
			break
		}
	}
	if err := s.sweepNames(ctx); err != nil {
		return out, fmt.Errorf("retain: %w", s.damaged(err))
	}
	st, err := s.Stats(ctx)
	out.Bytes = st.Bytes
	return out, err
}

// retain deletes the oldest builds once; 0: none needs to go.
func (s *Store) retain(ctx context.Context, r store.Retention, out *store.Retained) (deleted int64, err error) {
	if err := s.take(ctx); err != nil {
		return 0, err
	}
	defer func() { <-s.turn }()
	err = s.transaction(ctx, func(tx *sql.Tx) error {
		if !r.TotalsFrom.IsZero() {
			if err := s.exec(ctx, tx, `DELETE FROM rollups WHERE dim IN (0, 1, 2, 3, 4, 5, 6, 7) AND at < ?`, store.Micros(r.TotalsFrom)); err != nil {
				return err
			}
			if err := s.exec(ctx, tx, `DELETE FROM stage_totals WHERE at < ?`, store.Micros(r.TotalsFrom)); err != nil {
				return err
			}
		}
		limit, err := s.over(ctx, tx, r)
		if err != nil || limit == 0 {
			return err
		}
		// Builds that ended at one instant go together. The cut lies behind the newest of the oldest few.
		var cut sql.NullInt64
		if err := tx.QueryRowContext(ctx, "SELECT max(at) + 1 FROM (SELECT at FROM builds WHERE at < ? ORDER BY at LIMIT ?)", limit, deleteBuilds).Scan(&cut); err != nil || !cut.Valid {
			return err
		}
		var counted int64
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM builds INDEXED BY builds_at WHERE at < ? AND flags & ? = 0", cut.Int64, store.FlagAgain).Scan(&counted); err != nil {
			return err
		}
		s.step()
		res, err := tx.ExecContext(ctx, "DELETE FROM builds WHERE at < ?", cut.Int64)
		if err != nil {
			return err
		}
		if deleted, err = res.RowsAffected(); err != nil {
			return err
		}
		if err := s.exec(ctx, tx, "UPDATE meta SET value = value - ? WHERE name = 'builds'", counted); err != nil {
			return err
		}
		if err := s.exec(ctx, tx, "DELETE FROM sections WHERE at < ?", cut.Int64); err != nil {
			return err
		}
		return s.exec(ctx, tx, "INSERT INTO meta VALUES ('kept_from', ?) ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)", cut.Int64)
	})
	if err != nil {
		return 0, err
	}
	s.step()
	_, err = s.write.ExecContext(ctx, "PRAGMA incremental_vacuum(2000)")
	return deleted, err
}

// sweep is how many names a run of retention looks at.
const sweep = 2000

// sweepNames deletes names that no build has: the refs of months are many. Each
// run looks at the next ones.
func (s *Store) sweepNames(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer func() { <-s.turn }()
	rows, err := s.write.QueryContext(ctx, "SELECT kind, value, target FROM names WHERE (kind, value) >= (?, ?) ORDER BY kind, value LIMIT ?", s.swept.Kind, s.swept.Value, sweep)
	if err != nil {
		return err
	}
	defer rows.Close()
	var names []store.Name
	for rows.Next() {
		var n store.Name
		if err := rows.Scan(&n.Kind, &n.Value, &n.Target); err != nil {
			return err
		}
		names = append(names, n)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	rows.Close()
	err = s.transaction(ctx, func(tx *sql.Tx) error {
		for _, n := range names {
			column, ok := store.NameColumn(n.Kind)
			if !ok {
				continue
			}
			if err := s.exec(ctx, tx, "DELETE FROM names WHERE kind = ? AND value = ? AND target = ? AND NOT EXISTS (SELECT 1 FROM builds WHERE "+column+" = ?)",
				n.Kind, n.Value, n.Target, n.Target); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.named.Clear()
	s.swept = store.Name{}
	if len(names) == sweep {
		s.swept = names[sweep-1]
	}
	return nil
}

// over returns the time before which builds must go; 0: none.
func (s *Store) over(ctx context.Context, tx *sql.Tx, r store.Retention) (int64, error) {
	if r.MaxBytes > 0 {
		var bytes int64
		if err := tx.QueryRowContext(ctx, `SELECT (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)
- (SELECT freelist_count FROM pragma_freelist_count) * (SELECT page_size FROM pragma_page_size)`).Scan(&bytes); err != nil {
			return 0, err
		}
		if bytes > r.MaxBytes {
			return 1 << 62, nil
		}
	}
	if r.KeepFrom.IsZero() {
		return 0, nil
	}
	return store.Micros(r.KeepFrom), nil
}
