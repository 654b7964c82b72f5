package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// Backup writes the whole store, as it is at one instant, into a new file while
// records are taken. The file is there whole or not at all; the error wraps
// [cimeter.ErrConflict] when it is there already.
func (s *Store) Backup(ctx context.Context, path string) error {
	if err := s.backup(ctx, path); err != nil {
		return fmt.Errorf("backup to %s: %w", path, s.damaged(err))
	}
	return nil
}

func (s *Store) backup(ctx context.Context, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("the file is there already: %w", cimeter.ErrConflict)
	}
	part := path + "." + strconv.FormatUint(rand.Uint64(), 36) + ".part"
	defer os.Remove(part)
	db, err := sql.Open("sqlite", s.dsn())
	if err != nil {
		return err
	}
	defer db.Close()
	if err := private(part); err != nil { // VACUUM INTO takes an empty file
		return err
	}
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", part); err != nil {
		return err
	}
	if err := seal(ctx, part); err != nil {
		return err
	}
	// A link, unlike a rename, never takes another file's place.
	if err := os.Link(part, path); err != nil {
		return err
	}
	return syncPath(filepath.Dir(path))
}

// Backup writes the store in the file at path into a new file, as the method
// does, from outside of the process that uses it, which may go on. The error
// wraps [cimeter.ErrNotFound] when there is no file at path.
func Backup(ctx context.Context, path, to string) error {
	s, err := at(path)
	if err != nil {
		return fmt.Errorf("backup to %s: %w", to, err)
	}
	found, want, err := s.versions(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("backup to %s: %s: %w", to, path, s.damaged(err))
	case found == 0:
		return fmt.Errorf("backup to %s: %s holds no store: %w", to, path, cimeter.ErrInvalid)
	}
	// An older schema is copied as it is: a backup comes before a migration.
	if err := store.CheckVersion(found, want, true); err != nil {
		return fmt.Errorf("backup to %s: %s: %w", to, path, err)
	}
	return s.Backup(ctx, to)
}

// seal marks a copy as closed and puts it onto the disk.
func seal(ctx context.Context, path string) error {
	db, err := sql.Open("sqlite", (&Store{o: Options{Path: path}}).dsn())
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "UPDATE meta SET value = 1 WHERE name = 'clean'")
	if err := errors.Join(err, db.Close()); err != nil { // closing moves the log into the file
		return err
	}
	return syncPath(path)
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
