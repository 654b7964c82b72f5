package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/store/sqlite"
	"github.com/cimeter/cimeter/internal/storetest"
)

// older makes a file of an older version of the schema, with rows in each table;
// version 0 is no file.
func older(t *testing.T, version int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "builds.sqlite")
	if version == 0 {
		return path
	}
	statements, err := sqlite.Older(version)
	if err != nil {
		t.Fatal(err)
	}
	plainly(t, path, func(db *sql.DB) {
		for _, statement := range statements {
			if _, err := db.Exec(statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	})
	fill(t, path)
	return path
}

// plainly calls fn with a file that no store has to open first.
func plainly(t *testing.T, path string, fn func(db *sql.DB)) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_pragma=auto_vacuum(INCREMENTAL)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	fn(db)
}

// texts returns the rows of a statement that tells one text a row.
func texts(t *testing.T, db *sql.DB, statement string) (all []string) {
	t.Helper()
	rows, err := db.Query(statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// ownTables are the tables in the order in which they were made.
const ownTables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"

// fill puts rows of any text and number into each table that has none.
func fill(t *testing.T, path string) {
	t.Helper()
	plainly(t, path, func(db *sql.DB) {
		for _, table := range texts(t, db, ownTables) {
			if len(texts(t, db, "SELECT '' FROM "+table+" LIMIT 1")) > 0 {
				continue
			}
			values := texts(t, db, `SELECT CASE type WHEN 'TEXT' THEN '''' || name || '-'' || i' WHEN 'BLOB' THEN 'CAST(''b'' || i AS BLOB)' WHEN 'REAL' THEN 'i / 8.0' ELSE 'i' END
FROM pragma_table_info('`+table+`') ORDER BY cid`)
			if _, err := db.Exec("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) INSERT INTO " + table + " SELECT " + strings.Join(values, ", ") + " FROM n"); err != nil {
				t.Fatalf("fill %s: %v", table, err)
			}
		}
	})
}

// state tells the version of a file, and all of its schema and data as text; whether it
// was closed, which each start notes, is left out.
func state(t *testing.T, path string) (version int, text string) {
	t.Helper()
	var b strings.Builder
	plainly(t, path, func(db *sql.DB) {
		if found := texts(t, db, "PRAGMA integrity_check"); len(found) != 1 || found[0] != "ok" {
			t.Fatalf("the file is damaged: %q", found)
		}
		b.WriteString(strings.Join(texts(t, db, "SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1"), "\n") + "\n")
		for _, table := range texts(t, db, ownTables) {
			columns := texts(t, db, "SELECT 'quote(\"' || name || '\")' FROM pragma_table_info('"+table+"') ORDER BY cid")
			where := ""
			if table == "meta" {
				where = " WHERE name <> 'clean'"
			}
			b.WriteString(table + "\n" + strings.Join(texts(t, db, "SELECT "+strings.Join(columns, " || ' ' || ")+" FROM "+table+where+" ORDER BY 1"), "\n") + "\n")
		}
		if err := db.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
			t.Fatal(err)
		}
	})
	return version, b.String()
}

// undisturbed tells the state of each version that a migration from one comes through,
// and its number of statements. What a version makes is filled before the next one.
func undisturbed(t *testing.T, from int) (states map[int]string, statements, last int) {
	t.Helper()
	path := older(t, from)
	states = map[int]string{}
	version, text := state(t, path)
	states[version] = text
	s, err := sqlite.OpenFault(t.Context(), sqlite.Options{Path: path, Migrate: true}, func(n int) {
		statements = n
		now, _, err := sqlite.Version(t.Context(), path)
		if err != nil {
			t.Error(err)
		}
		if now > version { // right after its commit, when nobody writes
			fill(t, path)
			version, states[now] = state(t, path)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, path)
	last, text = state(t, path)
	states[last] = text
	return states, statements, last
}

// TestKill_migration kills a migrating process before each statement and each commit of
// all migrations: the schema and all data are those of the last version that was reached
// whole, and the next process goes on (F40).
func TestKill_migration(t *testing.T) {
	for _, from := range []int{0, 1} {
		states, statements, last := undisturbed(t, from)
		path := older(t, from)
		version, killed := from, 0
		for n, ended := 1, false; !ended; n++ {
			if ended = len(runChild(t, path, "STORE_CHILD_MIGRATES=1", "STORE_CHILD_DIES="+strconv.Itoa(n))) > 0; !ended {
				killed++
			}
			now, text := state(t, path)
			if now > version {
				fill(t, path) // its tables, which a process left empty
				version, text = state(t, path)
				n = 0
			}
			storetest.Same(t, fmt.Sprintf("from version %d, killed at statement %d, version %d", from, n, now), text, states[version])
		}
		if version != last || killed < statements {
			t.Errorf("version %d, killed %d times; want version %d, killed at least once at each of %d statements", version, killed, last, statements)
		}
		t.Logf("from version %d: killed %d times at %d statements", from, killed, statements)
		s := openAt(t, path)
		put(t, s, 5)
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
