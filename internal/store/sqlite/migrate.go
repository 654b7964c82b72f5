package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are the statements of each version of the schema.
func migrations() ([][]string, error) {
	return store.Migrations(migrationFiles.ReadFile, "migrations/0001_builds.sql", "migrations/0002_beside.sql", "migrations/0003_machines.sql", "migrations/0004_machines_day.sql", "migrations/0005_parts.sql")
}

// migrate brings the schema up to date, each version in a transaction of its own; a
// new file gets all of them in one, so that none is left between two versions.
func (s *Store) migrate(ctx context.Context) error {
	all, err := migrations()
	if err != nil {
		return err
	}
	version, err := version(ctx, s.write)
	if err != nil {
		return err
	}
	if err := store.CheckVersion(version, len(all), s.o.Migrate); err != nil {
		return err
	}
	for version < len(all) {
		to, statements := version+1, all[version]
		if version == 0 {
			to, statements = len(all), slices.Concat(all...)
		}
		s.step() // between two versions
		err := s.transaction(ctx, func(tx *sql.Tx) error {
			for _, statement := range statements {
				if err := s.exec(ctx, tx, statement); err != nil {
					return err
				}
			}
			// The version is in the file's header: it changes with the transaction.
			return s.exec(ctx, tx, fmt.Sprintf("PRAGMA user_version = %d", to))
		})
		if err != nil {
			return fmt.Errorf("migrate to version %d: %w", to, err)
		}
		version = to
	}
	return nil
}

func version(ctx context.Context, db *sql.DB) (v int, err error) {
	return v, db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v)
}

// Migrate brings the schema of the file at path up to date; no server may use it
// meanwhile. The errors are those of [Open]; it wraps [cimeter.ErrNotFound] when
// there is no file.
func Migrate(ctx context.Context, path string) error {
	if _, err := at(path); err != nil {
		return fmt.Errorf("migrate store: %w", err)
	}
	s, err := Open(ctx, Options{Path: path, Migrate: true})
	if err != nil {
		return fmt.Errorf("migrate store: %w", err)
	}
	return s.Close()
}

// Version returns the version of the schema of the file at path, 0 when it has
// none, and the one that this program wants. A server may use the file.
func Version(ctx context.Context, path string) (found, want int, err error) {
	s, err := at(path)
	if err != nil {
		return 0, 0, fmt.Errorf("version of store: %w", err)
	}
	found, want, err = s.versions(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("version of store %s: %w", s.o.Path, s.damaged(err))
	}
	return found, want, nil
}

func (s *Store) versions(ctx context.Context) (found, want int, err error) {
	all, err := migrations()
	if err != nil {
		return 0, 0, err
	}
	db, err := sql.Open("sqlite", s.dsn("query_only(ON)"))
	if err != nil {
		return 0, 0, err
	}
	found, err = version(ctx, db)
	return found, len(all), errors.Join(err, db.Close())
}

// at is a file that is there, not opened: SQLite would make one.
func at(path string) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", path, cimeter.ErrNotFound)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: want a file: %w", path, cimeter.ErrInvalid)
	}
	return &Store{o: Options{Path: path}}, nil
}

// exec runs one statement that changes the file.
func (s *Store) exec(ctx context.Context, tx *sql.Tx, statement string, args ...any) error {
	s.step()
	_, err := tx.ExecContext(ctx, statement, args...)
	return err
}

func (s *Store) step() {
	s.steps++
	if s.o.fault != nil {
		s.o.fault(s.steps)
	}
}

// transaction runs fn and commits, or leaves nothing of it.
func (s *Store) transaction(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	s.step()
	return tx.Commit()
}
