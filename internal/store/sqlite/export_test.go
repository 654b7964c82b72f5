package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/cimeter/cimeter/internal/store"
)

// OpenFault opens a store that calls fault before each statement that changes
// the file.
func OpenFault(ctx context.Context, o Options, fault func(n int)) (*Store, error) {
	o.fault = fault
	return Open(ctx, o)
}

// Older are the statements that make a file of an older version of the schema.
func Older(version int) ([]string, error) {
	all, err := migrations()
	if err != nil {
		return nil, err
	}
	return append(slices.Concat(all[:version]...), fmt.Sprintf("PRAGMA user_version = %d", version)), nil
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

// Bulk calls fill with a way to write many builds quickly: without indexes,
// which are made at its end, and without waiting for the disk. A process that
// ends within leaves a store without indexes.
func (s *Store) Bulk(ctx context.Context, fill func(write func(rows []*store.Row) error)) error {
	rows, err := s.write.QueryContext(ctx, "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'builds' AND sql IS NOT NULL")
	if err != nil {
		return err
	}
	defer rows.Close()
	var drop, create []string
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return err
		}
		drop, create = append(drop, "DROP INDEX "+name), append(create, text)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, statement := range append(drop, "PRAGMA synchronous = OFF") {
		if err := s.Exec(ctx, statement); err != nil {
			return err
		}
	}
	fill(func(rows []*store.Row) error { return s.put(ctx, []*waiting{{rows: rows}}) })
	for _, statement := range append(create, "PRAGMA synchronous = FULL", "PRAGMA wal_checkpoint(TRUNCATE)") {
		if err := s.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
