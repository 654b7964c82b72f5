package droneapi_test

import (
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/askhttp"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/drone"
	"github.com/cimeter/cimeter/internal/ci/drone/droneapi"
)

func token() (string, error) { return citest.Token, nil }

// client asks the server at url as the server that builds know by another name.
func client(t *testing.T, url string) *droneapi.Client {
	t.Helper()
	return clientAt(t, url, time.Now)
}

// clientAt is one whose clock is that of now.
func clientAt(t *testing.T, url string, now func() time.Time) *droneapi.Client {
	t.Helper()
	s, err := askhttp.New(askhttp.Options{URL: url, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	c, err := droneapi.New(droneapi.Options{URL: "https://Drone.example.com:8443/", Ask: citest.Clocked{Doer: s, Now: now}})
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
	first := f.Asked(t)
	if len(first) != 5 || r.Requests != 5 {
		t.Errorf("asked %q and says %d: want queue, builds, repositories and two builds", first, r.Requests)
	}
	// Nothing moved: nothing but the two lists is asked for, and the same is told.
	again, err := c.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if asked := f.Asked(t); len(asked) != 2 || len(again.Jobs) != len(r.Jobs) || !again.WholeJobs {
		t.Errorf("asked %q; told of %d jobs: want %d", asked, len(again.Jobs), len(r.Jobs))
	}
}

// A build that left the queue is told of once more, with its end, and then no more.
func TestPollEnd(t *testing.T) {
	over := false
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		switch {
		case over && (path == "/api/queue" || path == "/api/builds/incomplete"):
			return "[]", true
		case over && strings.HasSuffix(path, "/builds/17"):
			return `{"id":40,"number":17,"status":"failure","event":"push","after":"7e4d","target":"main","stages":[
				{"id":71,"number":1,"name":"default","status":"failure","machine":"ci-7","started":1796022600,"stopped":1796022700,"created":1796022580,"version":5},
				{"id":72,"number":2,"name":"deploy","status":"skipped","started":0,"stopped":0,"created":1796022580,"version":2}]}`, true
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
		got[j.Key] = j.Status
		if j.Key == "drone/drone.example.com:8443/Org/app/17/1" && (j.EndedAt.Unix() != 1796022700 || j.QueuedAt.Unix() != 1796022580) {
			t.Errorf("%+v: want its times", j)
		}
	}
	if got["drone/drone.example.com:8443/Org/app/17/1"] != cimeter.JobFailed || got["drone/drone.example.com:8443/Org/app/17/2"] != cimeter.JobSkipped {
		t.Errorf("told %v", got)
	}
	if r, err = c.Poll(t.Context()); err != nil || len(r.Jobs) != 0 || !r.WholeJobs {
		t.Errorf("%d jobs, whole %v, %v: want none of all", len(r.Jobs), r.WholeJobs, err)
	}
}

// A stage of a build that the list of 50 does not hold cannot be named: the report
// does not say that it is whole.
func TestPollBeyondTheList(t *testing.T) {
	s := httptest.NewServer(&citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		return "[]", path == "/api/builds/incomplete"
	}})
	defer s.Close()
	if r, err := client(t, s.URL).Poll(t.Context()); err != nil || r.WholeJobs || len(r.Jobs) != 0 {
		t.Errorf("%+v, %v: want no job and not whole", r, err)
	}
}

// A repository that is deleted while its build runs must not end all polls.
func TestPollGone(t *testing.T) {
	f := &citest.Folder{Dir: t.TempDir(), Change: func(path string) (string, bool) {
		switch path {
		case "/api/queue":
			return "[]", true
		case "/api/builds/incomplete":
			return `[{"slug":"a/b","build":{"id":1,"number":1}}]`, true
		}
		return "", false
	}}
	gone := httptest.NewServer(f)
	defer gone.Close()
	if r, err := client(t, gone.URL).Poll(t.Context()); err != nil || len(r.Jobs) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestFaults(t *testing.T) {
	citest.Faults(t, &citest.Folder{Dir: "testdata/server"}, func(t *testing.T, url string) citest.Poller {
		return client(t, url)
	})
}

// The key of a job is that of the agent's record of the same stage.
func TestKeys(t *testing.T) {
	s := httptest.NewServer(&citest.Folder{Dir: "testdata/server"})
	defer s.Close()
	r, err := client(t, s.URL).Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id, ok := drone.Identify(&cimeter.Container{Name: "drone-ZLpmnUx4slHVaLx2pvev", Labels: map[string]string{
		"io.drone": "true", "io.drone.build.number": "17", "io.drone.repo.slug": "Org/app", "io.drone.stage.name": "default",
		"io.drone.stage.number": "1", "io.drone.step.name": "clone", "io.drone.system.host": "Drone.example.com:8443",
	}, Env: map[string]string{"DRONE_BRANCH": "main", "DRONE_COMMIT_SHA": "7e4d", "DRONE_BUILD_EVENT": "push", "DRONE_STAGE_MACHINE": "ci-7", "DRONE_BUILD_LINK": "https://Drone.example.com:8443/Org/app/17"}})
	if !ok {
		t.Fatal("not identified")
	}
	i := slices.IndexFunc(r.Jobs, func(j cimeter.Job) bool { return j.Key == id.Build.Key })
	if i < 0 {
		t.Fatalf("no job has the key %s of the container", id.Build.Key)
	}
	if r.Jobs[i].Build != id.Build {
		t.Errorf("the job's build\n%+v: want that of its container\n%+v", r.Jobs[i].Build, id.Build)
	}
}

func TestCancel(t *testing.T) {
	f := &citest.Folder{Dir: "testdata/server"}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, s.URL)
	if err := c.Cancel(t.Context(), "drone/drone.example.com:8443/Org/app/17/2"); err != nil {
		t.Fatal(err)
	}
	if asked := f.Asked(t); !slices.Equal(asked, []string{"DELETE /api/repos/Org/app/builds/17"}) {
		t.Errorf("asked %q", asked)
	}
	for _, key := range []string{
		"", "drone/other/Org/app/17/2", "drone/drone.example.com:8443/Org/app/17", "drone/drone.example.com:8443/Org/app/x/2",
		"drone/drone.example.com:8443/../users/17/2", "drone/drone.example.com:8443/a/b/c/17/2", "drone/drone.example.com:8443/%2E%2E/users/17/2",
		"drone/drone.example.com:8443/Org/app/0/2", "drone/drone.example.com:8443//app/1/2",
	} {
		if err := c.Cancel(t.Context(), key); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v: want it refused", key, err)
		}
	}
	if asked := f.Asked(t); len(asked) != 0 {
		t.Errorf("asked %q for keys that are none", asked)
	}
}

// Backfill goes through the repositories and their pages, and stops at builds that
// are older.
func TestBuilds(t *testing.T) {
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		switch path {
		case "/api/repos?page=1&per_page=10000": // of the user's own a machine has none
			return `[{"slug":"Org/zoo"},{"slug":"Org/app"}]`, true
		case "/api/repos/Org/app/builds?page=1&per_page=25":
			return `[{"id":41,"number":18,"created":1796022590},{"id":40,"number":17,"created":1796022580},{"id":1,"number":1,"created":1700000000}]`, true
		case "/api/repos/Org/zoo/builds?page=1&per_page=25":
			return `[]`, true
		}
		return "", false
	}}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, s.URL)
	var keys []string
	cursor, calls := "", 0
	for {
		jobs, next, err := c.Builds(t.Context(), time.Unix(1796000000, 0), cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range jobs {
			keys = append(keys, j.Key[len("drone/drone.example.com:8443/"):])
		}
		if calls++; next == "" || calls > 5 {
			break
		}
		cursor = next
	}
	if want := []string{"Org/app/18/1", "Org/app/17/1", "Org/app/17/2"}; !slices.Equal(keys, want) || calls != 2 {
		t.Errorf("%q in %d calls: want %q in 2", keys, calls, want)
	}
	if _, _, err := c.Builds(t.Context(), time.Time{}, "x"); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("cursor x: %v", err)
	}
}
