package giteaapi_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/askhttp"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/gitea"
	"github.com/cimeter/cimeter/internal/ci/gitea/giteaapi"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/testtools"
)

const workflow = `on: push
jobs:
  build:
    runs-on: metal
    steps:
      - run: "true"
  deploy:
    needs: build
    runs-on: metal
    steps:
      - run: "true"
`

// A real Gitea tells of a job that waits, of one that waits for it, of the runner
// that takes it, and of its end, by API and by webhook; a job that began has the key
// of its task.
func TestRealGitea(t *testing.T) {
	g := testtools.StartGitea(t)
	hook := giteaapi.Hook{Kind: gitea.CI, URL: g.URL, Secret: token}
	type delivery struct {
		r   queue.Report
		err error
	}
	deliveries := make(chan delivery, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		d := delivery{err: err}
		if d.err = hook.Verify(r.Header, body, time.Now()); d.err == nil {
			var id string
			if d.r, id, d.err = hook.Parse(r.Header, body); id == "" && d.err == nil {
				t.Errorf("%s: no id", r.Header)
			}
		}
		deliveries <- d
	}))
	defer receiver.Close()
	g.Ask(t, http.MethodPost, "/user/repos", map[string]any{"name": "app", "auto_init": true, "default_branch": "main"}, nil)
	repo := "/repos/" + g.User + "/app"
	g.Ask(t, http.MethodPost, repo+"/hooks", map[string]any{
		"type": "gitea", "active": true, "events": []string{"workflow_job"}, "config": map[string]string{"url": receiver.URL, "content_type": "json", "secret": citest.Token},
	}, nil)
	s, err := askhttp.New(askhttp.Options{URL: g.URL, Token: func() (string, error) { return g.Token, nil }})
	if err != nil {
		t.Fatal(err)
	}
	c, err := giteaapi.New(giteaapi.Options{Kind: gitea.CI, URL: g.URL, Ask: s})
	if err != nil {
		t.Fatal(err)
	}
	poll := func() queue.Report {
		t.Helper()
		r, err := c.Poll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !r.WholeJobs || !r.WholeWorkers || !r.Clock.Known || r.Clock.Value.Abs() > 5*time.Second {
			t.Errorf("whole %v and %v, clock %v", r.WholeJobs, r.WholeWorkers, r.Clock)
		}
		return r
	}
	// until polls until a job of that name has that status.
	until := func(name string, want cimeter.JobStatus) (cimeter.Job, queue.Report) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; {
			r := poll()
			for _, j := range r.Jobs {
				if j.Name == name && j.Status == want {
					return j, r
				}
			}
			if time.Now().After(end) {
				t.Fatalf("%s is not %s within a minute: %+v", name, want, r.Jobs)
			}
			select {
			case <-g.Done():
				t.Fatal("gitea ended")
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	if r := poll(); len(r.Jobs) != 0 || len(r.Workers) != 0 {
		t.Errorf("%+v: want nothing", r)
	}
	g.Ask(t, http.MethodPost, repo+"/contents/.gitea/workflows/ci.yml", map[string]string{"content": base64.StdEncoding.EncodeToString([]byte(workflow)), "message": "m", "branch": "main"}, nil)

	build, r := until("build", cimeter.JobWaiting)
	if build.Project != g.User+"/app" || build.QueuedAt.IsZero() || !build.StartedAt.IsZero() || !build.EndedAt.IsZero() || len(build.Tags) != 1 || build.Tags[0] != "metal" || build.SHA == "" || build.Ref != "main" {
		t.Errorf("%+v: want a job that waits", build)
	}
	for _, j := range r.Jobs {
		if j.Name == "deploy" && (j.Status != cimeter.JobBlocked || !j.QueuedAt.IsZero()) {
			t.Errorf("%+v: want it to wait for build, and not for a runner", j)
		}
	}
	own, err := giteaapi.New(giteaapi.Options{Kind: gitea.CI, URL: g.URL, Ask: s, Projects: []string{g.User + "/app"}})
	if err != nil {
		t.Fatal(err)
	}
	if of, err := own.Poll(t.Context()); err != nil || len(of.Jobs) != len(r.Jobs) || !of.WholeJobs {
		t.Errorf("asked by repository: %+v, %v: want the same %d jobs", of.Jobs, err, len(r.Jobs))
	}
	runner := g.Runner(t, "metal-1", "metal")
	task := runner.Take(t)
	runner.Begin(t, task)
	build, r = until("build", cimeter.JobRunning)
	id, ok := gitea.Identify(&cimeter.Container{Name: "GITEA-ACTIONS-TASK-" + task + "_WORKFLOW-ci_JOB-build"})
	if !ok || build.Key != id.Build.Key || build.Number != task || build.StartedAt.IsZero() || build.Runner.Name != "metal-1" {
		t.Errorf("%+v: want the key of task %s", build, task)
	}
	if len(r.Workers) != 1 || r.Workers[0].State != cimeter.WorkerBusy || len(r.Workers[0].Builds) != 1 || r.Workers[0].Builds[0] != build.Key || r.Workers[0].ID != build.Worker {
		t.Errorf("%+v: want one busy runner with the job", r.Workers)
	}
	runner.End(t, task, "RESULT_SUCCESS")
	build, _ = until("build", cimeter.JobSuccess)
	if build.Number != task || build.EndedAt.Before(build.StartedAt) {
		t.Errorf("%+v: want its end", build)
	}
	deploy, _ := until("deploy", cimeter.JobWaiting)
	if !deploy.QueuedAt.IsZero() {
		t.Errorf("%+v: since when it waits for a runner is not told", deploy)
	}
	task = runner.Take(t)
	runner.Begin(t, task)
	runner.End(t, task, "RESULT_FAILURE")
	if deploy, _ = until("deploy", cimeter.JobFailed); deploy.Number != task {
		t.Errorf("%+v: want task %s", deploy, task)
	}
	first := task
	// It is tried again; the past has a build for each of its tasks.
	g.Ask(t, http.MethodPost, repo+"/actions/runs/"+deploy.Pipeline+"/rerun-failed-jobs", nil, nil)
	until("deploy", cimeter.JobWaiting)
	task = runner.Take(t)
	runner.Begin(t, task)
	runner.End(t, task, "RESULT_SUCCESS")
	if deploy, _ = until("deploy", cimeter.JobSuccess); deploy.Number != task || task == first {
		t.Errorf("%+v: want task %s", deploy, task)
	}
	for _, from := range []*giteaapi.Client{c, own} {
		past, next, err := from.Builds(t.Context(), time.Now().Add(-time.Hour), "")
		for ; err == nil && next != ""; _, next, err = from.Builds(t.Context(), time.Now().Add(-time.Hour), next) {
		}
		got := map[string]cimeter.Job{}
		for _, j := range past {
			got[j.Number] = j
			if j.Key != gitea.Key(gitea.CI, j.Number) || j.EndedAt.Before(j.StartedAt) || j.StartedAt.IsZero() || time.Since(j.EndedAt).Abs() > 10*time.Minute || j.Event != "push" || j.Pipeline != deploy.Pipeline {
				t.Errorf("past: %+v", j)
			}
		}
		if err != nil || len(past) != 3 || len(got) != 3 || got[build.Number].Status != cimeter.JobSuccess || got[first].Status != cimeter.JobFailed || got[task].Status != cimeter.JobSuccess ||
			got[first].Attempt != 1 || got[task].Attempt != 2 {
			t.Errorf("past: %+v, %v: want tasks %s, %s and %s", past, err, build.Number, first, task)
		}
		if past, next, err = from.Builds(t.Context(), time.Now().Add(time.Hour), ""); err != nil || len(past) != 0 {
			t.Errorf("past of the future: %+v, %q, %v", past, next, err)
		}
	}
	told := map[cimeter.JobStatus]bool{}
	for end := time.After(time.Minute); !told[cimeter.JobWaiting] || !told[cimeter.JobRunning] || !told[cimeter.JobSuccess] || !told[cimeter.JobFailed]; {
		select {
		case d := <-deliveries:
			if d.err != nil {
				t.Fatalf("webhook: %v", d.err)
			}
			for _, j := range d.r.Jobs {
				told[j.Status] = true
			}
		case <-end:
			t.Fatalf("webhooks told of %v", told)
		}
	}
}
