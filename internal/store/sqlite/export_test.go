package sqlite

import (
	"context"
	"database/sql"

	"github.com/cimeter/cimeter/internal/store"
)

// OpenFault opens a store that calls fault before each statement that changes
// the file.
func OpenFault(ctx context.Context, o Options, fault func(n int)) (*Store, error) {
	o.fault = fault
	return Open(ctx, o)
}

// Queryer is what package store reads through.
func (s *Store) Queryer() store.Queryer { return queryer{s} }

// Pragmas returns the values of a pragma on every connection of both pools.
func (s *Store) Pragmas(ctx context.Context, name string) (values []string, err error) {
	for range s.o.Readers {
		c, err := s.read.Conn(ctx)
		if err != nil {
			return nil, err
		}
		defer c.Close() // held meanwhile: each is another
		var v string
		if err := c.QueryRowContext(ctx, "PRAGMA "+name).Scan(&v); err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	var v string
	err = s.write.QueryRowContext(ctx, "PRAGMA "+name).Scan(&v)
	return append(values, v), err
}

// Value runs a statement on the writer and returns its one value.
func (s *Store) Value(ctx context.Context, statement string) (v string, err error) {
	return v, s.write.QueryRowContext(ctx, statement).Scan(&v)
}

// Exec runs a statement on the writer.
func (s *Store) Exec(ctx context.Context, statement string) error {
	_, err := s.write.ExecContext(ctx, statement)
	return err
}

// Abandon ends the store as a killed process does: nothing is marked.
func (s *Store) Abandon() error { return s.closeAll() }

// Bare writes the rows of builds and nothing else: what Put is measured against.
func (s *Store) Bare(ctx context.Context, rows []*store.Row, rollups []store.Rollup) error {
	return s.transaction(ctx, func(tx *sql.Tx) error {
		in := &inserter{ctx: ctx, s: s, tx: tx, known: map[string]*sql.Stmt{}}
		for _, r := range rows {
			if _, err := in.build(r); err != nil {
				return err
			}
		}
		return in.rollups(rollups)
	})
}
