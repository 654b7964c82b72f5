package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/jobsocket"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
)

// A job's history is its last builds that succeeded, of its own CI server
// alone, whoever is asked for them: a server, or the store of "cimeter up".
func TestJobHistory(t *testing.T) {
	kept, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "cimeter.db"), Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	var batch []store.Put
	for i := range 30 {
		r := finished(i)
		r.Name, r.Server = "build", "gitlab.example.com"
		switch i {
		case 26:
			r.Result = "failed"
		case 27:
			r.Name = "lint"
		case 28:
			r.Project = "other/secret"
		case 29:
			r.Server = "gitlab.other.com"
		}
		batch = append(batch, store.Put{Record: r, ReceivedAt: r.EndedAt})
	}
	if _, err := kept.Put(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	const token = "planted-read-token"
	api := httpapi.New(httpapi.Options{Query: kept})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		api.ServeHTTP(w, r)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &env{getenv: func(name string) string {
		if name == "CIMETER_SERVER_TOKEN" { // of the role push: it may not read
			return "planted-push-token"
		}
		return ""
	}}
	var conf config.Config
	if serverHistory(conf, e) != nil {
		t.Error("without a server: want no history")
	}
	conf.Server.URL = server.URL
	pushing := serverHistory(conf, e)
	conf.Agent.Socket.HistoryFile = file
	reading := serverHistory(conf, e)
	of := &cimeter.Build{CI: "gitlab", Server: "gitlab.example.com", Project: "group/app", Name: "build"}
	for name, ask := range map[string]jobsocket.History{"a server": reading, "the store": ownHistory(kept)} {
		records, err := ask(t.Context(), of, 20)
		if err != nil || len(records) < 18 || len(records) > 20 || records[0].Key != finished(25).Key {
			t.Errorf("%s: %d builds, %v: want the last 20", name, len(records), err)
		}
		for _, r := range records {
			if r.Project != of.Project || r.Name != of.Name || r.Server != of.Server || r.Result != "success" {
				t.Errorf("%s tells of %+v", name, r.Build)
			}
		}
	}
	if _, err := pushing(t.Context(), of, 20); err == nil || strings.Contains(err.Error(), "planted") {
		t.Errorf("with a token that may not read: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := reading(ctx, of, 20); err == nil {
		t.Error("given up: want an error")
	}
}

// An agent without the setting has no socket; one with it answers, and says so.
func TestOpenJobSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "job-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	for i, text := range []string{"", fmt.Sprintf("agent:\n  socket:\n    path: %s\n    mode: \"0660\"\n", path)} {
		conf, err := config.Parse("cimeter.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		run, err := openJobSocket(conf, nil, nil, newTally(conf), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Lstat(path)
		if there := err == nil && st.Mode() == os.ModeSocket|0o660; there != (i == 1) {
			t.Errorf("%q: the socket is %v, %v", text, st, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := run(ctx); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Error("the socket is left")
		}
	}
}
