package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/server"
	"github.com/cimeter/cimeter/internal/store/postgres"
	"github.com/cimeter/cimeter/internal/store/sqlite"
	"github.com/cimeter/cimeter/internal/tally"
)

// TestMain is a server when the environment says so: a process that tests kill.
func TestMain(m *testing.M) {
	dir := os.Getenv("SERVER_CHILD_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := child(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child serves a store until SIGTERM and prints its address. At the step that
// SERVER_CHILD_KILL names it kills itself.
func child(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	kept, err := openStore(ctx, dir)
	if err != nil {
		return err
	}
	defer kept.Close()
	counts := tally.New(tally.Options{})
	role := server.New(server.Options{Store: kept, Tally: counts, Fault: func(step string) {
		if step == os.Getenv("SERVER_CHILD_KILL") {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}}, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	api := httpapi.New(httpapi.Options{Query: kept, Ingest: role, Agents: role.Agents, Metrics: prometheus.New(counts)})
	var wg sync.WaitGroup
	wg.Go(func() { role.Run(ctx) })
	err = httpapi.NewServer(api, nil).Serve(ctx, l, nil)
	wg.Wait()
	return err
}

// backEnd is what a child keeps builds in.
type backEnd interface {
	server.Store
	httpapi.Query
	Close() error
}

// openStore opens the PostgreSQL that SERVER_CHILD_DATABASE names, or a file in dir.
func openStore(ctx context.Context, dir string) (backEnd, error) {
	if url := os.Getenv("SERVER_CHILD_DATABASE"); url != "" {
		return postgres.Open(ctx, postgres.Options{URL: url, Migrate: true})
	}
	return sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(dir, "cimeter.db"), Migrate: true})
}

// process is a server that can be killed.
type process struct {
	cmd  *exec.Cmd
	addr string
	log  bytes.Buffer // to be read when it has ended
}

func startProcess(t *testing.T, dir, kill string, env ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(append(os.Environ(), env...), "SERVER_CHILD_DIR="+dir, "SERVER_CHILD_KILL="+kill)
	p.cmd.Stderr = &p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.end(syscall.SIGKILL)
		t.Fatalf("server did not start: %v\n%s", err, p.log.Bytes())
	}
	p.addr = strings.TrimSpace(line)
	return p
}

func (p *process) end(s os.Signal) {
	p.cmd.Process.Signal(s)
	p.cmd.Wait()
}

// moving sends every request to the address that is set: the server comes back
// at another port each time.
type moving struct {
	mu   sync.Mutex
	addr string
}

func (m *moving) set(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addr = addr
}

// RoundTrip implements http.RoundTripper.
func (m *moving) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	addr := m.addr
	m.mu.Unlock()
	if addr == "" {
		return nil, fmt.Errorf("server is away")
	}
	r = r.Clone(r.Context())
	r.URL.Host = addr
	return http.DefaultTransport.RoundTrip(r)
}

func record(n int) *cimeter.Record {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Second)
	r := &cimeter.Record{Schema: cimeter.RecordSchema, StartedAt: at.Add(-time.Minute), EndedAt: at, Complete: true, Result: "success", Gaps: []cimeter.Gap{}}
	r.Key, r.CI, r.Project, r.Name, r.Number, r.Machine = key(n), "gitlab", "group/app", "test", fmt.Sprint(n), "ci-7"
	r.Usage.WallSeconds = 60
	r.Usage.CPUSeconds.Total = cimeter.Some(1.5)
	r.Stages = []cimeter.Stage{{Name: "step_script", Attempt: 1, Boundary: cimeter.BoundaryContainer, StartedAt: r.StartedAt, EndedAt: at, Usage: r.Usage}}
	return r
}

func key(n int) string { return fmt.Sprintf("gitlab/gitlab.example.com/%d", n) }

// stored pages through all builds of a server and counts each key.
func stored(t *testing.T, addr string) map[string]int {
	t.Helper()
	rows := map[string]int{}
	next := ""
	for {
		resp, err := http.Get("http://" + addr + "/api/v1/builds?limit=500&cursor=" + next)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s %v", resp.StatusCode, b, err)
		}
		var page struct {
			Builds []cimeter.Record `json:"builds"`
			Next   string           `json:"next"`
		}
		if err := json.Unmarshal(b, &page); err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Builds {
			rows[r.Key]++
		}
		if next = page.Next; next == "" {
			return rows
		}
	}
}
