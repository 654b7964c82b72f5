package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/cimeter/cimeter"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are the statements of each version, in order: the first makes
// version 1.
func migrations() ([][]string, error) {
	files, err := fs.Glob(migrationFiles, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	var all [][]string
	for i, f := range files {
		if want := fmt.Sprintf("%04d_", i+1); !strings.HasPrefix(path.Base(f), want) {
			return nil, fmt.Errorf("migration %s: want a name that begins with %s", f, want)
		}
		b, err := migrationFiles.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var statements []string
		for s := range strings.SplitSeq(string(b), ";\n") {
			if strings.TrimSpace(s) != "" {
				statements = append(statements, s)
			}
		}
		all = append(all, statements)
	}
	return all, nil
}

// migrate brings the schema up to date, each version in a transaction of its own.
func (s *Store) migrate(ctx context.Context) error {
	all, err := migrations()
	if err != nil {
		return err
	}
	version, err := version(ctx, s.write)
	if err != nil {
		return err
	}
	switch {
	case version > len(all):
		return fmt.Errorf("its schema is version %d, this program knows up to %d: use a newer program: %w", version, len(all), cimeter.ErrConflict)
	case version != 0 && version < len(all) && !s.o.Migrate:
		return fmt.Errorf("its schema is version %d, this program wants %d: make a backup, then run cimeter store migrate: %w", version, len(all), cimeter.ErrConflict)
	}
	for ; version < len(all); version++ {
		err := s.transaction(ctx, func(tx *sql.Tx) error {
			for _, statement := range all[version] {
				if err := s.exec(ctx, tx, statement); err != nil {
					return err
				}
			}
			// The version is in the file's header: it changes with the transaction.
			return s.exec(ctx, tx, fmt.Sprintf("PRAGMA user_version = %d", version+1))
		})
		if err != nil {
			return fmt.Errorf("migrate to version %d: %w", version+1, err)
		}
	}
	return nil
}

func version(ctx context.Context, db *sql.DB) (v int, err error) {
	return v, db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v)
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
