package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// Verify reads all of the file at path, its indexes against its rows too, which Check
// leaves out, and returns how many builds it holds. It does so from outside of the
// process that uses the file, which may go on, and changes nothing. The error wraps
// [cimeter.ErrNotFound] when there is no file, [cimeter.ErrInvalid] when it is no
// store of this program's, and [cimeter.ErrUnavailable] when it is damaged.
func Verify(ctx context.Context, path string) (builds int64, err error) {
	s, err := at(path)
	if err != nil {
		return 0, fmt.Errorf("check store: %w", err)
	}
	if builds, err = s.verify(ctx); err != nil {
		return 0, fmt.Errorf("check store %s: %w", s.o.Path, s.damaged(err))
	}
	return builds, nil
}

func (s *Store) verify(ctx context.Context) (builds int64, err error) {
	found, want, err := s.versions(ctx)
	switch {
	case err != nil:
		return 0, err
	case found == 0:
		return 0, fmt.Errorf("the file holds no store: %w", cimeter.ErrInvalid)
	}
	if err := store.CheckVersion(found, want, true); err != nil { // an older one may be whole, too
		return 0, err
	}
	db, err := sql.Open("sqlite", s.dsn("query_only(ON)"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var first string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&first); err != nil {
		return 0, err
	}
	if first != "ok" {
		return 0, s.unsound(first)
	}
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM builds").Scan(&builds)
	return builds, err
}
