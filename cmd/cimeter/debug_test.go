package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/output/expvar"
	"github.com/cimeter/cimeter/internal/tally"
)

var debugging = regexp.MustCompile(`msg="debug endpoints are served" at=(\S+)`)

// answer returns status and body of a GET with that token.
func answer(t *testing.T, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestDebugEndpoints(t *testing.T) {
	const secret = "seeded-secret-7"
	t.Setenv("CIMETER_DEBUG_TOKEN", "")
	config := filepath.Join(t.TempDir(), "cimeter.yaml")
	// No build is looked for: the machine that runs this may have some of its own.
	if err := os.WriteFile(config, []byte("agent: {docker: {enabled: false}, processes: 'off'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"server"}, {"up", "--machine", secret[:6], "--config", config}, {"agent", "--config", config}} {
		t.Run(args[0], func(t *testing.T) {
			p := startDaemon(t, append(args, "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--debug.listen", "127.0.0.1:0")...)
			p.mu.Lock()
			m := debugging.FindStringSubmatch(p.log.String())
			p.mu.Unlock()
			if m == nil {
				t.Fatalf("no address of the debug endpoints in:\n%s", p.log.String())
			}
			if code, body := answer(t, "http://"+m[1]+"/debug/", ""); code != 200 || !strings.Contains(body, "/debug/vars") {
				t.Errorf("page: %d\n%s", code, body)
			}
			code, body := answer(t, "http://"+m[1]+"/debug/vars", "")
			var vars struct {
				Cmdline  []string
				Cimeter  map[string]json.RawMessage
				Memstats struct{ Sys uint64 }
				Queue    map[string]json.RawMessage
			}
			if err := json.Unmarshal([]byte(body), &vars); err != nil || code != 200 {
				t.Fatalf("vars: %d, %v", code, err)
			}
			if len(vars.Cmdline) != 1 || vars.Cimeter["cimeter_build_info"] == nil || vars.Memstats.Sys == 0 || string(vars.Queue["workerWorking"]) != "0" {
				t.Errorf("vars: %s", body)
			}
			if vars.Queue["queueLen"] != nil {
				t.Error("the length of the queue is told, which nobody knows")
			}
			// On the other listener there is nothing of it.
			for _, path := range []string{"/debug/", "/debug/vars", "/debug/pprof/", "/debug/pprof/heap"} {
				if code, body := answer(t, p.base+path, ""); code != 404 && strings.Contains(body, "pprof") {
					t.Errorf("%s on the main listener: %d", path, code)
				}
			}
			if err := p.end(syscall.SIGTERM); err != nil {
				t.Errorf("%v:\n%s", err, p.log.String())
			}
		})
	}
}

// An address that others reach wants a token, and the token is asked for.
func TestDebugEndpoints_token(t *testing.T) {
	args := []string{"server", "--listen", "127.0.0.1:0", "--debug.listen", "0.0.0.0:0", "--data", t.TempDir()}
	t.Setenv("CIMETER_DEBUG_TOKEN", "")
	out, err := exec.Command("cimeter", args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "want debug.token_file") {
		t.Errorf("%v: %s", err, out)
	}
	t.Setenv("CIMETER_DEBUG_TOKEN", "seeded-secret-7")
	p := startDaemon(t, args...)
	p.mu.Lock()
	m := debugging.FindStringSubmatch(p.log.String())
	p.mu.Unlock()
	if m == nil {
		t.Fatalf("no address of the debug endpoints in:\n%s", p.log.String())
	}
	base := "http://127.0.0.1:" + m[1][strings.LastIndex(m[1], ":")+1:]
	for token, want := range map[string]int{"": 401, "wrong": 401, "seeded-secret-7": 200} {
		if code, body := answer(t, base+"/debug/vars", token); code != want || strings.Contains(body, "seeded-secret-7") {
			t.Errorf("%q: %d, want %d", token, code, want)
		}
	}
	if err := p.end(syscall.SIGTERM); err != nil || strings.Contains(p.log.String(), "seeded-secret-7") {
		t.Errorf("%v:\n%s", err, p.log.String())
	}
}

// What CI servers tell of their queues is summed; what none tells stays absent.
func TestQueueTold(t *testing.T) {
	counts := tally.New(tally.Options{})
	if q := told(counts, expvar.Queue{Working: cimeter.Some(1)}); q.Length.Known || q.Workers.Known || q.Waiting.Known || q.Working.Value != 1 {
		t.Errorf("nobody told %+v", q)
	}
	for server, n := range map[string]float64{"a": 2, "b": 3} {
		counts.Value(catalog.QueueBuilds, server, "waiting").Set(n)
		counts.Value(catalog.QueueBuilds, server, "blocked").Set(100)
		counts.Value(catalog.Workers, server, "idle").Set(1)
		counts.Value(catalog.Workers, server, "busy").Set(n)
	}
	if q := told(counts, expvar.Queue{}); q.Length.Value != 5 || q.Workers.Value != 7 || q.Waiting.Value != 2 {
		t.Errorf("%+v: want 5 builds, 7 workers, 2 of them waiting", q)
	}
}
