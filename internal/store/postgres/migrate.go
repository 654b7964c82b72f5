package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrationLock is the advisory lock of those who change the schema: "cimeter".
const migrationLock = 0x63696d65746572

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

// migrate brings the schema up to date, each version in a transaction of its
// own, with servers that start at once waiting for each other.
func (s *Store) migrate(ctx context.Context) error {
	all, err := migrations()
	if err != nil {
		return err
	}
	version := 0
	for {
		err := s.transaction(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL)"); err != nil {
				return err
			}
			err := tx.QueryRow(ctx, "SELECT version FROM schema_version").Scan(&version)
			if errors.Is(err, pgx.ErrNoRows) {
				_, err = tx.Exec(ctx, "INSERT INTO schema_version VALUES (0)")
			}
			switch {
			case err != nil:
				return err
			case version > len(all):
				return fmt.Errorf("its schema is version %d, this program knows up to %d: use a newer program: %w", version, len(all), cimeter.ErrConflict)
			case version != 0 && version < len(all) && !s.o.Migrate:
				return fmt.Errorf("its schema is version %d, this program wants %d: make a backup, then run cimeter store migrate: %w", version, len(all), cimeter.ErrConflict)
			case version == len(all):
				return nil
			}
			for _, statement := range append(all[version][:len(all[version]):len(all[version])], fmt.Sprintf("UPDATE schema_version SET version = %d", version+1)) {
				if s.steps++; s.o.fault != nil {
					s.o.fault(s.steps)
				}
				if _, err := tx.Exec(ctx, statement); err != nil {
					return fmt.Errorf("migrate to version %d: %w", version+1, err)
				}
			}
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
