package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter/internal/store"
)

// OpenFault opens a store that calls fault before each statement of a migration.
func OpenFault(ctx context.Context, o Options, fault func(n int)) (*Store, error) {
	o.fault = fault
	return Open(ctx, o)
}

// Queryer is what package store reads through.
func (s *Store) Queryer() store.Queryer { return queryer{s} }

// Exec runs a statement on a writer.
func (s *Store) Exec(ctx context.Context, statement string, args ...any) error {
	_, err := s.write.Exec(ctx, statement, args...)
	return err
}

// Value runs a statement on a writer and returns its one value.
func (s *Store) Value(ctx context.Context, statement string, args ...any) (v string, err error) {
	return v, s.write.QueryRow(ctx, statement, args...).Scan(&v)
}

// Bare copies rows into their tables and nothing else: what Put
// is measured against.
func (s *Store) Bare(ctx context.Context, rows []*store.Row, rollups []store.Rollup) error {
	if err := s.partitions(ctx, rows); err != nil {
		return err
	}
	return s.transaction(ctx, func(tx pgx.Tx) error {
		if err := copyRows(ctx, tx, rows); err != nil {
			return err
		}
		return putRollups(ctx, tx, rollups)
	})
}
