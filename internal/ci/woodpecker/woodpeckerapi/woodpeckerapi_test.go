package woodpeckerapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/askhttp"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/woodpecker"
	"github.com/cimeter/cimeter/internal/ci/woodpecker/woodpeckerapi"
	"github.com/cimeter/cimeter/internal/queue"
)

func server(t *testing.T, url string) *askhttp.Server {
	t.Helper()
	s, err := askhttp.New(askhttp.Options{URL: url, Token: func() (string, error) { return citest.Token, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func client(t *testing.T, url string) *woodpeckerapi.Client {
	t.Helper()
	c, err := woodpeckerapi.New(woodpeckerapi.Options{URL: "https://WP.example.com", Ask: server(t, url), Stream: server(t, url)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPoll(t *testing.T) {
	f := &citest.Folder{Dir: "testdata/server"}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, s.URL)
	r, err := c.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	citest.Report(t, "testdata/poll.json", r)
	for _, w := range r.Workers {
		if strings.Contains(fmt.Sprintf("%+v", w), "NEVERSHOWN") {
			t.Errorf("%+v holds the agent's token", w)
		}
	}
	f.Asked(t)
	again, err := c.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if asked := f.Asked(t); len(asked) != 2 || len(again.Jobs) != len(r.Jobs) || !again.WholeJobs || !again.WholeWorkers {
		t.Errorf("nothing moved: asked %q, told of %d jobs: want 2 requests and %d", asked, len(again.Jobs), len(r.Jobs))
	}
}

// A pipeline that left the queue is told of once more, with its end.
func TestPollEnd(t *testing.T) {
	over := false
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		switch {
		case over && path == "/api/queue/info":
			return `{"pending":null,"waiting_on_deps":null,"running":null,"stats":{"worker_count":2},"paused":false}`, true
		case over && strings.HasSuffix(path, "/4/pipelines/42"):
			return `{"id":90,"number":42,"event":"push","status":"killed","created":1796022575,"commit":"7e4d","branch":"main","workflows":[
				{"id":301,"pid":1,"name":"build","state":"killed","started":1796022595,"finished":1796022700,"agent_id":2},{"id":302,"pid":2,"name":"deploy","state":"skipped"}]}`, true
		case over && strings.HasSuffix(path, "/5/pipelines/7"):
			return `{"id":91,"number":7,"event":"tag","workflows":[{"id":303,"pid":1,"name":"lint","state":"error","finished":1796022700}]}`, true
		}
		return "", false
	}}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, s.URL)
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
		got[strings.TrimPrefix(j.Key, "woodpecker/wp.example.com/Org/")] = j.Status
	}
	for key, want := range map[string]cimeter.JobStatus{"app/42/build": "canceled", "app/42/deploy/2": "skipped", "lib/7/lint": "failed"} {
		if got[key] != want {
			t.Errorf("%s is %q: want %q", key, got[key], want)
		}
	}
	if r, err = c.Poll(t.Context()); err != nil || len(r.Jobs) != 0 || !r.WholeJobs {
		t.Errorf("%d jobs, %v: want none of all", len(r.Jobs), err)
	}
}

// A server before 3 names neither workflow nor pipeline in the queue: the list of
// pipelines does, and the pipeline's own page.
func TestPollOldServer(t *testing.T) {
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		switch path {
		case "/api/queue/info":
			return `{"pending":[{"id":"303","labels":{"repo":"Org/lib","platform":"linux/arm64"},"dependencies":null,"agent_id":0,"pipeline_id":91,"repo_id":5}],
				"waiting_on_deps":[],"running":[{"id":"9","labels":{},"pipeline_id":77,"repo_id":6}],"stats":{"worker_count":1},"paused":false}`, true
		case "/api/pipelines":
			return `[{"repo_id":5,"id":91,"number":7}]`, true
		}
		return "", false
	}}
	s := httptest.NewServer(f)
	defer s.Close()
	r, err := client(t, s.URL).Poll(t.Context())
	if err != nil || len(r.Jobs) != 1 || r.Jobs[0].Key != "woodpecker/wp.example.com/Org/lib/7/lint" || r.Jobs[0].QueuedAt.Unix() != 1796022605 || r.WholeJobs {
		t.Errorf("%+v, %v: want lint, and not whole: one is not named", r, err)
	}
}

func TestFaults(t *testing.T) {
	citest.Faults(t, &citest.Folder{Dir: "testdata/server"}, func(t *testing.T, url string) citest.Poller {
		return client(t, url)
	})
}

// The key of a job is that of the agent's record of the same workflow.
func TestKeys(t *testing.T) {
	s := httptest.NewServer(&citest.Folder{Dir: "testdata/server"})
	defer s.Close()
	r, err := client(t, s.URL).Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for number, name := range map[string]string{"1": "build", "2": "deploy"} {
		id, ok := woodpecker.Identify(&cimeter.Container{Name: "wp_u1", Labels: map[string]string{"wp_uuid": "u1", "wp_step": "clone"}, Env: map[string]string{
			"CI_SYSTEM_NAME": "woodpecker", "CI_SYSTEM_URL": "https://WP.example.com", "CI_REPO": "Org/app", "CI_PIPELINE_NUMBER": "42", "CI_PIPELINE_EVENT": "push",
			"CI_PIPELINE_URL": "https://WP.example.com/repos/4/pipeline/42", "CI_WORKFLOW_NAME": name, "CI_WORKFLOW_NUMBER": number, "CI_COMMIT_BRANCH": "main", "CI_COMMIT_SHA": "7e4d",
		}})
		i := slices.IndexFunc(r.Jobs, func(j cimeter.Job) bool { return j.Key == id.Build.Key })
		if !ok || i < 0 {
			t.Fatalf("no job has the key %s of the container", id.Build.Key)
		}
		if r.Jobs[i].Build != id.Build {
			t.Errorf("the job's build\n%+v: want that of its container\n%+v", r.Jobs[i].Build, id.Build)
		}
	}
}

func TestCancel(t *testing.T) {
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		return `{"id":4,"full_name":"Org/app"}`, path == "/api/repos/lookup/Org/app"
	}}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, s.URL)
	if err := c.Cancel(t.Context(), "woodpecker/wp.example.com/Org/app/42/deploy/2"); err != nil {
		t.Fatal(err)
	}
	if asked := f.Asked(t); !slices.Contains(asked, "POST /api/repos/4/pipelines/42/cancel") {
		t.Errorf("asked %q", asked)
	}
	if err := c.Cancel(t.Context(), "woodpecker/wp.example.com/Org/other/42/x"); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("another repository: %v", err)
	}
	f.Asked(t)
	for _, key := range []string{"", "woodpecker/other/Org/app/42/x", "woodpecker/wp.example.com/Org/app/x/x", "woodpecker/wp.example.com/../app/42/x", "woodpecker/wp.example.com/Org/app/42"} {
		if err := c.Cancel(t.Context(), key); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v: want it refused", key, err)
		}
	}
	if asked := f.Asked(t); len(asked) != 0 {
		t.Errorf("asked %q for keys that are none", asked)
	}
}

func TestBuilds(t *testing.T) {
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		switch path {
		case "/api/user/repos":
			return `[{"id":5,"full_name":"Org/lib"},{"id":4,"full_name":"Org/app"}]`, true
		case "/api/repos/4/pipelines?page=1&perPage=25":
			return `[{"id":90,"number":42,"created":1796022575},{"id":1,"number":1,"created":1700000000}]`, true
		case "/api/repos/5/pipelines?page=1&perPage=25":
			return `[{"id":91,"number":7,"created":1796022605}]`, true
		}
		return "", false
	}}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, s.URL)
	n, calls, cursor := 0, 0, ""
	for {
		jobs, next, err := c.Builds(t.Context(), time.Unix(1790000000, 0), cursor)
		if err != nil {
			t.Fatal(err)
		}
		n += len(jobs)
		if calls++; next == "" || calls > 5 {
			break
		}
		cursor = next
	}
	if n != 4 || calls != 2 {
		t.Errorf("%d jobs in %d calls: want 4 in 2", n, calls)
	}
}

const event = `{"repo":{"id":4,"full_name":"Org/app"},"pipeline":{"id":90,"number":42,"event":"push","status":"success","created":1796022575,"commit":"7e4d","branch":"main","workflows":[{"id":301,"pid":1,"name":"build","state":"success","started":1796022595,"finished":1796022700,"agent_id":2},{"id":302,"pid":2,"name":"deploy","state":"pending"}]}}`

func TestEvents(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+citest.Token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, ": ping\n\ndata: %s\n\ndata: {broken\n\ndata: {}\n\nevent: error\ndata: eof\n\ndata: %s", event, event)
	}))
	defer s.Close()
	c := client(t, s.URL)
	var got []queue.Report
	err := c.Events(t.Context(), func(r queue.Report) { got = append(got, r) })
	if !errors.Is(err, cimeter.ErrUnavailable) || len(got) != 2 || len(got[0].Jobs) != 1 || got[0].Jobs[0].Key != "woodpecker/wp.example.com/Org/app/42/build" {
		t.Errorf("%+v, %v: want build alone, twice, and the end of the stream", got, err)
	}
	none, err := askhttp.New(askhttp.Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := woodpeckerapi.New(woodpeckerapi.Options{URL: "https://WP.example.com", Stream: none})
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Events(t.Context(), func(queue.Report) {}); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("without a token: %v", err)
	}
}
