package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
)

// A pull request at a Gitea gets its comment from the builds in the store, by
// the token that may write and by no other.
func TestForgeNotes(t *testing.T) {
	type question struct{ line, body string }
	asked := make(chan question, 100)
	gitea := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer planted-write" {
			http.Error(w, "{}", http.StatusForbidden)
			return
		}
		b, _ := io.ReadAll(r.Body) // short: it is this test's own
		switch {
		case r.URL.Path == "/api/v1/user":
			io.WriteString(w, `{"id":7}`)
		case r.Method == http.MethodGet:
			io.WriteString(w, `[]`)
		default:
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, `{"id":55}`)
			asked <- question{r.Method + " " + r.URL.Path, string(b)}
		}
	}))
	defer gitea.Close()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("planted-write"), 0o600); err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(gitea.URL, "http://")
	kept, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(dir, "cimeter.db"), Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	r := finished(1)
	r.CI, r.Server, r.Key, r.Name, r.Pipeline, r.Project, r.SHA, r.Ref, r.Event = "gitea", host, "gitea/"+host+"/1", "/merge", "9", "acme/app", strings.Repeat("a", 40), "3/head", "pull_request"
	r.EndedAt = time.Now().Add(-time.Minute)
	r.StartedAt = r.EndedAt.Add(-time.Minute)
	if _, err := kept.Put(t.Context(), []store.Put{{Record: r, ReceivedAt: r.EndedAt}}); err != nil {
		t.Fatal(err)
	}
	c := config.CIServer{Kind: "gitea", Name: "gitea", URL: gitea.URL, Notes: config.CINotes{TokenFile: token, MergeRequests: []string{"acme/*"}, Always: []string{"acme/*"}}}
	e := &env{getenv: func(string) string { return "" }}
	made, err := newCIServer(c, e)
	if err != nil || made.writer == nil || made.source != nil {
		t.Fatalf("%+v, %v: want a writer alone", made, err)
	}
	n := newNotes([]config.CIServer{c}, []ciServer{made}, kept, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	select {
	case q := <-asked:
		var doc struct{ Body string }
		if err := json.Unmarshal([]byte(q.body), &doc); err != nil || q.line != "POST /api/v1/repos/acme/app/issues/3/comments" || !strings.Contains(doc.Body, "**cimeter**") || !strings.Contains(doc.Body, "`/merge`") {
			t.Errorf("%s %s: want the comment of pull request 3: %v", q.line, q.body, err)
		}
		for line := range strings.Lines(doc.Body) {
			if strings.HasPrefix(line, "/") {
				t.Errorf("a line is a command: %q", line)
			}
		}
	case <-time.After(time.Minute):
		t.Error("no comment within a minute")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	// The line at the commit.
	if err := made.writer.PutStatus(t.Context(), "acme/app", r.SHA, "1 s CPU", "https://x/", 9); err != nil {
		t.Fatal(err)
	}
	if q := <-asked; q.line != "POST /api/v1/repos/acme/app/statuses/"+r.SHA || !strings.Contains(q.body, `"context":"cimeter"`) {
		t.Errorf("%s %s: want the status", q.line, q.body)
	}
	c.Kind = "drone"
	if _, err := newCIServer(c, e); err == nil {
		t.Error("Drone has no commits: want an error")
	}
}

func TestMergeRequestOf(t *testing.T) {
	for _, c := range []struct {
		kind, ref string
		want      int64
	}{{"gitlab", "refs/merge-requests/12/head", 12}, {"gitlab", "12/merge", 0}, {"github", "12/merge", 12}, {"gitea", "refs/pull/4/head", 4}, {"forgejo", "main", 0}} {
		if got := mergeRequestOf(c.kind)(c.ref); got != c.want {
			t.Errorf("%s %s: got %d, want %d", c.kind, c.ref, got, c.want)
		}
	}
	for kind, want := range map[string]string{"gitlab": "https://x/a/b/-/pipelines/9", "github": "https://x/a/b/actions/runs/9", "gitea": ""} {
		if got := pipelineURL(config.CIServer{Kind: kind, URL: "https://x/"})("a/b", "9"); got != want {
			t.Errorf("%s: got %s, want %s", kind, got, want)
		}
	}
}
