package main

import (
	"context"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/config"
)

// The block of docs/identities.md has the API server asked, and a runner's container
// is of the job that it tells.
func TestRunnerJobs(t *testing.T) {
	conf, err := config.Parse("identities.md", []byte(block(t, "../../docs/identities.md", "agent:\n")))
	if err != nil {
		t.Fatal(err)
	}
	if !conf.Agent.Kubernetes.RunnerJobs {
		t.Fatalf("%+v: want runner_jobs", conf.Agent.Kubernetes)
	}
	got := make(chan struct{})
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const runner = `{"type": "MODIFIED", "object": {"metadata": {"name": "linux-x-runner-y", "namespace": "arc"}, "spec": {"githubConfigUrl": "https://github.com/acme"}, "status": {STATUS}}}` + "\n"
		io.WriteString(w, strings.Replace(runner, "STATUS", "", 1))
		w.(http.Flusher).Flush()
		select {
		case <-got:
		case <-r.Context().Done():
			return
		}
		io.WriteString(w, strings.Replace(runner, "STATUS", `"jobRepositoryName": "acme/shop", "workflowRunId": 99, "jobDisplayName": "test"`, 1))
	}))
	defer s.Close()
	dir := t.TempDir()
	k := &conf.Agent.Kubernetes
	k.URL, k.CAFile, k.TokenFile = s.URL, filepath.Join(dir, "ca"), filepath.Join(dir, "token")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for file, content := range map[string][]byte{k.CAFile: ca, k.TokenFile: []byte("tok")} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	jobs, err := openRunnerJobs(*k, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- jobs.run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	ids, err := newIdentifiers(conf.Agent, jobs)
	if err != nil {
		t.Fatal(err)
	}
	c := inPod(&cimeter.Pod{UID: "u-1", Name: "linux-x-runner-y", Namespace: "arc", Labels: map[string]string{"actions-ephemeral-runner": "True"}}, "runner", nil)
	if id, ok := ids.identify(c); !ok || !id.Later {
		t.Errorf("before it has a job: %v %+v", ok, id)
	}
	close(got)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if id, ok := ids.identify(c); ok && !id.Later {
			if id.Build.Key != "github/github.com/acme/shop/99/1/linux-x-runner-y/test" {
				t.Errorf("%+v", id)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("the job is not known")
		}
	}
}

// Outside of a cluster an address is wanted; where nobody is to be asked, none is.
func TestRunnerJobs_outside(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := openRunnerJobs(config.Kubernetes{RunnerJobs: true}, nil); err == nil {
		t.Error("no error without an address")
	}
	jobs, err := openRunnerJobs(config.Kubernetes{URL: "https://127.0.0.1:1"}, nil)
	if err != nil || jobs.jobOf() != nil {
		t.Errorf("%+v, %v: want nobody to ask", jobs, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := jobs.run(ctx); err != nil {
		t.Error(err)
	}
}

// block returns the first block of a page that holds begin.
func block(t *testing.T, page, begin string) string {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(b), "```") {
		if _, text, _ := strings.Cut(part, "\n"); i%2 == 1 && strings.Contains(text, begin) {
			return text
		}
	}
	t.Fatalf("%s has no block with %q", page, begin)
	return ""
}
