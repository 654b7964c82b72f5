package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store/postgres"
	"github.com/cimeter/cimeter/internal/storetest"
)

// older makes a database of an older version of the schema, with rows in each table;
// version 0 is an empty one.
func older(t *testing.T, version int) (url string, c *pgx.Conn) {
	t.Helper()
	url = database(t)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	if version > 0 {
		if err := postgres.Older(t.Context(), c, version); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Exec(t.Context(), "CREATE TABLE builds_19700101 PARTITION OF builds FOR VALUES FROM (20) TO (60)"); err != nil {
			t.Fatal(err)
		}
		fill(t, c)
	}
	return url, c
}

// texts returns the rows of a statement that tells one text a row.
func texts(t *testing.T, q interface {
	Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error)
}, statement string) []string {
	t.Helper()
	rows, err := q.Query(t.Context(), statement)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return all
}

// ownTables are the tables that hold what a migration must keep.
const ownTables = "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'schema_version' ORDER BY 1"

// fill puts rows of any text and number into each table that has none.
func fill(t *testing.T, c *pgx.Conn) {
	t.Helper()
	for _, table := range texts(t, c, ownTables) {
		if len(texts(t, c, "SELECT '' FROM "+table+" LIMIT 1")) > 0 {
			continue
		}
		values := texts(t, c, `SELECT CASE format_type(atttypid, NULL) WHEN 'text' THEN '''' || attname || '-'' || i' WHEN 'bytea' THEN 'convert_to(''b'' || i, ''UTF8'')'
WHEN 'real' THEN 'i / 8.0' ELSE 'i' END FROM pg_attribute WHERE attrelid = '`+table+`'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum`)
		if _, err := c.Exec(t.Context(), "INSERT INTO "+table+" SELECT "+strings.Join(values, ", ")+" FROM generate_series(1, 40) i"); err != nil {
			t.Fatalf("fill %s: %v", table, err)
		}
	}
}

// state tells the version of a database, and all of its schema and data as text. It
// waits for the migration of a server that was killed to be taken back.
func state(t *testing.T, c *pgx.Conn) (version int, text string) {
	t.Helper()
	var b strings.Builder
	err := pgx.BeginFunc(t.Context(), c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", postgres.MigrationLock); err != nil {
			return err
		}
		for _, statement := range []string{
			"SELECT relname || ' ' || relkind::text || ' ' || coalesce(pg_get_expr(relpartbound, oid), '') FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1",
			`SELECT attrelid::regclass || ' ' || attnum || ' ' || attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull || ' ' || attstorage::text || ' ' || coalesce(pg_get_expr(adbin, adrelid), '')
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'S') AND attnum > 0 AND NOT attisdropped ORDER BY attrelid::regclass::text, attnum`,
			"SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
			"SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1",
		} {
			b.WriteString(strings.Join(texts(t, tx, statement), "\n") + "\n")
		}
		for _, table := range texts(t, tx, ownTables) {
			b.WriteString(table + "\n" + strings.Join(texts(t, tx, "SELECT x::text FROM "+table+" x ORDER BY 1"), "\n") + "\n")
		}
		if len(texts(t, tx, "SELECT '' WHERE to_regclass('schema_version') IS NOT NULL")) == 0 {
			return nil
		}
		return tx.QueryRow(t.Context(), "SELECT version FROM schema_version").Scan(&version)
	})
	if err != nil {
		t.Fatal(err)
	}
	return version, b.String()
}

// undisturbed tells the state of each version that a migration from one comes through,
// and its number of statements. What a version makes is filled before the next one.
func undisturbed(t *testing.T, from int) (states map[int]string, statements, last int) {
	t.Helper()
	url, c := older(t, from)
	states = map[int]string{}
	version, text := state(t, c)
	states[version] = text
	s, err := postgres.OpenFault(t.Context(), postgres.Options{URL: url, Migrate: true}, func(n int) {
		statements = n
		// Nothing is locked right after a commit; within a transaction only the
		// version is read, which nothing keeps anybody from.
		if now, _, err := postgres.Version(t.Context(), url); err != nil {
			t.Error(err)
		} else if now > version {
			fill(t, c)
			version, states[now] = now, ""
			_, states[now] = state(t, c)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fill(t, c)
	last, text = state(t, c)
	states[last] = text
	return states, statements, last
}

// TestMigrate_killed kills a migrating process before each statement and each commit of
// all migrations, and while the database works on each: the schema and all data are
// those of the last version that was reached whole, and the next process goes on (F40).
func TestMigrate_killed(t *testing.T) {
	random := storetest.Seeded(t)
	for _, from := range []int{0, 1} {
		states, statements, last := undisturbed(t, from)
		url, c := older(t, from)
		version, text := state(t, c)
		storetest.Same(t, fmt.Sprintf("version %d before", version), text, states[version])
		killed := 0
		for _, within := range []bool{false, true}[:1+from] {
			if within { // all of it once more
				url, c = older(t, from)
				version = from
			}
			ended := false
			for n := 1; version < last || !ended && !within; n++ {
				env := []string{"STORE_CHILD_DOES=migrate", "STORE_CHILD_DIES=" + strconv.Itoa(n)}
				if within {
					env = append(env, "STORE_CHILD_WITHIN="+time.Duration(random.Int64N(int64(2*time.Millisecond))).String())
				}
				cmd, out := startChild(t, url, env...)
				for out.Scan() {
					if out.Text() != "migrated" {
						t.Fatalf("child: %s", out.Text())
					}
				}
				if ended = cmd.Wait() == nil; !ended && !within {
					killed++
				}
				now, text := state(t, c)
				if now > version {
					// A process that came to the next version left its tables empty.
					fill(t, c)
					version = now
					_, text = state(t, c)
					n = 0
				}
				storetest.Same(t, fmt.Sprintf("from version %d, killed at statement %d (within it: %t), version %d", from, n, within, now), text, states[version])
			}
		}
		t.Logf("from version %d: killed %d times at %d statements", from, killed, statements)
		if killed < statements {
			t.Errorf("killed %d times, want at least once at each of %d statements", killed, statements)
		}
		s := openURL(t, url)
		if got, err := s.Put(t.Context(), batch(10)); err != nil || got.Stored != 10 {
			t.Errorf("Put after all = %+v, %v", got, err)
		}
	}
}

// TestMigrate_several has servers of a newer program start at once on an older database,
// one of them killed within the migration: one runs it, the others find it done.
func TestMigrate_several(t *testing.T) {
	states, statements, last := undisturbed(t, 3)
	random := storetest.Seeded(t)
	url, c := older(t, 3)
	_, text := state(t, c)
	storetest.Same(t, "before", text, states[3])
	var wg sync.WaitGroup
	for i := range 4 {
		dies := 0
		if i == 0 {
			dies = 1 + random.IntN(statements)
		}
		cmd, out := startChild(t, url, "STORE_CHILD_DOES=migrate", "STORE_CHILD_DIES="+strconv.Itoa(dies))
		wg.Go(func() {
			migrated := out.Scan() && out.Text() == "migrated"
			if err := cmd.Wait(); dies == 0 && (err != nil || !migrated) {
				t.Errorf("server %d: %v, %s; want it to find the schema up to date", i, err, out.Text())
			}
		})
	}
	wg.Wait()
	// Of tables that are made and columns that get another name twice, the second is an error.
	version, text := state(t, c)
	if version != last {
		t.Errorf("version %d, want %d", version, last)
	}
	storetest.Same(t, "after", text, states[last])
	if err := openURL(t, url).Exec(t.Context(), "UPDATE schema_version SET version = 99"); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Open(t.Context(), postgres.Options{URL: url, Migrate: true}); !errors.Is(err, cimeter.ErrConflict) || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("a newer schema: %v", err)
	}
}
