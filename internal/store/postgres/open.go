package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// Options say how a Store is opened.
type Options struct {
	URL string // postgres://user@host/database, or key=value words
	// Migrate brings an older schema up to date; else it is an error. An empty
	// database gets its schema either way.
	Migrate bool
	Readers int // reads at once; 0 is 8
	Writers int // batches written at once; 0 is 4
	// ReadTime bounds one read; 0 is two seconds.
	ReadTime time.Duration

	// fault is called before each statement of a migration and of retention, and
	// before their commits, with its number. For tests that stop the process there.
	fault func(n int)
}

// Store is builds in a PostgreSQL database.
type Store struct {
	store.Reader

	o     Options
	write *pgxpool.Pool
	read  *pgxpool.Pool

	mu    sync.Mutex
	weeks map[int64]bool // partitions that are there, by their start
	known store.NameSet
	// knownAt is retention's bound as of which known holds.
	knownAt int64
	steps   atomic.Int64 // see Options.fault

	unjoined atomic.Int64 // see store.Stats
}

// Open connects and brings the schema up to date. The error wraps
// [cimeter.ErrConflict] for a schema that is newer than this program, or older
// and not to be migrated, [cimeter.ErrInvalid] for a database that
// acknowledges what is not on its disk, and [cimeter.ErrUnavailable] when it
// does not answer.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Readers == 0 {
		o.Readers = 8
	}
	if o.Writers == 0 {
		o.Writers = 4
	}
	if o.ReadTime == 0 {
		o.ReadTime = 2 * time.Second
	}
	s := &Store{o: o, weeks: map[int64]bool{}}
	s.Reader = store.NewReader(queryer{s})
	if err := s.open(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("open store: %w", coded(err))
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) (err error) {
	if s.write, err = s.pool(ctx, s.o.Writers, map[string]string{"statement_timeout": "60s", "lock_timeout": "10s", "jit": "off"}); err != nil {
		return err
	}
	// Reads go along indexes: a plan is made for the values asked for, and a scan
	// of a whole table is taken only where there is no other way.
	s.read, err = s.pool(ctx, s.o.Readers, map[string]string{
		"statement_timeout": fmt.Sprint(s.o.ReadTime.Milliseconds()), "jit": "off", "plan_cache_mode": "force_custom_plan", "enable_seqscan": "off",
		"max_parallel_workers_per_gather": "0", "random_page_cost": "1.1", "default_transaction_read_only": "on",
	})
	if err != nil {
		return err
	}
	for name, want := range map[string][]string{"synchronous_commit": {"on", "local", "remote_write", "remote_apply"}, "fsync": {"on"}, "full_page_writes": {"on"}, "server_encoding": {"UTF8"}} {
		var got string
		if err := s.write.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&got); err != nil {
			return err
		}
		if !slices.Contains(want, got) {
			return fmt.Errorf("the database's %s is %s: want %s, or what is acknowledged is not kept: %w", name, got, strings.Join(want, ", "), cimeter.ErrInvalid)
		}
	}
	return s.migrate(ctx)
}

func (s *Store) pool(ctx context.Context, size int, parameters map[string]string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(s.o.URL)
	if err != nil {
		// The text of the error may hold the URL's password.
		return nil, fmt.Errorf("the database's URL cannot be read: want postgres://user@host/database: %w", cimeter.ErrInvalid)
	}
	c.MaxConns = int32(size)
	c.ShouldPing = ask
	for k, v := range parameters {
		c.ConnConfig.RuntimeParams[k] = v
	}
	// A server that went away is noticed by the database: its locks end.
	for k, v := range map[string]string{"application_name": "cimeter", "tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3"} {
		c.ConnConfig.RuntimeParams[k] = v
	}
	return pgxpool.NewWithConfig(ctx, c)
}

// coded gives what the database or the network says the code of the domain.
func coded(err error) error {
	var e *pgconn.PgError
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		switch e.Code[:2] {
		case "08", "40", "53", "55", "57", "58": // connection, rollback, resources, locks, shutdown and timeouts, I/O
			return fmt.Errorf("%v: %w", err, cimeter.ErrUnavailable)
		}
	case errors.As(err, &connect), errors.As(err, &network), pgconn.SafeToRetry(err), errors.Is(err, net.ErrClosed):
		if errors.Is(err, context.Canceled) {
			return err
		}
		return fmt.Errorf("%v: %w", err, cimeter.ErrUnavailable)
	case strings.Contains(err.Error(), "unexpected EOF"), strings.Contains(err.Error(), "conn closed"):
		return fmt.Errorf("%v: %w", err, cimeter.ErrUnavailable)
	}
	return err
}

// Close ends the connections.
func (s *Store) Close() error {
	if s.read != nil {
		s.read.Close()
	}
	if s.write != nil {
		s.write.Close()
	}
	return nil
}

// Check asks whether the database answers and writes: what is on its disk is
// its own to check.
func (s *Store) Check(ctx context.Context) error {
	var standby bool
	if err := s.write.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err != nil {
		return fmt.Errorf("check store: %w", coded(err))
	}
	if standby {
		return fmt.Errorf("check store: the database is a standby: %w", cimeter.ErrUnavailable)
	}
	return nil
}

// Backup is not this store's to make: the error wraps [cimeter.ErrUnsupported].
func (s *Store) Backup(context.Context, string) error {
	return fmt.Errorf("backup: use pg_dump, which takes a PostgreSQL database at one instant while it runs: %w", cimeter.ErrUnsupported)
}

// transaction runs fn and commits, or leaves nothing of it.
func (s *Store) transaction(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.write, fn)
}
