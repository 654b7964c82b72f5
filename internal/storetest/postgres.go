package storetest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Postgres is a real PostgreSQL server with an empty cluster of its own, on
// loopback and a free port.
type Postgres struct {
	dir, bin string
	port     int
	login    *syscall.Credential
	cmd      *exec.Cmd
	end      chan struct{} // closed: the thread that started it may end
	log      bytes.Buffer
	n        atomic.Int64
}

// StartPostgres starts a server; the caller calls Stop. It waits for its disk
// as a real one does.
func StartPostgres() (p *Postgres, err error) {
	p = &Postgres{}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return nil, fmt.Errorf("PostgreSQL is not installed: apt-get install postgresql")
	}
	slices.Sort(found)
	p.bin = filepath.Dir(found[len(found)-1])
	// A short path: that of its socket is bounded.
	if p.dir, err = os.MkdirTemp("", "pg"); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 { // it refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		p.login = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(p.dir, uid, gid); err != nil {
			return nil, err
		}
	}
	initdb := p.command("initdb", "-D", p.data(), "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C")
	if out, err := initdb.CombinedOutput(); err != nil {
		os.RemoveAll(p.dir)
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	if err := p.Start(); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *Postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.login}
	return cmd
}

// Start starts the server and waits until it answers.
func (p *Postgres) Start() error {
	p.cmd = p.command("postgres", "-D", p.data(), "-k", p.dir, "-h", "127.0.0.1", "-p", strconv.Itoa(p.port),
		"-c", "max_connections=60", "-c", "shared_buffers=256MB", "-c", "max_wal_size=2GB")
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	// It ends with this process, even when that is killed: the signal comes when
	// the thread ends that started it.
	p.cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	started, end := make(chan error), make(chan struct{})
	p.end = end
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread() // it may have started others that live on
		started <- p.cmd.Start()
		<-end
	}()
	if err := <-started; err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if p.command("pg_isready", "-q", "-h", "127.0.0.1", "-p", strconv.Itoa(p.port)).Run() == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("postgres does not start: %s", p.log.String())
		}
	}
}

// Kill ends the server's processes at once, as a crash does.
func (p *Postgres) Kill() {
	p.cmd.Process.Signal(syscall.SIGQUIT)
	p.cmd.Wait()
	close(p.end)
}

// Stop ends the server and removes what it kept.
func (p *Postgres) Stop() {
	if p.cmd != nil && p.cmd.Process != nil && p.cmd.ProcessState == nil {
		p.Kill()
	}
	os.RemoveAll(p.dir)
}

// Database makes a new database and returns its URL.
func (p *Postgres) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test%d", p.n.Add(1))
	if out, err := p.command("createdb", "-h", "127.0.0.1", "-p", strconv.Itoa(p.port), "-U", "postgres", name).CombinedOutput(); err != nil {
		t.Fatalf("createdb: %v\n%s", err, out)
	}
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", p.port, name)
}

// NeedPostgres skips the test, or fails it in CI, when the server cannot run.
func NeedPostgres(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}
