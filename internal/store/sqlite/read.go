package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/cimeter/cimeter/internal/store"
)

// queryer runs the reads of package store. It prepares nothing: the statements
// differ with each filter.
type queryer struct{ s *Store }

func (q queryer) Dialect() store.Dialect { return store.SQLite }

func (q queryer) Query(ctx context.Context, text string, args []any, row func(scan func(dest ...any) error) error) error {
	rows, err := q.s.read.QueryContext(ctx, text, args...)
	if err != nil {
		return q.s.damaged(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return q.s.damaged(rows.Err())
}

func (q queryer) Load(ctx context.Context, refs []store.Ref, traces bool, fn func(i int, key string, record, trace []byte) error) error {
	column := "NULL"
	if traces {
		column = "trace"
	}
	stmt, err := q.s.read.PrepareContext(ctx, "SELECT key, record, "+column+" FROM builds JOIN bodies USING (id) WHERE id = ?")
	if err != nil {
		return q.s.damaged(err)
	}
	defer stmt.Close()
	for i, r := range refs {
		var key string
		var record, trace []byte
		switch err := stmt.QueryRowContext(ctx, r.ID).Scan(&key, &record, &trace); {
		case errors.Is(err, sql.ErrNoRows):
			continue
		case err != nil:
			return q.s.damaged(err)
		}
		if err := fn(i, key, record, trace); err != nil {
			return err
		}
	}
	return nil
}

// Stats tells about the store.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	var st store.Stats
	var oldest, newest, pages, free, size int64
	// The hours of all builds are summed up already; what retention took is not
	// in them, so the builds are counted.
	err := s.read.QueryRowContext(ctx, `SELECT (SELECT user_version FROM pragma_user_version), (SELECT coalesce(max(value), 0) FROM meta WHERE name = 'builds'),
coalesce((SELECT min(at) FROM builds), 0), coalesce((SELECT max(at) FROM builds), 0),
(SELECT page_count FROM pragma_page_count), (SELECT freelist_count FROM pragma_freelist_count), (SELECT page_size FROM pragma_page_size)`).
		Scan(&st.Version, &st.Builds, &oldest, &newest, &pages, &free, &size)
	st.Oldest, st.Newest, st.Bytes = store.Time(oldest), store.Time(newest), (pages-free)*size
	st.Unjoined = s.unjoined.Load()
	if err != nil {
		return store.Stats{}, fmt.Errorf("store's figures: %w", s.damaged(err))
	}
	return st, nil
}
