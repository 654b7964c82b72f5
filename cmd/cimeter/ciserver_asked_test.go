package main

import (
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
	"github.com/cimeter/cimeter/internal/poll"
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
	if err != nil || got.source == nil || got.cancel != nil {
		t.Fatalf("%+v, %v: want a source that cannot cancel", got, err)
	}
	if _, err := got.source.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a database that is not there: %v", err)
	}
}
