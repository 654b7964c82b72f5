package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cimeter/cimeter/internal/store"
)

// OpenFault opens a store that calls fault before each statement of a migration and of
// retention, and before their commits.
func OpenFault(ctx context.Context, o Options, fault func(n int)) (*Store, error) {
	o.fault = fault
	return Open(ctx, o)
}

// Older makes the tables of an older version of the schema.
func Older(ctx context.Context, c *pgx.Conn, version int) error {
	all, err := migrations()
	if err != nil {
		return err
	}
	statements := append(slices.Concat(all[:version]...), "CREATE TABLE schema_version (version integer NOT NULL)", fmt.Sprintf("INSERT INTO schema_version VALUES (%d)", version))
	for _, statement := range statements {
		if _, err := c.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// MigrationLock is the advisory lock of those who change the schema.
const MigrationLock = int64(migrationLock)

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
		ids := make(map[string]int64, len(rows))
		for i, r := range rows {
			ids[r.Key] = int64(i)
		}
		if err := copyRows(ctx, tx, rows, ids); err != nil {
			return err
		}
		return putRollups(ctx, tx, rollups)
	})
}

// Bulk calls fill with a way to write many builds quickly: without indexes,
// which are made at its end, and without waiting for the disk.
func (s *Store) Bulk(ctx context.Context, fill func(write func(rows []*store.Row) error)) error {
	found, err := s.write.Query(ctx, "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'builds' AND indexname <> 'builds_pkey'")
	if err != nil {
		return err
	}
	var name, definition string
	var drop, create []string
	_, err = pgx.ForEachRow(found, []any{&name, &definition}, func() error {
		// What is made on the partitioned table is made on its partitions.
		drop, create = append(drop, "DROP INDEX "+name), append(create, strings.Replace(definition, " ON ONLY ", " ON ", 1))
		return nil
	})
	if err != nil {
		return err
	}
	for _, statement := range drop {
		if err := s.Exec(ctx, statement); err != nil {
			return err
		}
	}
	fill(func(rows []*store.Row) error {
		if err := s.partitions(ctx, rows); err != nil {
			return err
		}
		return s.transaction(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = off"); err != nil {
				return err
			}
			_, err := s.put(ctx, tx, newPutting(rows))
			return err
		})
	})
	for _, statement := range create {
		err := s.transaction(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, statement)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Asks tells whether a connection that was used just now is asked before it is used.
func Asks(c *pgx.Conn) bool { return ask(context.Background(), pgxpool.ShouldPingParams{Conn: c}) }
