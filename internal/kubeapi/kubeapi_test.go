package kubeapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/github"
	"github.com/cimeter/cimeter/internal/kubeapi"
	"github.com/cimeter/cimeter/internal/testtools"
)

// crd is what of Actions Runner Controller's definition the server needs to keep
// its objects.
const crd = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
 "metadata": {"name": "ephemeralrunners.actions.github.com"},
 "spec": {"group": "actions.github.com", "scope": "Namespaced",
  "names": {"kind": "EphemeralRunner", "listKind": "EphemeralRunnerList", "plural": "ephemeralrunners", "singular": "ephemeralrunner"},
  "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
   "schema": {"openAPIV3Schema": {"type": "object", "properties": {
    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}}`

const runners = "/apis/actions.github.com/v1alpha1/namespaces/default/ephemeralrunners"

// The whole life of a runner, as a real server tells it to a user that has the one
// right that the documentation names: not there, waiting, with a job, deleted.
func TestClient_real(t *testing.T) {
	k := testtools.StartKube(t)
	c, err := kubeapi.New(kubeapi.Options{URL: k.URL, TokenFile: k.ReaderTokenFile, CAFile: k.CAFile})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	watch := func(name string, fn func(github.Ephemeral)) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return c.WatchRunner(ctx, "default", name, fn)
	}
	none := func(e github.Ephemeral) { t.Errorf("told of %+v", e) }
	if err := watch("r1", none); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("without a right: %v, want unauthorized", err)
	}
	k.Ask(t, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", "application/yaml", documented(t))
	k.Ask(t, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "", `{"metadata": {"name": "cimeter"},
	 "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cimeter-agent"}, "subjects": [{"kind": "User", "name": "reader"}]}`)
	within(t, "the right is given", func() bool { return !errors.Is(watch("r1", none), cimeter.ErrUnauthorized) })
	if err := watch("r1", none); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("without the kind: %v, want not found", err)
	}
	k.Ask(t, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", crd)
	for _, name := range []string{"r1", "other"} {
		within(t, "a runner is made", func() bool { // the kind is served a moment later
			_, status := k.Try(t, http.MethodPost, runners, "", `{"apiVersion": "actions.github.com/v1alpha1", "kind": "EphemeralRunner", "metadata": {"name": "`+name+`"},
			 "spec": {"githubConfigUrl": "https://github.com/acme", "proxySecretRef": "never-read"}}`)
			return status == http.StatusCreated
		})
	}
	var told []github.Ephemeral
	done := make(chan error, 1)
	events := make(chan github.Ephemeral, 16)
	go func() { done <- watch("r1", func(e github.Ephemeral) { events <- e }) }()
	next := func() github.Ephemeral {
		select {
		case e := <-events:
			return e
		case err := <-done:
			t.Fatalf("the watch ended: %v, told %+v", err, told)
		case <-time.After(time.Minute):
			t.Fatalf("told nothing more than %+v", told)
		}
		return github.Ephemeral{}
	}
	if e := next(); e.Known() || e.ConfigURL != "https://github.com/acme" {
		t.Errorf("while it waits: %+v", e)
	}
	status := func(name, repository string) {
		k.Ask(t, http.MethodPatch, runners+"/"+name+"/status", "application/merge-patch+json", `{"status": {"phase": "Running", "runnerId": 7, "runnerName": "`+name+`",
		 "jobRequestId": 3, "jobId": "0190c0de", "jobRepositoryName": "`+repository+`", "jobWorkflowRef": "acme/shop/.github/workflows/ci.yml@refs/heads/main",
		 "workflowRunId": 12345678901, "jobDisplayName": "ci / test (1.25, linux)"}}`)
	}
	status("other", "acme/other") // of another runner: not told
	status("r1", "acme/shop")
	want := github.Ephemeral{ConfigURL: "https://github.com/acme", Repository: "acme/shop", RunID: "12345678901", Job: "ci / test (1.25, linux)",
		Ref: "acme/shop/.github/workflows/ci.yml@refs/heads/main"}
	if e := next(); e != want || !e.Known() {
		t.Errorf("with a job: %+v, want %+v", e, want)
	}
	k.Ask(t, http.MethodDelete, runners+"/r1", "", "")
	if err := <-done; !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("deleted: %v, want not found", err)
	}
	wrong, err := kubeapi.New(kubeapi.Options{URL: k.URL, TokenFile: secret(t, "no-such-token"), CAFile: k.CAFile})
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	if err := wrong.WatchRunner(t.Context(), "default", "r1", none); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("with a token that is none: %v, want unauthorized", err)
	}
}

// documented is the role in docs/identities.md.
func documented(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/identities.md")
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(b), "```") {
		if kind, text, _ := strings.Cut(part, "\n"); kind == "yaml" && strings.Contains(text, "kind: ClusterRole") {
			return text
		}
	}
	t.Fatal("docs/identities.md has no ClusterRole")
	return ""
}

// What servers answer that is no watch, or one that makes no sense.
func TestClient_answers(t *testing.T) {
	const added = `{"type": "ADDED", "object": {"metadata": {"name": "r", "namespace": "ns"}, "spec": {"githubConfigUrl": "https://github.com/a"}}}`
	for _, tt := range []struct {
		name   string
		code   int
		body   string
		events int
		want   error // nil: none
	}{
		{"the server ends it", 200, added + "\n", 1, nil},
		{"a bookmark, an empty line, another runner", 200, `{"type": "BOOKMARK", "object": {}}` + "\n\n" + strings.Replace(added, `"r"`, `"x"`, 1) + "\n" + added, 1, nil},
		{"a type that is yet to come", 200, `{"type": "NEW", "object": 7}` + "\n" + added, 1, nil},
		{"too old", 200, added + "\n" + `{"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}`, 1, cimeter.ErrNotFound},
		{"a failure of the server's within", 200, `{"type": "ERROR", "object": {"code": 500, "reason": "InternalError"}}`, 0, cimeter.ErrUnavailable},
		{"no JSON", 200, "<html>", 0, cimeter.ErrInvalid},
		{"a list", 200, `{"kind": "EphemeralRunnerList", "items": []}`, 0, nil},
		{"an object of another form", 200, `{"type": "ADDED", "object": {"metadata": 7}}`, 0, cimeter.ErrInvalid},
		{"a run that is no number", 200, `{"type": "ADDED", "object": {"metadata": {"name": "r", "namespace": "ns"}, "status": {"workflowRunId": "7"}}}`, 0, cimeter.ErrInvalid},
		{"an event without an end", 200, `{"type": "` + strings.Repeat("x", 3<<20), 0, cimeter.ErrInvalid},
		{"too many requests", 429, "", 0, cimeter.ErrUnavailable},
		{"forbidden", 403, `{"kind": "Status", "reason": "Forbidden"}`, 0, cimeter.ErrUnauthorized},
		{"no such kind", 404, "404 page not found", 0, cimeter.ErrNotFound},
		{"a failure", 503, strings.Repeat("x", 1<<20), 0, cimeter.ErrUnavailable},
		{"elsewhere", 302, "", 0, cimeter.ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked++
				if r.URL.Query().Get("fieldSelector") != "metadata.name=r" || r.Header.Get("Authorization") != "Bearer tok" ||
					r.URL.Path != "/apis/actions.github.com/v1alpha1/namespaces/ns/ephemeralrunners" {
					t.Errorf("asked for %s with %q", r.URL, r.Header)
				}
				w.Header().Set("Location", "https://127.0.0.1:1/")
				w.WriteHeader(tt.code)
				io.WriteString(w, tt.body)
			}))
			defer s.Close()
			c, err := kubeapi.New(kubeapi.Options{URL: s.URL + "/", TokenFile: secret(t, " tok\n"), Transport: s.Client().Transport})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			err = c.WatchRunner(t.Context(), "ns", "r", func(e github.Ephemeral) {
				if n++; e.ConfigURL != "https://github.com/a" {
					t.Errorf("told %+v", e)
				}
			})
			if tt.want == nil && err != nil || !errors.Is(err, tt.want) || n != tt.events || asked != 1 {
				t.Errorf("error %v, %d events of %d requests, want %v, %d", err, n, asked, tt.want, tt.events)
			}
			if err != nil && (strings.Contains(err.Error(), "tok\n") || strings.Contains(err.Error(), "Bearer") || len(err.Error()) > 400) {
				t.Errorf("error %q", err)
			}
		})
	}
}

func TestClient_unreachable(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	s.Close()
	for name, tt := range map[string]struct {
		o    kubeapi.Options
		want error
	}{
		"nobody listens":       {kubeapi.Options{URL: s.URL}, cimeter.ErrUnavailable},
		"no token":             {kubeapi.Options{URL: s.URL, TokenFile: filepath.Join(t.TempDir(), "none")}, os.ErrNotExist},
		"an empty token":       {kubeapi.Options{URL: s.URL, TokenFile: secret(t, "\n")}, cimeter.ErrInvalid},
		"a token of two lines": {kubeapi.Options{URL: s.URL, TokenFile: secret(t, "a\nb")}, cimeter.ErrInvalid},
		"no authorities":       {kubeapi.Options{URL: s.URL, CAFile: secret(t, "x")}, cimeter.ErrInvalid},
	} {
		c, err := kubeapi.New(tt.o)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.WatchRunner(t.Context(), "ns", "r", nil); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	for _, o := range []kubeapi.Options{{}, {URL: "ftp://x"}, {URL: "https://"}, {URL: "https://u:p@x"}, {URL: "http://x", TokenFile: "t"}} {
		if _, err := kubeapi.New(o); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("New(%+v): %v, want invalid", o, err)
		}
	}
	c, err := kubeapi.New(kubeapi.Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a,metadata.namespace!=x", "a/b", strings.Repeat("a", 300)} {
		if err := c.WatchRunner(t.Context(), "ns", name, nil); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("a runner %.20q: %v, want invalid", name, err)
		}
	}
}

func TestInCluster(t *testing.T) {
	env := map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
	o, err := kubeapi.InCluster(func(k string) string { return env[k] })
	if err != nil || o.URL != "https://[fd00::1]:443" || !strings.HasSuffix(o.TokenFile, "/token") || !strings.HasSuffix(o.CAFile, "/ca.crt") {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := kubeapi.InCluster(func(string) string { return "" }); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("outside: %v, want invalid", err)
	}
}

func secret(t *testing.T, s string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), fmt.Sprint("secret", len(s)))
	if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
