package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// Options say how a Store is opened.
type Options struct {
	Path string // of the file; its folder must be there
	// Migrate brings an older schema up to date; else it is an error. A new file
	// gets its schema either way.
	Migrate bool
	// CheckTime bounds the check of the file at Open; 0 is one second. A large
	// file is checked as far as that goes: Check does the whole.
	CheckTime time.Duration
	// Readers is how many reads run at once; 0 is 4.
	Readers int

	// fault is called before each statement that changes the file, with its
	// number. For tests that stop the process there.
	fault func(n int)
}

// Store is builds in a SQLite file.
type Store struct {
	store.Reader

	o       Options
	write   *sql.DB // one connection
	read    *sql.DB
	unclean bool
	lock    *os.File

	turn   chan struct{} // holds the right to write
	closed chan struct{} // closed by Close
	once   sync.Once
	mu     sync.Mutex
	queue  []*waiting

	steps int // under turn
	named store.NameSet
	swept store.Name // where the next sweep of names begins; under turn
	leads leads
	disk  disk

	unjoined atomic.Int64 // see store.Stats
}

// Open opens the file, makes it if there is none, checks it and brings its
// schema up to date. The error wraps [cimeter.ErrConflict] for a schema that
// is newer than this program, or older and not to be migrated, and
// [cimeter.ErrUnavailable] for a file that is damaged or used by another process.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.CheckTime == 0 {
		o.CheckTime = time.Second
	}
	if o.Readers == 0 {
		o.Readers = 4
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Path, err)
	}
	o.Path = path
	s := &Store{o: o, turn: make(chan struct{}, 1), closed: make(chan struct{})}
	s.Reader = store.NewReader(queryer{s})
	if err := s.open(ctx); err != nil {
		s.closeAll()
		return nil, fmt.Errorf("open store %s: %w", o.Path, err)
	}
	return s, nil
}

// pragmas hold for every connection: the pool makes new ones at any time.
func (s *Store) dsn(more ...string) string {
	v := url.Values{}
	for _, p := range append([]string{
		"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(ON)", "trusted_schema(OFF)", "cell_size_check(ON)",
	}, more...) {
		v.Add("_pragma", p)
	}
	v.Set("_txlock", "immediate")
	return (&url.URL{Scheme: "file", OmitHost: true, Path: s.o.Path, RawQuery: v.Encode()}).String()
}

func (s *Store) open(ctx context.Context) (err error) {
	if s.lock, err = lockFile(s.o.Path + ".lock"); err != nil {
		return err
	}
	if err := private(s.o.Path); err != nil {
		return err
	}
	if s.write, err = sql.Open("sqlite", s.dsn("auto_vacuum(INCREMENTAL)", "wal_autocheckpoint(8000)", "cache_size(-65536)", "temp_store(MEMORY)")); err != nil {
		return err
	}
	s.write.SetMaxOpenConns(1)
	s.write.SetMaxIdleConns(1)
	if s.read, err = sql.Open("sqlite", s.dsn("query_only(ON)", "cache_size(-16384)", "temp_store(MEMORY)")); err != nil {
		return err
	}
	s.read.SetMaxOpenConns(s.o.Readers)
	s.read.SetMaxIdleConns(s.o.Readers)
	if err := s.write.PingContext(ctx); err != nil {
		return s.damaged(err)
	}
	if err := s.bounded(ctx); err != nil {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return s.damaged(err)
	}
	var clean int
	switch err := s.write.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'clean'").Scan(&clean); {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return s.damaged(err)
	case err == nil:
		s.unclean = clean == 0
	}
	_, err = s.write.ExecContext(ctx, "INSERT INTO meta VALUES ('clean', 0) ON CONFLICT (name) DO UPDATE SET value = 0")
	return s.damaged(err)
}

// bounded checks as much of the file as its time allows.
func (s *Store) bounded(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, s.o.CheckTime)
	defer cancel()
	err := s.check(within)
	if within.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// Unclean reports whether the process before this one did not close the store:
// its owner then runs Check.
func (s *Store) Unclean() bool { return s.unclean }

// Check reads the whole file and returns an error that wraps
// [cimeter.ErrUnavailable] when it is damaged.
func (s *Store) Check(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return fmt.Errorf("check store %s: %w", s.o.Path, err)
	}
	return nil
}

func (s *Store) check(ctx context.Context) error {
	var found string
	if err := s.read.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
		return s.damaged(err)
	}
	if found != "ok" {
		return s.unsound(found)
	}
	return nil
}

// Close waits for the batch being written, ends the store and marks it as
// cleanly closed. What is asked of it later is unavailable.
func (s *Store) Close() (err error) {
	s.once.Do(func() {
		close(s.closed)
		s.turn <- struct{}{} // never given back
		_, err = s.write.Exec("UPDATE meta SET value = 1 WHERE name = 'clean'")
		err = errors.Join(err, s.closeAll())
	})
	return err
}

// take waits for the right to write; give it back through turn.
func (s *Store) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-s.closed:
		return fmt.Errorf("the store is closed: %w", cimeter.ErrUnavailable)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) closeAll() error {
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}
