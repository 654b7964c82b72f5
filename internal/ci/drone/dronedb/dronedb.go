// Package dronedb reads Drone's queue and builds from its own database, for those
// who would rather not give a token: SQLite, PostgreSQL, or MySQL and MariaDB.
//
// It owns one connection that cannot write, and the last build that it saw. It
// never logs and makes one try a call. It holds to the columns of the migrations
// of Drone 1 and 2. Start with [Open]. A DB polls in one goroutine at a time.
package dronedb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/drone"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"
)

const (
	recent   = 1000  // builds that the first poll looks back
	maxRows  = 20000 // stages that are read at once
	pageSize = 200   // builds of a page of the history
	patience = 10 * time.Second
)

// Options say which database is read.
type Options struct {
	URL string // of the Drone server, as builds know it: its host stands in their keys
	// Address returns where the database is: an absolute path, sqlite:///path,
	// postgres://user:password@host/name, mysql://user:password@host/name, or mysql:// and
	// Drone's own data source, user:password@tcp(host:3306)/name. It is asked for before
	// each connection.
	Address func() (string, error)
}

// DB is one Drone's database. Make it with Open.
type DB struct {
	o      Options
	server drone.Server

	mu   sync.Mutex
	db   *sql.DB
	how  *sql.TxOptions // of each transaction; nil: the connection says
	last int64          // id of the newest build that was seen
	open map[int64]bool // unfinished builds
}

// Open returns a DB. It connects when it is asked. The error wraps
// [cimeter.ErrInvalid] for an address of Drone that is none.
func Open(o Options) (*DB, error) {
	s := drone.NewServer(o.URL)
	if s.Host() == "" {
		return nil, fmt.Errorf("address of Drone: want http://HOST or https://HOST: %w", cimeter.ErrInvalid)
	}
	return &DB{o: o, server: s, open: make(map[int64]bool)}, nil
}

// Close lets the connection go.
func (d *DB) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.db == nil {
		return nil
	}
	err := d.db.Close()
	d.db = nil
	return err
}

// Poll reads the stages of all builds that are not finished, of those that were
// not at the last poll, and of those that began since.
func (d *DB) Poll(ctx context.Context) (queue.Report, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	report := queue.Report{WholeJobs: true}
	open, last := map[int64]bool{}, d.last
	err := d.read(ctx, func(tx *sql.Tx) error {
		var newest sql.NullInt64
		if err := tx.QueryRowContext(ctx, "SELECT MAX(build_id) FROM builds").Scan(&newest); err != nil {
			return err
		}
		if last == 0 || last > newest.Int64 { // another database: a restored one
			last = max(newest.Int64-recent, 0)
		}
		where := fmt.Sprintf("builds.build_id > %d", last)
		if len(d.open) > 0 {
			ids := make([]string, 0, len(d.open))
			for id := range d.open {
				ids = append(ids, strconv.FormatInt(id, 10))
			}
			slices.Sort(ids)
			where += " OR builds.build_id IN (" + strings.Join(ids, ",") + ")"
		}
		seen := map[int64]bool{}
		// The first condition is that of the partial index of Drone's own.
		for _, where := range []string{"build_status IN ('pending', 'running')", where} {
			rows := 0
			err := d.builds(ctx, tx, where, func(slug string, b *drone.BuildRow) {
				rows += len(b.Stages)
				if seen[b.ID] {
					return
				}
				seen[b.ID] = true
				jobs := d.server.Jobs(slug, b)
				report.Jobs = append(report.Jobs, jobs...)
				if slices.ContainsFunc(jobs, func(j cimeter.Job) bool { return !j.Status.Ended() }) {
					open[b.ID] = true
				}
			})
			if err != nil {
				return err
			}
			if rows >= maxRows {
				report.WholeJobs = false
			}
		}
		last = newest.Int64
		return nil
	})
	if err != nil {
		return queue.Report{}, err
	}
	d.last, d.open = last, open
	return report, nil
}

// Builds tells of the builds that began since a time, newest first, a page a call,
// from where cursor says; "" begins. next is "" at the end.
func (d *DB) Builds(ctx context.Context, since time.Time, cursor string) (jobs []cimeter.Job, next string, err error) {
	below := int64(1<<63 - 1)
	if cursor != "" {
		if below, err = strconv.ParseInt(cursor, 10, 64); err != nil || below <= 0 {
			return nil, "", fmt.Errorf("cursor %.100q: want the id of a build: %w", cursor, cimeter.ErrInvalid)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	oldest, n := below, 0
	err = d.read(ctx, func(tx *sql.Tx) error {
		// As a table of its own: MySQL takes no LIMIT in a list.
		where := fmt.Sprintf("builds.build_id IN (SELECT build_id FROM (SELECT build_id FROM builds WHERE build_id < %d AND build_created >= %d ORDER BY build_id DESC LIMIT %d) AS page)",
			below, since.Unix(), pageSize)
		return d.builds(ctx, tx, where, func(slug string, b *drone.BuildRow) {
			n++
			oldest = min(oldest, b.ID)
			jobs = append(jobs, d.server.Jobs(slug, b)...)
		})
	})
	if err != nil {
		return nil, "", err
	}
	if n > 0 {
		next = strconv.FormatInt(oldest, 10)
	}
	return jobs, next, nil
}

// columns are those that are read. All may be NULL in SQLite.
const columns = `builds.build_id, COALESCE(repos.repo_slug, ''), COALESCE(build_number, 0), COALESCE(build_event, ''), COALESCE(build_after, ''),
COALESCE(build_ref, ''), COALESCE(build_target, ''), COALESCE(stage_id, 0), COALESCE(stage_number, 0), COALESCE(stage_name, ''),
COALESCE(stage_status, ''), COALESCE(stage_machine, ''), COALESCE(stage_os, ''), COALESCE(stage_arch, ''), COALESCE(stage_started, 0),
COALESCE(stage_stopped, 0), COALESCE(stage_created, 0), COALESCE(stage_updated, 0), COALESCE(stage_depends_on, ''), COALESCE(stage_labels, '')
FROM builds JOIN repos ON repos.repo_id = builds.build_repo_id JOIN stages ON stages.stage_build_id = builds.build_id`

// builds calls each with every build that a condition is true of.
func (d *DB) builds(ctx context.Context, tx *sql.Tx, where string, each func(slug string, b *drone.BuildRow)) error {
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT %s WHERE %s ORDER BY builds.build_id DESC, stage_number LIMIT %d", columns, where, maxRows))
	if err != nil {
		return err
	}
	defer rows.Close()
	var now drone.BuildRow
	nowSlug := ""
	for rows.Next() {
		var b drone.BuildRow
		var st drone.StageRow
		var slug, dependsOn, labels string
		if err := rows.Scan(&b.ID, &slug, &b.Number, &b.Event, &b.After, &b.Ref, &b.Target, &st.ID, &st.Number, &st.Name, &st.Status, &st.Machine, &st.OS,
			&st.Arch, &st.Started, &st.Stopped, &st.Created, &st.Updated, &dependsOn, &labels); err != nil {
			return err
		}
		// What is no JSON is none: Drone writes "null" or nothing as well.
		if json.Unmarshal([]byte(dependsOn), &st.DependsOn) != nil {
			st.DependsOn = nil
		}
		if json.Unmarshal([]byte(labels), &st.Labels) != nil {
			st.Labels = nil
		}
		if b.ID != now.ID {
			if now.ID != 0 {
				each(nowSlug, &now)
			}
			now, nowSlug = b, slug
		}
		now.Stages = append(now.Stages, st)
	}
	if now.ID != 0 {
		each(nowSlug, &now)
	}
	return rows.Err()
}

// read runs fn on one state of the database. Its errors are [queue.SourceError].
func (d *DB) read(ctx context.Context, fn func(*sql.Tx) error) error {
	err := d.transaction(ctx, fn)
	if err == nil {
		return nil
	}
	if d.db != nil {
		d.db.Close()
		d.db = nil // the next call reads the address anew
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", err, cimeter.ErrUnavailable)
	}
	return &queue.SourceError{Requests: 1, Err: fmt.Errorf("read Drone's database: %w", err)}
}

func (d *DB) transaction(ctx context.Context, fn func(*sql.Tx) error) (err error) {
	if d.db == nil {
		if d.db, err = d.connect(); err != nil {
			return err
		}
	}
	tx, err := d.db.BeginTx(ctx, d.how)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return fn(tx)
}

func (d *DB) connect() (db *sql.DB, err error) {
	address, err := d.o.Address()
	if err != nil {
		return nil, fmt.Errorf("read the address: %w", err)
	}
	address = strings.TrimSpace(address)
	d.how = nil
	switch path, isFile := strings.CutPrefix(address, "sqlite://"); {
	case isFile, strings.HasPrefix(address, "/"):
		if _, err := os.Stat(path); err != nil { // not made, should it not be there
			return nil, err
		}
		v := url.Values{"mode": {"ro"}, "_pragma": {"query_only(ON)", "busy_timeout(" + strconv.FormatInt(patience.Milliseconds(), 10) + ")", "trusted_schema(OFF)"}}
		c, err := sqlite.NewConnector((&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: v.Encode()}).String())
		if err != nil {
			return nil, err
		}
		db = sql.OpenDB(c)
	case strings.HasPrefix(address, "postgres://"), strings.HasPrefix(address, "postgresql://"):
		c, err := pgx.ParseConfig(address)
		if err != nil { // whose text may hold the password
			return nil, fmt.Errorf("the address cannot be read: want postgres://user:password@host/name: %w", cimeter.ErrInvalid)
		}
		c.RuntimeParams["default_transaction_read_only"] = "on"
		c.RuntimeParams["default_transaction_isolation"] = "repeatable read" // both questions of a poll see one state
		c.RuntimeParams["statement_timeout"] = strconv.FormatInt(patience.Milliseconds(), 10)
		c.RuntimeParams["application_name"] = "cimeter"
		db = stdlib.OpenDB(*c)
	case strings.HasPrefix(address, "mysql://"):
		c, err := mysqlConnector(address)
		if err != nil {
			return nil, err
		}
		db = sql.OpenDB(c)
		d.how = &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead} // as that of PostgreSQL
	default:
		return nil, fmt.Errorf("the address is of no kind that is known: want a path, sqlite:///path, postgres:// or mysql://: %w", cimeter.ErrUnsupported)
	}
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	return db, nil
}
