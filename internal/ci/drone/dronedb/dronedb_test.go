package dronedb_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/askhttp"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/drone/droneapi"
	"github.com/cimeter/cimeter/internal/ci/drone/dronedb"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/storetest"
)

const address = "https://Drone.example.com:8443/"

// server is started by the first test that needs it.
var server = sync.OnceValues(storetest.StartPostgres)

var started bool

func TestMain(m *testing.M) {
	code := m.Run()
	if started {
		if p, err := server(); err == nil {
			p.Stop()
		}
	}
	if mariadbStarted {
		if m, err := mariadb(); err == nil {
			m.stop()
		}
	}
	os.Exit(code)
}

// The columns of Drone's migrations 002, 004 and 005, those that are read and the
// ones beside them that an insert needs. As text both databases take them.
const schema = `
CREATE TABLE repos (repo_id INTEGER PRIMARY KEY, repo_slug VARCHAR(250) UNIQUE);
CREATE TABLE builds (build_id INTEGER PRIMARY KEY, build_repo_id INTEGER, build_number INTEGER, build_status VARCHAR(50), build_event VARCHAR(50),
 build_after VARCHAR(50), build_ref VARCHAR(500), build_target VARCHAR(250), build_started INTEGER, build_finished INTEGER, build_created INTEGER,
 build_updated INTEGER, build_version INTEGER, UNIQUE(build_repo_id, build_number));
CREATE INDEX ix_build_incomplete ON builds (build_status) WHERE build_status IN ('pending', 'running');
CREATE TABLE stages (stage_id INTEGER PRIMARY KEY, stage_repo_id INTEGER, stage_build_id INTEGER, stage_number INTEGER, stage_kind VARCHAR(50),
 stage_type VARCHAR(50), stage_name VARCHAR(100), stage_status VARCHAR(50), stage_error VARCHAR(500), stage_os VARCHAR(50), stage_arch VARCHAR(50),
 stage_machine VARCHAR(500), stage_started INTEGER, stage_stopped INTEGER, stage_created INTEGER, stage_updated INTEGER, stage_version INTEGER,
 stage_depends_on TEXT, stage_labels TEXT, UNIQUE(stage_build_id, stage_number));
CREATE INDEX ix_stages_build ON stages (stage_build_id);
INSERT INTO repos VALUES (3, 'Org/app');
INSERT INTO builds VALUES (40, 3, 17, 'running', 'push', '7e4d', 'refs/heads/main', 'main', 1796022600, 0, 1796022580, 1796022600, 2);
INSERT INTO builds VALUES (41, 3, 18, 'pending', 'tag', '8a8a', 'refs/tags/v1.0', 'v1.0', 0, 0, 1796022590, 1796022590, 1);
INSERT INTO stages VALUES (71, 3, 40, 1, 'pipeline', 'docker', 'default', 'running', '', 'linux', 'amd64', 'ci-7', 1796022600, 0, 1796022580, 1796022600, 3, 'null', 'null');
INSERT INTO stages VALUES (72, 3, 40, 2, 'pipeline', 'docker', 'deploy', 'waiting_on_dependencies', NULL, 'linux', 'amd64', NULL, 0, 0, 1796022580, 1796022580, 1, '["default"]', '');
INSERT INTO stages VALUES (75, 3, 41, 1, 'pipeline', 'docker', 'default', 'pending', '', 'linux', 'arm64', '', 0, 0, 1796022590, 1796022590, 1, NULL, '{"pool":"big","disk":"ssd"}');
`

// each runs a test with a database of each kind; exec changes it, as Drone would.
func each(t *testing.T, test func(t *testing.T, address string, exec func(query string))) {
	t.Run("sqlite", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "database.sqlite")
		test(t, "sqlite://"+file, writer(t, "sqlite", file))
	})
	t.Run("postgres", func(t *testing.T) {
		started = true
		p, err := server()
		storetest.NeedPostgres(t, err)
		url := p.Database(t)
		test(t, url, writer(t, "pgx", url))
	})
	t.Run("mariadb", func(t *testing.T) {
		address, root := mariadbDatabase(t)
		test(t, address, writer(t, "mysql", root))
	})
}

func writer(t *testing.T, driver, name string) func(string) {
	t.Helper()
	db, err := sql.Open(driver, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	exec := func(query string) {
		t.Helper()
		for _, q := range strings.Split(query, ";\n") {
			if strings.TrimSpace(q) == "" {
				continue
			}
			if _, err := db.ExecContext(context.Background(), q); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
	}
	if driver == "mysql" { // has no partial indexes
		exec(strings.Replace(schema, " WHERE build_status IN ('pending', 'running')", "", 1))
	} else {
		exec(schema)
	}
	return exec
}

func open(t *testing.T, where string) *dronedb.DB {
	t.Helper()
	d, err := dronedb.Open(dronedb.Options{URL: address, Address: func() (string, error) { return where + "\n", nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// The database tells of the same builds what the API does, word for word.
func TestPollAsTheAPI(t *testing.T) {
	s := httptest.NewServer(&citest.Folder{Dir: "../droneapi/testdata/server"})
	defer s.Close()
	asker, err := askhttp.New(askhttp.Options{URL: s.URL, Token: func() (string, error) { return citest.Token, nil }})
	if err != nil {
		t.Fatal(err)
	}
	c, err := droneapi.New(droneapi.Options{URL: address, Ask: asker})
	if err != nil {
		t.Fatal(err)
	}
	want, err := c.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, where string, exec func(string)) {
		got, err := open(t, where).Poll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		byKey := func(a, b cimeter.Job) int { return strings.Compare(a.Key, b.Key) }
		slices.SortFunc(got.Jobs, byKey)
		slices.SortFunc(want.Jobs, byKey)
		if !reflect.DeepEqual(got.Jobs, want.Jobs) || !got.WholeJobs {
			t.Errorf("the database tells, whole %v\n%+v: want what the API does\n%+v", got.WholeJobs, got.Jobs, want.Jobs)
		}
	})
}

func statuses(r queue.Report) map[string]cimeter.JobStatus {
	m := map[string]cimeter.JobStatus{}
	for _, j := range r.Jobs {
		m[strings.TrimPrefix(j.Key, "drone/drone.example.com:8443/Org/app/")] = j.Status
	}
	return m
}

// What ended is told of once, also what began and ended between two polls; a
// build that waits for approval is told of as long as it does.
func TestPollEnds(t *testing.T) {
	each(t, func(t *testing.T, where string, exec func(string)) {
		d := open(t, where)
		for _, step := range []struct {
			change string
			want   map[string]cimeter.JobStatus
		}{
			{"", map[string]cimeter.JobStatus{"17/1": "running", "17/2": "blocked", "18/1": "waiting"}},
			{`UPDATE stages SET stage_status = 'failure', stage_stopped = 1796022700 WHERE stage_id = 71;
UPDATE stages SET stage_status = 'skipped' WHERE stage_id = 72;
UPDATE builds SET build_status = 'failure' WHERE build_id = 40;
INSERT INTO builds VALUES (42, 3, 19, 'killed', 'push', 'aa', 'refs/heads/main', 'main', 1, 2, 1796022600, 1, 1);
INSERT INTO stages VALUES (76, 3, 42, 1, 'pipeline', 'docker', 'default', 'killed', '', 'linux', 'amd64', 'ci-7', 1796022601, 1796022602, 1796022600, 1, 3, '', '');
INSERT INTO builds VALUES (43, 3, 20, 'blocked', 'pull_request', 'bb', 'refs/pull/4/head', 'main', 0, 0, 1796022600, 1, 1);
INSERT INTO stages VALUES (77, 3, 43, 1, 'pipeline', 'docker', 'default', 'blocked', '', 'linux', 'amd64', '', 0, 0, 1796022600, 1, 3, '', '')`,
				map[string]cimeter.JobStatus{"17/1": "failed", "17/2": "skipped", "18/1": "waiting", "19/1": "canceled", "20/1": "blocked"}},
			{"", map[string]cimeter.JobStatus{"18/1": "waiting", "20/1": "blocked"}},
			{"UPDATE builds SET build_status = 'declined' WHERE build_id = 43;\nUPDATE stages SET stage_status = 'declined' WHERE stage_id = 77",
				map[string]cimeter.JobStatus{"18/1": "waiting", "20/1": "canceled"}},
			{"DELETE FROM stages;\nDELETE FROM builds", map[string]cimeter.JobStatus{}},
		} {
			exec(step.change)
			r, err := d.Poll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := statuses(r); !reflect.DeepEqual(got, step.want) || !r.WholeJobs {
				t.Errorf("after %.60q: %v, whole %v: want %v", step.change, got, r.WholeJobs, step.want)
			}
		}
	})
}

func TestBuilds(t *testing.T) {
	each(t, func(t *testing.T, where string, exec func(string)) {
		exec("INSERT INTO builds VALUES (1, 3, 1, 'success', 'push', 'aa', 'refs/heads/main', 'main', 1, 2, 1700000000, 1, 1);\nINSERT INTO stages VALUES (1, 3, 1, 1, 'pipeline', 'docker', 'default', 'success', '', 'linux', 'amd64', 'ci-7', 1, 2, 1700000000, 1, 3, '', '')")
		d := open(t, where)
		jobs, next, err := d.Builds(t.Context(), time.Unix(1790000000, 0), "")
		if err != nil || next != "40" || len(jobs) != 3 {
			t.Fatalf("%d jobs, next %q, %v: want 3 and 40", len(jobs), next, err)
		}
		if jobs, next, err = d.Builds(t.Context(), time.Unix(1790000000, 0), next); err != nil || next != "" || len(jobs) != 0 {
			t.Errorf("%d jobs, next %q, %v: want the end", len(jobs), next, err)
		}
		if jobs, _, err = d.Builds(t.Context(), time.Unix(0, 0), "40"); err != nil || len(jobs) != 1 {
			t.Errorf("%d jobs, %v: want the old one", len(jobs), err)
		}
		if _, _, err := d.Builds(t.Context(), time.Time{}, "1; DROP TABLE builds"); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("cursor of SQL: %v", err)
		}
	})
}

// Whatever is wrong with the database is an error without its password, and the
// next poll tries anew.
func TestFaults(t *testing.T) {
	each(t, func(t *testing.T, where string, exec func(string)) {
		d := open(t, where)
		exec("ALTER TABLE stages RENAME TO other")
		var source *queue.SourceError
		if r, err := d.Poll(t.Context()); !errors.As(err, &source) || len(r.Jobs) > 0 || r.WholeJobs {
			t.Errorf("without stages: %+v, %v", r, err)
		}
		exec("ALTER TABLE other RENAME TO stages")
		if r, err := d.Poll(t.Context()); err != nil || len(r.Jobs) != 3 {
			t.Errorf("after it is mended: %d jobs, %v", len(r.Jobs), err)
		}
	})
	garbage := filepath.Join(t.TempDir(), "x.sqlite")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none.sqlite")
	for _, where := range []string{
		"", "oracle://u:geheim@127.0.0.1/x", "mysql://u:geheim@127.0.0.1:1/x", "mysql://u:geheim@tcp(127.0.0.1:1)/x", "mysql://u:geheim@127.0.0.1:1", "mysql://u:geheim@[bad/x", "mysql://u:geheim@tcp(127.0.0.1/x",
		"mysql://u:geheim@127.0.0.1/x?nonsense=geheim", "postgres://u:geheim@[bad", "postgres://u:geheim@127.0.0.1:1/x?sslmode=disable", "sqlite://" + none, garbage,
	} {
		r, err := open(t, where).Poll(t.Context())
		var source *queue.SourceError
		if !errors.As(err, &source) || len(r.Jobs) > 0 || r.WholeJobs || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %+v, %v", where, r, err)
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a database was made")
	}
	if _, err := dronedb.Open(dronedb.Options{URL: "x"}); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("address x: %v", err)
	}
}

// Nothing can be written through it: the file is the same afterwards.
func TestReadOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "database.sqlite")
	writer(t, "sqlite", file)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, file).Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("the file changed")
	}
}
