package giteaapi_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/askhttp"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/gitea"
	"github.com/cimeter/cimeter/internal/ci/gitea/giteaapi"
)

func token() (string, error) { return citest.Token, nil }

func client(t *testing.T, kind, url string, projects ...string) *giteaapi.Client {
	t.Helper()
	s, err := askhttp.New(askhttp.Options{URL: url, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	c, err := giteaapi.New(giteaapi.Options{Kind: kind, URL: "https://git.example.com", Ask: s, Projects: projects})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPoll(t *testing.T) {
	f := &citest.Folder{Dir: "testdata/server"}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, gitea.CI, s.URL)
	r, err := c.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	citest.Report(t, "testdata/poll.json", r)
	f.Asked(t)
	if _, err := c.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if asked := f.Asked(t); len(asked) != 3 {
		t.Errorf("nothing moved: asked %q: want jobs, runners and runs", asked)
	}
	if c.Task(11, 1) != 77 || c.Task(11, 2) != 0 || c.Task(12, 0) != 0 {
		t.Errorf("task %d: want 77", c.Task(11, 1))
	}
}

// A job that is not told any more is asked for, until its end is told.
func TestPollEnd(t *testing.T) {
	over := false
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		switch {
		case over && strings.HasPrefix(path, "/api/v1/admin/actions/jobs"):
			return `{"jobs":[],"total_count":0}`, true
		case over && strings.HasSuffix(path, "/jobs/11"):
			return `{"id":11,"url":"https://git.example.com/api/v1/repos/Org/app/actions/jobs/11","name":"build","run_attempt":1,"status":"completed","conclusion":"failure","runner_id":2,
				"created_at":"2026-11-30T07:09:40Z","started_at":"2026-11-30T07:10:00Z","completed_at":"2026-11-30T07:12:00Z"}`, true
		case over && strings.HasSuffix(path, "/jobs/12"):
			return `{"id":12,"url":"https://git.example.com/api/v1/repos/Org/app/actions/jobs/12","name":"deploy","status":"completed","conclusion":"skipped"}`, true
		}
		return "", false
	}}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, gitea.CI, s.URL)
	if _, err := c.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	over = true
	r, err := c.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]cimeter.JobStatus{}
	for _, j := range r.Jobs {
		got[j.Key] = j.Status
	}
	if len(got) != 2 || got["gitea/local/77"] != cimeter.JobFailed || got["gitea/git.example.com/job/12"] != cimeter.JobSkipped {
		t.Errorf("told %v: want the two that ended; the third was deleted", got)
	}
	if r, err = c.Poll(t.Context()); err != nil || len(r.Jobs) != 0 || !r.WholeJobs {
		t.Errorf("%+v, %v: want none of all", r, err)
	}
}

// Webhooks ask for tasks while a poll learns them.
func TestTaskBesidePoll(t *testing.T) {
	s := httptest.NewServer(&citest.Folder{Dir: "testdata/server"})
	defer s.Close()
	c := client(t, gitea.CI, s.URL)
	done := make(chan error)
	go func() {
		var err error
		for range 5 {
			if _, e := c.Poll(t.Context()); e != nil {
				err = e
			}
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil || c.Task(11, 1) != 77 {
				t.Errorf("task %d, %v: want 77", c.Task(11, 1), err)
			}
			return
		default:
			if n := c.Task(11, 1); n != 0 && n != 77 {
				t.Fatalf("task %d", n)
			}
		}
	}
}

func TestPollForgejo(t *testing.T) {
	s := httptest.NewServer(&citest.Folder{Dir: "testdata/forgejo"})
	defer s.Close()
	r, err := client(t, gitea.Forgejo, s.URL).Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	citest.Report(t, "testdata/forgejo.json", r)
}

func TestFaults(t *testing.T) {
	for kind, dir := range map[string]string{gitea.CI: "testdata/server", gitea.Forgejo: "testdata/forgejo"} {
		t.Run(kind, func(t *testing.T) {
			citest.Faults(t, &citest.Folder{Dir: dir}, func(t *testing.T, url string) citest.Poller {
				return client(t, kind, url)
			})
		})
	}
	// JSON of another kind is not an empty queue.
	for _, body := range []string{`{}`, `{"message":"x"}`, `{"jobs":null,"total_count":0}`, `{"jobs":[{"id":0}],"total_count":1}`, `{"jobs":[{"id":1,"url":"x"}],"total_count":1}`} {
		s := httptest.NewServer(&citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
			return body, strings.HasPrefix(path, "/api/v1/admin/actions/jobs")
		}})
		if r, err := client(t, gitea.CI, s.URL).Poll(t.Context()); !errors.Is(err, cimeter.ErrInvalid) || r.WholeJobs {
			t.Errorf("%s: %+v, %v", body, r, err)
		}
		s.Close()
	}
	if _, err := giteaapi.New(giteaapi.Options{Kind: gitea.CI, URL: "https://x", Projects: []string{"../admin"}}); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("project ../admin: %v", err)
	}
}

// A running job has the key of the agent's record of its task.
func TestKeys(t *testing.T) {
	s := httptest.NewServer(&citest.Folder{Dir: "testdata/server"})
	defer s.Close()
	r, err := client(t, gitea.CI, s.URL).Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id, ok := gitea.Identify(&cimeter.Container{Name: "GITEA-ACTIONS-TASK-77_WORKFLOW-ci_JOB-build"})
	i := slices.IndexFunc(r.Jobs, func(j cimeter.Job) bool { return j.Key == id.Build.Key })
	if !ok || i < 0 || r.Jobs[i].Number != id.Build.Number || r.Jobs[i].Name != id.Build.Name {
		t.Errorf("no job is %+v", id.Build)
	}
}

const payload = `{"action":"completed","workflow_job":{"id":11,"url":"https://git.example.com/api/v1/repos/Org/app/actions/jobs/11","html_url":"https://git.example.com/Org/app/actions/runs/5/jobs/11","run_id":5,"name":"build","labels":["ubuntu-latest"],"run_attempt":1,"head_sha":"7e4d","head_branch":"main","status":"completed","conclusion":"success","runner_id":2,"runner_name":"big-1","steps":[],"created_at":"2026-11-30T07:09:40Z","started_at":"2026-11-30T07:10:00Z","completed_at":"2026-11-30T07:12:00Z"},"repository":{"id":3,"full_name":"Org/app"},"sender":{"login":"a"}}`

func sign(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func TestHookVerify(t *testing.T) {
	hook := giteaapi.Hook{Kind: gitea.CI, URL: "https://git.example.com", Secret: token}
	good := sign(citest.Token, payload)
	for _, test := range []struct {
		name string
		h    http.Header
		body string
		ok   bool
	}{
		{"Gitea's", header("X-Gitea-Signature", good), payload, true},
		{"Forgejo's", header("X-Forgejo-Signature", good), payload, true},
		{"GitHub's", header("X-Hub-Signature-256", "sha256="+good), payload, true},
		{"another secret", header("X-Gitea-Signature", sign("x", payload)), payload, false},
		{"no secret: none is sent", header("X-Gitea-Signature", ""), payload, false},
		{"signed by an empty secret", header("X-Gitea-Signature", sign("", payload)), payload, false},
		{"another body", header("X-Gitea-Signature", good), payload + " ", false},
		{"one wrong beside a good one", header("X-Gitea-Signature", sign("x", payload), "X-Hub-Signature-256", "sha256="+good), payload, false},
		{"SHA-1 alone", header("X-Hub-Signature", "sha1=ab"), payload, false},
		{"garbage", header("X-Gitea-Signature", "zz"), payload, false},
		{"half", header("X-Gitea-Signature", good[:32]), payload, false},
		{"none", header(), payload, false},
	} {
		if err := hook.Verify(test.h, []byte(test.body), time.Time{}); (err == nil) != test.ok || err != nil && !errors.Is(err, cimeter.ErrUnauthorized) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	hook.Secret = func() (string, error) { return "", nil }
	if err := hook.Verify(header("X-Gitea-Signature", sign("", payload)), []byte(payload), time.Time{}); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("without a secret: %v: want all refused", err)
	}
}

// tasks are those that polls have learned.
type tasks int64

func (n tasks) Task(int64, int) int64 { return int64(n) }

func TestHookParse(t *testing.T) {
	hook := giteaapi.Hook{Kind: gitea.CI, URL: "https://git.example.com", Secret: token}
	h := header("X-Gitea-Event", "workflow_job", "X-Gitea-Delivery", "d-1")
	r, id, err := hook.Parse(h, []byte(payload))
	if err != nil || id != "d-1" {
		t.Fatalf("id %q, %v", id, err)
	}
	citest.Report(t, "testdata/hook.json", r)
	for task, want := range map[tasks]string{77: "gitea/local/77", 0: ""} {
		hook.Tasks = task
		r, _, err := hook.Parse(h, []byte(payload))
		if err != nil || (want == "") != (len(r.Jobs) == 0) || want != "" && r.Jobs[0].Key != want {
			t.Errorf("with task %d: %+v, %v: want %q", task, r.Jobs, err, want)
		}
	}
	waits := strings.Replace(payload, `"status":"completed","conclusion":"success"`, `"status":"queued"`, 1)
	if r, _, err := hook.Parse(h, []byte(waits)); err != nil || len(r.Jobs) != 1 || r.Jobs[0].Status != cimeter.JobWaiting {
		t.Errorf("%+v, %v: want one that waits, polled or not", r, err)
	}
	for body, want := range map[string]error{"": cimeter.ErrInvalid, "null": cimeter.ErrInvalid, "{}": cimeter.ErrInvalid, `{"workflow_job":{"id":"x"}}`: cimeter.ErrInvalid, payload[:200]: cimeter.ErrInvalid} {
		if _, _, err := hook.Parse(h, []byte(body)); !errors.Is(err, want) {
			t.Errorf("%.60s: %v", body, err)
		}
	}
	for _, event := range []string{"push", "workflow_run", "action_run_success", ""} {
		if _, _, err := hook.Parse(header("X-Gitea-Event", event), []byte(payload)); !errors.Is(err, cimeter.ErrUnsupported) {
			t.Errorf("%s: %v", event, err)
		}
	}
}

func FuzzHook(f *testing.F) {
	f.Add([]byte(payload))
	f.Add([]byte(`{"workflow_job":{"id":1,"started_at":"0001-01-01T00:00:00Z"},"repository":{"full_name":"a/b"}}`))
	hook := giteaapi.Hook{Kind: gitea.CI, URL: "https://git.example.com", Secret: token}
	h := header("X-Gitea-Event", "workflow_job")
	f.Fuzz(func(t *testing.T, body []byte) {
		r, _, err := hook.Parse(h, body)
		citest.Sane(t, r, err)
	})
}
