package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/storetest"
)

// A server that is fed by webhooks and one that cannot be asked: what the first sends
// is in the queue and in the metrics, the other is stale and says why, and no secret
// is told to anybody.
func TestServer_ciServers(t *testing.T) {
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	defer away.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const secret, token = "hook-secret-0123456789", "glpat-0123456789abcdefghij"
	cancels := write("cancel", "cmt_cancels\n")
	conf := write("c.yaml", fmt.Sprintf(`
access: {tokens_file: %s}
ci_servers:
  - {kind: gitlab, url: https://gitlab.example.com, hook_secret_file: %s}
  - {kind: gitlab, url: %s, name: away, token_file: %s, interval: 1s}
`, write("tokens", fmt.Sprintf("cancel me %x\n", sha256.Sum256([]byte("cmt_cancels")))), write("secret", secret), away.URL, write("token", token)))
	checked, err := exec.Command("cimeter", "check", "--config", conf).CombinedOutput()
	if err != nil || !strings.Contains(string(checked), "not asked (no token_file); webhooks at /api/v1/hooks/gitlab") || !strings.Contains(string(checked), "told nothing now: ") ||
		!strings.Contains(string(checked), "tokens                        ok: 1\n") ||
		strings.Contains(string(checked), token) {
		t.Errorf("check: %v\n%s", err, checked)
	}
	p := startDaemon(t, "server", "--config", conf, "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	send := func(id, body, with string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.base+"/api/v1/hooks/gitlab", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{"Content-Type": "application/json", "X-Gitlab-Event": "Job Hook", "X-Gitlab-Token": with, "Idempotency-Key": id} {
			r.Header.Set(k, v)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || strings.Contains(string(text), secret) {
			t.Errorf("%s, %v", text, err)
		}
		return answer.StatusCode
	}
	hook := func(id int, status string) string {
		started := "null"
		if status == "running" {
			started = fmt.Sprintf("%q", time.Now().UTC().Add(-time.Minute).Format("2006-01-02 15:04:05 UTC"))
		}
		return fmt.Sprintf(`{"object_kind":"build","build_id":%d,"build_name":"test","build_stage":"test","build_status":%q,"build_created_at":%q,"build_started_at":%s,
			"build_finished_at":null,"pipeline_id":991,"project":{"path_with_namespace":"group/app","web_url":"https://gitlab.example.com/group/app"},"runner":null}`,
			id, status, time.Now().UTC().Add(-2*time.Minute).Format("2006-01-02 15:04:05 UTC"), started)
	}
	for _, c := range []struct {
		id, body, with string
		want           int
	}{
		{"1", hook(4242, "running"), secret, 200},
		{"2", hook(4242, "pending"), secret, 200}, // late
		{"3", hook(4243, "pending"), secret, 200},
		{"3", hook(4243, "pending"), secret, 200},
		{"4", hook(4244, "pending"), "forged", 401},
		{"5", "<html>", secret, 400},
	} {
		if got := send(c.id, c.body, c.with); got != c.want {
			t.Errorf("webhook %s: %d: want %d", c.id, got, c.want)
		}
	}
	for path, want := range map[string][]string{
		"/api/v1/work/started": {`"key":"gitlab/gitlab.example.com/4242"`, `"total":1`, `"stale":true`, `"reason":"unavailable"`, `"status":502`},
		"/api/v1/work/pending": {`"key":"gitlab/gitlab.example.com/4243"`, `"total":1`},
		"/metrics": {
			`cimeter_queue_builds{server="gitlab.example.com",status="waiting"} 1`, `cimeter_queue_builds{server="gitlab.example.com",status="running"} 1`,
			`cimeter_server_hooks_total{ci="gitlab",result="duplicate"} 1`, `cimeter_server_hooks_total{ci="gitlab",result="unverified"} 1`,
			`cimeter_server_hooks_total{ci="gitlab",result="unreadable"} 1`, `cimeter_server_source_failures_total{server="away",reason="unavailable"}`,
		},
	} {
		for _, w := range want {
			p.get(path, "", w)
		}
	}
	// No setting lets anybody cancel: that is said, to who may ask.
	cancel, err := exec.Command("cimeter", "queue", "cancel", "4243", "--yes", "--server", p.base, "--cancel-token-file", cancels).CombinedOutput()
	if err == nil || !strings.Contains(string(cancel), "gitlab.example.com has no token that may: want ci_servers.cancel_token_file") {
		t.Errorf("cancel: %v, %s", err, cancel)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if log := p.log.String(); strings.Contains(log, token) || strings.Contains(log, secret) || !strings.Contains(log, "CI server told nothing") {
		t.Errorf("the log:\n%s", log)
	}
}

// Of two servers on one PostgreSQL one asks the CI server; when it is killed the other
// does.
func TestServer_oneAsksCIServers(t *testing.T) {
	pg, err := storetest.StartPostgres()
	storetest.NeedPostgres(t, err)
	defer pg.Stop()
	asked := make(chan string, 1000) // the tokens of who asks
	drone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "):
		default:
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "[]")
	}))
	defer drone.Close()
	database, dir := pg.Database(t), t.TempDir()
	servers := map[string]*daemon{}
	for _, token := range []string{"first", "second"} {
		secret, conf := filepath.Join(dir, token), filepath.Join(dir, token+".yaml")
		if err := os.WriteFile(secret, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(conf, []byte("ci_servers:\n  - {kind: drone, url: "+drone.URL+", name: drone, token_file: "+secret+", interval: 1s}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		servers[token] = startDaemon(t, "server", "--config", conf, "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--database", database)
	}
	leader := <-asked
	other := map[string]string{"first": "second", "second": "first"}[leader]
	servers[leader].get("/api/v1/work/pending", "", `"waiting":0`)
	servers[other].get("/api/v1/work/pending", "", `"elsewhere":true`)
	for range 3 {
		if who := <-asked; who != leader {
			t.Fatalf("%s asks beside %s", who, leader)
		}
	}
	_ = servers[leader].end(syscall.SIGKILL)
	for who := range asked {
		if who == other {
			break
		}
	}
	servers[other].get("/api/v1/work/pending", "", `"waiting":0`)
	if err := servers[other].end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
