package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/hooks"
	"github.com/cimeter/cimeter/internal/poll"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/tally"
)

// Each kind is asked with the token that may read, and ends builds with the other,
// as the stand-ins of the adapters' own tests answer.
func TestNewAsked(t *testing.T) {
	const cancelToken = "geheim-that-may-cancel"
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token, cancel, hook := write("token", citest.Token+"\n"), write("cancel", cancelToken+"\n"), write("hook", "x\n")
	e := &env{getenv: func(string) string { return "" }}
	for kind, test := range map[string]struct {
		folder, below string // of the stand-in; where it has its API
		projects      []string
		jobs, workers int
		hook          bool
	}{
		"drone":      {folder: "drone/droneapi", jobs: 3, hook: true},
		"woodpecker": {folder: "woodpecker/woodpeckerapi", jobs: 4, workers: 4},
		"gitea":      {folder: "gitea/giteaapi", jobs: 3, workers: 4, hook: true},
		"github":     {folder: "github/githubapi", below: "/api/v3", projects: []string{"Org/app", "Org"}, jobs: 5, workers: 3, hook: true},
		"jenkins":    {folder: "jenkins/jenkinsapi", jobs: 5, workers: 4, hook: true},
		"buildkite":  {folder: "buildkite/buildkiteapi", projects: []string{"acme"}, jobs: 4, workers: 4, hook: true},
	} {
		t.Run(kind, func(t *testing.T) {
			f := &citest.Folder{Dir: "../../internal/ci/" + test.folder + "/testdata/server"}
			var changed []string // with which token
			s := httptest.NewServer(http.StripPrefix(test.below, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if user, password, ok := r.BasicAuth(); ok && user == "meter" {
					r.Header.Set("Authorization", "Bearer "+password)
				}
				if r.Method != http.MethodGet {
					changed = append(changed, r.Header.Get("Authorization"))
					return
				}
				if r.Header.Get("Authorization") == "Bearer "+cancelToken { // Woodpecker looks the repository up
					w.Write([]byte(`{"id":4,"full_name":"Org/app"}`))
					return
				}
				f.ServeHTTP(w, r)
			})))
			defer s.Close()
			c := config.CIServer{Kind: kind, Name: "n", URL: s.URL, User: "meter", TokenFile: token, CancelFile: cancel, Projects: test.projects}
			got, err := newCIServer(c, e)
			if err != nil {
				t.Fatal(err)
			}
			r, err := got.source.Poll(t.Context())
			if err != nil || len(r.Jobs) != test.jobs || len(r.Workers) != test.workers {
				t.Fatalf("%d jobs, %d workers, %v: want %d and %d", len(r.Jobs), len(r.Workers), err, test.jobs, test.workers)
			}
			if got.asked() < 2 {
				t.Errorf("%d requests are told of a poll", got.asked())
			}
			if kind != "gitea" { // which ends none
				i := slices.IndexFunc(r.Jobs, func(j cimeter.Job) bool { return !j.Status.Ended() })
				if err := got.cancel.Cancel(t.Context(), r.Jobs[i].Key); err != nil || !slices.Equal(changed, []string{"Bearer " + cancelToken}) {
					t.Errorf("cancel %s: %v, with %q: want the token that may", r.Jobs[i].Key, err, changed)
				}
			}
			if got.hook != nil {
				t.Error("a hook without a secret")
			}
			if _, follows := got.source.(poll.Events); follows != (kind == "woodpecker") {
				t.Errorf("has a stream of events: %v", follows)
			}
			c.HookSecretFile = hook
			got, err = newCIServer(c, e)
			switch {
			case test.hook && (err != nil || got.hook == nil):
				t.Errorf("with a secret: %v: want a hook", err)
			case !test.hook && (err == nil || !strings.Contains(err.Error(), "want token_file")):
				t.Errorf("with a secret: %v: want it refused", err)
			}
		})
	}
	for kind, c := range map[string]config.CIServer{
		"github without projects":    {Kind: "github", URL: "https://github.com", TokenFile: token},
		"buildkite without projects": {Kind: "buildkite", URL: "https://buildkite.com", TokenFile: token},
		"an address that is none":    {Kind: "drone", URL: "drone", TokenFile: token},
	} {
		if s, err := newCIServer(c, e); err == nil {
			t.Errorf("%s: %+v: want it refused", kind, s)
		}
	}
	// A database instead of the API.
	got, err := newCIServer(config.CIServer{Kind: "drone", Name: "d", URL: "https://drone.example.com", DatabaseFile: write("db", "sqlite:///nowhere/x.sqlite")}, e)
	if err != nil || got.source == nil || got.cancel != nil || got.asked() != 0 {
		t.Fatalf("%+v, %v: want a source that cannot cancel", got, err)
	}
	if _, err := got.source.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a database that is not there: %v", err)
	}
}

// Webhooks of Jenkins' plugins, with the password that stands in the endpoint's address.
func TestNewAsked_jenkinsHook(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	made, err := newCIServer(config.CIServer{Kind: "jenkins", Name: "n", URL: "https://ci.example.com", HookSecretFile: secret}, &env{getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	took := make(chan queue.Report, 10)
	r := hooks.New(hooks.Options{
		Servers: []hooks.Server{{Name: "n", CI: "jenkins", Hook: made.hook}}, Tally: tally.New(tally.Options{}), Take: func(_ string, r queue.Report) { took <- r },
	}, slog.New(slog.DiscardHandler))
	body := []byte(`{"name":"app","build":{"full_url":"https://ci.example.com/job/app/18/","number":18,"queue_id":41,"timestamp":1796022610000,"phase":"STARTED"}}`)
	for password, want := range map[string]error{"geheim": nil, "x": cimeter.ErrUnauthorized, "": cimeter.ErrUnauthorized} {
		q := httptest.NewRequest(http.MethodPost, "/", nil)
		q.SetBasicAuth("jenkins", password)
		for range 2 { // the second is the same delivery
			if err := r.Receive("jenkins", q.Header, body); !errors.Is(err, want) {
				t.Errorf("password %q: %v: want %v", password, err, want)
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := r.Run(ctx); err != nil || len(took) != 1 {
		t.Fatalf("%d reports, %v: want one", len(took), err)
	}
	if got := <-took; len(got.Jobs) != 1 || got.Jobs[0].Key != "jenkins/ci.example.com/app/18" || len(got.Moved) != 1 {
		t.Errorf("%+v", got)
	}
}
