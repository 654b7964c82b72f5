package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/push"
	"github.com/cimeter/cimeter/internal/spool"
	"github.com/cimeter/cimeter/internal/tally"
)

// daemon is a real cimeter that listens.
type daemon struct {
	t    *testing.T
	cmd  *exec.Cmd
	base string // http://127.0.0.1:PORT

	mu  sync.Mutex
	log bytes.Buffer
	eof chan struct{}
}

// startDaemon runs cimeter and waits until it listens.
func startDaemon(t *testing.T, args ...string) *daemon {
	t.Helper()
	p := &daemon{t: t, cmd: exec.Command("cimeter", args...), eof: make(chan struct{})}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	address := make(chan string, 1)
	go func() {
		defer close(p.eof)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.log, lines.Text())
			p.mu.Unlock()
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				address <- m[1]
			}
		}
	}()
	select {
	case a := <-address:
		p.base = "http://" + a
	case <-p.eof:
		t.Fatalf("it ended before it listened:\n%s", p.log.String())
	}
	return p
}

func (p *daemon) end(s syscall.Signal) error {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	<-p.eof
	return p.cmd.Wait()
}

// get asks until the answer holds want: what is asked for may be on its way.
func (p *daemon) get(path, token, want string) {
	p.t.Helper()
	deadline := time.After(time.Minute)
	for {
		r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.base+path, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			p.t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			p.t.Fatal(err)
		}
		if strings.Contains(string(b), want) {
			return
		}
		select {
		case <-deadline:
			p.t.Fatalf("%s: %d %s: want %s", path, resp.StatusCode, b, want)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// newToken makes a token by the command and returns it.
func newToken(t *testing.T, file, role string) string {
	t.Helper()
	out, err := exec.Command("cimeter", "token", "--role", role, "--name", role, "--tokens", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func finished(n int) *cimeter.Record {
	at := time.Date(2026, 11, 30, 12, 0, n, 0, time.UTC)
	r := &cimeter.Record{Schema: cimeter.RecordSchema, StartedAt: at.Add(-time.Minute), EndedAt: at, Complete: true, Result: "success"}
	r.Key, r.CI, r.Project, r.Machine = fmt.Sprintf("gitlab/gitlab.example.com/%d", n), "gitlab", "group/app", "ci-7"
	r.Usage.WallSeconds = 60
	return r
}

// A record that an agent finishes is pushed, stored, counted and shown; with a
// wrong token it waits (F25); it is there after kill -9 and a restart.
func TestServer(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	pushing, reading := newToken(t, tokens, "push"), newToken(t, tokens, "read")
	args := []string{"server", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--tokens", tokens}
	p := startDaemon(t, args...)

	queue, err := spool.Open(spool.Options{Dir: filepath.Join(dir, "spool")})
	if err != nil {
		t.Fatal(err)
	}
	defer queue.Close()
	send := func(token string, records ...*cimeter.Record) (stop func() *push.Pusher) {
		for _, r := range records {
			line, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := queue.Add(r.Key, line); err != nil {
				t.Fatal(err)
			}
		}
		way, err := push.NewSender(push.SenderOptions{URL: p.base, Agent: queue.ID(), Token: func() (string, error) { return token, nil }})
		if err != nil {
			t.Fatal(err)
		}
		pusher := push.New(push.Options{Server: way, Spool: queue, Tally: tally.New(tally.Options{}), Machine: "ci-7"}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- pusher.Run(ctx) }()
		return func() *push.Pusher {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			way.Close()
			return pusher
		}
	}
	stop := send(reading, finished(1), finished(2))
	p.get("/metrics", reading, `cimeter_server_rejected_total{reason="forbidden"}`)
	if err := stop().Ready(); queue.Stats().Records != 2 {
		t.Errorf("%+v, ready: %v: want both to wait", queue.Stats(), err)
	}
	stop = send(pushing)
	p.get("/api/v1/builds", reading, finished(1).Key)
	p.get("/api/v1/builds", reading, finished(2).Key)
	p.get("/api/v1/agents", reading, `"machine":"ci-7"`)
	p.get("/metrics", reading, `cimeter_server_records_total{status="stored"} 2`)
	p.get("/metrics", reading, `cimeter_builds_total{ci="gitlab",project="group/app",machine="ci-7",result="success"} 2`)
	p.get("/readyz", "", "ready")
	stop()
	_ = p.end(syscall.SIGKILL)

	p = startDaemon(t, args...)
	stop = send(pushing, finished(2), finished(3))
	p.get("/api/v1/builds", reading, finished(3).Key)
	p.get("/api/v1/builds", reading, finished(1).Key)
	p.get("/api/v1/summary", reading, `"builds":3,`)
	p.get("/metrics", reading, `cimeter_server_records_total{status="duplicate"} 1`)
	stop()
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("after SIGTERM: %v: want exit code 0", err)
	}
	if log := p.log.String(); strings.Contains(log, "cmt_") {
		t.Errorf("a token is in the log:\n%s", log)
	}
}

// Agent and server in one process: the agent of it is known to the server.
func TestUp(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "cimeter.yaml")
	if err := os.WriteFile(file, []byte("agent: {docker: {enabled: false}, processes: 'off'}\nmachine: here\nserver: {heartbeat: 1s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startDaemon(t, "up", "--config", file, "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	p.get("/api/v1/agents", "", `"machine":"here"`)
	p.get("/readyz", "", "ready")
	p.get("/api/v1/builds", "", `"builds":[]`)
	p.get("/metrics", "", "cimeter_server_heartbeats_total")
	p.get("/metrics", "", "cimeter_agent_rounds_total")
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, p.log.String())
	}
}
