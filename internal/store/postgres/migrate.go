package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cimeter/cimeter/internal/store"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are the statements of each version of the schema.
func migrations() ([][]string, error) {
	return store.Migrations(migrationFiles.ReadFile, "migrations/0001_builds.sql", "migrations/0002_beside.sql", "migrations/0003_machines.sql", "migrations/0004_machines_day.sql", "migrations/0005_parts.sql")
}

// migrationLock is the advisory lock of those who change the schema: "cimeter".
const migrationLock = 0x63696d65746572

// migrate brings the schema up to date, each version in a transaction of its
// own, with servers that start at once waiting for each other; a new database gets
// all of them in one, so that none is left between two versions.
func (s *Store) migrate(ctx context.Context) error {
	all, err := migrations()
	if err != nil {
		return err
	}
	version := 0
	for {
		err := s.transaction(ctx, func(tx pgx.Tx) error {
			if _, err := s.exec(ctx, tx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
				return err
			}
			if _, err := s.exec(ctx, tx, "CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL)"); err != nil {
				return err
			}
			err := tx.QueryRow(ctx, "SELECT version FROM schema_version").Scan(&version)
			if errors.Is(err, pgx.ErrNoRows) {
				_, err = s.exec(ctx, tx, "INSERT INTO schema_version VALUES (0)")
			}
			if err != nil {
				return err
			}
			if err := store.CheckVersion(version, len(all), s.o.Migrate); err != nil || version == len(all) {
				return err
			}
			to, statements := version+1, slices.Clone(all[version])
			if version == 0 {
				to, statements = len(all), slices.Concat(all...)
			}
			for _, statement := range append(statements, fmt.Sprintf("UPDATE schema_version SET version = %d", to)) {
				if _, err := s.exec(ctx, tx, statement); err != nil {
					return fmt.Errorf("migrate to version %d: %w", to, err)
				}
			}
			s.step() // the commit
			return nil
		})
		if err != nil {
			return err
		}
		if version == len(all) {
			return nil
		}
	}
}

// exec runs one statement of a migration or of retention.
func (s *Store) exec(ctx context.Context, tx pgx.Tx, statement string, args ...any) (pgconn.CommandTag, error) {
	s.step()
	return tx.Exec(ctx, statement, args...)
}

func (s *Store) step() {
	if s.o.fault != nil {
		s.o.fault(int(s.steps.Add(1)))
	}
}

// Migrate brings the schema of the database up to date and ends. Stop the
// servers of an older program before. The errors are those of [Open].
func Migrate(ctx context.Context, url string) error {
	s, err := Open(ctx, Options{URL: url, Migrate: true})
	if err != nil {
		return fmt.Errorf("migrate store: %w", err)
	}
	return s.Close()
}

// Version returns the version of the schema of the database, 0 when it has
// none, and the one that this program wants.
func Version(ctx context.Context, url string) (found, want int, err error) {
	all, err := migrations()
	if err != nil {
		return 0, 0, err
	}
	s := &Store{o: Options{URL: url}}
	db, err := s.pool(ctx, 1, nil)
	if err != nil {
		return 0, 0, fmt.Errorf("version of store: %w", err)
	}
	defer db.Close()
	err = db.QueryRow(ctx, "SELECT version FROM schema_version").Scan(&found)
	var e *pgconn.PgError
	if errors.Is(err, pgx.ErrNoRows) || errors.As(err, &e) && e.Code == undefinedTable {
		return 0, len(all), nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("version of store: %w", coded(err))
	}
	return found, len(all), nil
}

// undefinedTable is what PostgreSQL says of a table that is not there.
const undefinedTable = "42P01"
