package dronedb_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// mariadb is started by the first test that needs it.
var mariadb = sync.OnceValues(startMariaDB)

var mariadbStarted bool

// mariaDB is a real MariaDB server with files of its own, on a unix socket.
type mariaDB struct {
	dir string
	cmd *exec.Cmd
	log bytes.Buffer
	n   int
}

func (m *mariaDB) socket() string { return filepath.Join(m.dir, "s") }

func startMariaDB() (*mariaDB, error) {
	bin := "/usr/sbin/mariadbd"
	if _, err := os.Stat(bin); err != nil {
		return nil, fmt.Errorf("MariaDB is not installed: apt-get install mariadb-server-core: %w", err)
	}
	m := &mariaDB{}
	var err error
	if m.dir, err = os.MkdirTemp("", "maria"); err != nil { // a short path: that of its socket is bounded
		return nil, err
	}
	user := []string{}
	if os.Getuid() == 0 {
		user = []string{"--user=root"}
	}
	data := "--datadir=" + filepath.Join(m.dir, "data")
	if out, err := exec.Command("mariadb-install-db", append([]string{"--no-defaults", data, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"}, user...)...).CombinedOutput(); err != nil {
		os.RemoveAll(m.dir)
		return nil, fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	m.cmd = exec.Command(bin, append([]string{"--no-defaults", data, "--socket=" + m.socket(), "--skip-networking", "--pid-file=" + filepath.Join(m.dir, "pid"),
		"--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0"}, user...)...)
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	if err := m.cmd.Start(); err != nil {
		m.stop()
		return nil, err
	}
	db, err := sql.Open("mysql", "root@unix("+m.socket()+")/")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if err = db.Ping(); err == nil {
			return m, nil
		}
		if time.Now().After(end) {
			m.stop()
			return nil, fmt.Errorf("mariadbd does not answer: %w\n%s", err, m.log.String())
		}
	}
}

func (m *mariaDB) stop() {
	if m.cmd != nil && m.cmd.Process != nil {
		_ = m.cmd.Process.Signal(syscall.SIGTERM)
		_ = m.cmd.Wait()
	}
	os.RemoveAll(m.dir)
}

// password has what an address must escape.
const password = "ge/he:im@("

// mariadbDatabase makes a database: its address for a user who may read those tables
// alone that the documentation names, and the data source of one who may write.
func mariadbDatabase(t *testing.T) (address, root string) {
	t.Helper()
	mariadbStarted = true
	m, err := mariadb()
	if err != nil {
		t.Fatal(err)
	}
	m.n++
	name := fmt.Sprintf("drone%d", m.n)
	db, err := sql.Open("mysql", "root@unix("+m.socket()+")/")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range []string{
		"CREATE DATABASE " + name, "CREATE USER IF NOT EXISTS reader@localhost IDENTIFIED BY '" + password + "'", "GRANT SELECT ON " + name + ".* TO reader@localhost",
	} {
		if _, err := db.Exec(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	u := url.URL{Scheme: "mysql", User: url.UserPassword("reader", password), Path: "/" + name, RawQuery: url.Values{"socket": {m.socket()}}.Encode()}
	return u.String(), "root@unix(" + m.socket() + ")/" + name
}

// Drone's own data source will do, and nothing is written even by one who may.
func TestMySQL_data_source(t *testing.T) {
	address, root := mariadbDatabase(t)
	exec := writer(t, "mysql", root)
	m, err := mariadb()
	if err != nil {
		t.Fatal(err)
	}
	name := root[strings.LastIndexByte(root, '/')+1:]
	for _, where := range []string{address, "mysql://" + root + "?parseTime=true", "mysql://reader:" + password + "@unix(" + m.socket() + ")/" + name} {
		d := open(t, where)
		r, err := d.Poll(t.Context())
		if err != nil || len(r.Jobs) != 3 || !r.WholeJobs {
			t.Errorf("%s: %+v, %v", where, r, err)
		}
	}
	exec("CREATE TABLE log (q TEXT);\nSET GLOBAL log_output = 'TABLE';\nSET GLOBAL general_log = 1")
	d := open(t, "mysql://"+root)
	if _, err := d.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec("SET GLOBAL general_log = 0")
	db, err := sql.Open("mysql", root)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE command_type IN ('Query', 'Execute')")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	readOnly := false
	for rows.Next() {
		var q string
		if err := rows.Scan(&q); err != nil {
			t.Fatal(err)
		}
		switch verb, _, _ := strings.Cut(strings.TrimSpace(q), " "); {
		case strings.Contains(strings.ToUpper(q), "READ ONLY"):
			readOnly = true
		case verb == "SELECT" && !readOnly:
			t.Errorf("asks outside of a transaction that may only read: %.80s", q)
		}
	}
	if !readOnly || rows.Err() != nil {
		t.Errorf("no transaction that may only read: %v", rows.Err())
	}
}
