package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/github"
	"github.com/cimeter/cimeter/internal/wire"
)

// A job of GitHub with a name of its own is one build from its webhook and its agent: in
// the queue while it runs, and in the store when it has ended.
func TestServer_joinsGitHub(t *testing.T) {
	dir := t.TempDir()
	secret, conf := filepath.Join(dir, "secret"), filepath.Join(dir, "c.yaml")
	for path, text := range map[string]string{
		secret: "hook-secret-0123456789",
		conf:   fmt.Sprintf("ci_servers:\n  - {kind: github, url: https://github.com, hook_secret_file: %s}\n", secret),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tokens := filepath.Join(dir, "tokens")
	pushing, reading := newToken(t, tokens, "push"), newToken(t, tokens, "read")
	p := startDaemon(t, "server", "--config", conf, "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--tokens", tokens)
	post := func(path, kind string, body []byte, header map[string]string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.base+path, strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", kind)
		for name, v := range header {
			r.Header.Set(name, v)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode/100 != 2 {
			t.Fatalf("POST %s: %s", path, answer.Status)
		}
	}
	began := time.Now().Add(-time.Minute).Truncate(time.Second).UTC()
	hook := func(status string, change map[string]any) {
		t.Helper()
		j := map[string]any{"id": 901, "run_id": 77, "run_attempt": 2, "name": "Unit tests (Ubuntu)", "status": status, "labels": []string{"self-hosted"}, "html_url": "https://github.com/Org/app/actions/runs/77/job/901",
			"runner_id": 31, "runner_name": "big-1", "created_at": began.Add(-12 * time.Second), "started_at": began}
		for name, v := range change {
			j[name] = v
		}
		body, err := json.Marshal(map[string]any{"action": status, "workflow_job": j, "repository": map[string]any{"full_name": "Org/app"}})
		if err != nil {
			t.Fatal(err)
		}
		mac := hmac.New(sha256.New, []byte("hook-secret-0123456789"))
		mac.Write(body)
		post("/api/v1/hooks/github", "application/json", body, map[string]string{"X-GitHub-Event": "workflow_job", "X-GitHub-Delivery": status, "X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil))})
	}
	build, ok := github.OfProcess(map[string]string{
		"GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "Org/app", "GITHUB_RUN_ID": "77", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_RUN_NUMBER": "5",
		"GITHUB_JOB": "unit", "GITHUB_ACTION": "__run", "RUNNER_NAME": "big-1",
	})
	if !ok {
		t.Fatal("the agent does not know the build")
	}
	b := build.Build
	hook("in_progress", nil)
	beat, err := json.Marshal(wire.Heartbeat{Agent: "a1", Machine: "ci-7", IntervalSeconds: 60, Running: []wire.Running{{
		Key: b.Key, CI: b.CI, Server: b.Server, Project: b.Project, Number: b.Number, Name: b.Name, Attempt: b.Attempt, Pipeline: b.Pipeline, Runner: b.Runner, Stage: "__run", StartedAt: began.Add(3 * time.Second),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	post("/api/v1/heartbeat", "application/json", beat, map[string]string{"Authorization": "Bearer " + pushing})
	p.get("/api/v1/work/started", reading, `"`+b.Key+`"`)
	p.get("/api/v1/work/started", reading, `"machine":"ci-7"`)
	record, err := json.Marshal(&cimeter.Record{Schema: cimeter.RecordSchema, Build: b, Complete: true, StartedAt: began.Add(3 * time.Second), EndedAt: began.Add(40 * time.Second), Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{},
		Usage: cimeter.Usage{WallSeconds: 37, CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(12.5)}}})
	if err != nil {
		t.Fatal(err)
	}
	post("/api/v1/records", wire.ContentType(), append(record, '\n'), map[string]string{"Authorization": "Bearer " + pushing})
	hook("completed", map[string]any{"conclusion": "failure", "completed_at": began.Add(41 * time.Second)})
	p.get("/api/v1/builds/"+b.Key, reading, `"result":"failed"`)
	p.get("/api/v1/builds/"+b.Key, reading, `"number":"901"`)
	p.get("/api/v1/builds/github/github.com/Org/app/77/job/901", reading, `"total":12.5`)
	p.get("/api/v1/builds?project=Org/app", reading, `"attempt":2`)
	p.get("/metrics", reading, "cimeter_server_builds_unjoined_total 0")
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
