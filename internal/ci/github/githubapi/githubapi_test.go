package githubapi_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/askhttp"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/github"
	"github.com/cimeter/cimeter/internal/ci/github/githubapi"
	"github.com/cimeter/cimeter/internal/queue"
)

func token() (string, error) { return citest.Token, nil }

func client(t *testing.T, url string, projects ...string) *githubapi.Client {
	t.Helper()
	s, err := askhttp.New(askhttp.Options{URL: url, Token: token, Header: githubapi.Header()})
	if err != nil {
		t.Fatal(err)
	}
	if projects == nil {
		projects = []string{"Org/app", "Org"}
	}
	c, err := githubapi.New(githubapi.Options{URL: "https://github.com", Ask: s, Projects: projects})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPoll(t *testing.T) {
	s := httptest.NewServer(&citest.Folder{Dir: "testdata/server"})
	defer s.Close()
	r, err := client(t, s.URL).Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	citest.Report(t, "testdata/poll.json", r)
}

// What did not change is answered 304 and told again all the same.
func TestPollUnchanged(t *testing.T) {
	var whole, unchanged atomic.Int32
	f := &citest.Folder{Dir: "testdata/server"}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tag := fmt.Sprintf(`W/"%x"`, sha256.Sum256([]byte(r.URL.String())))
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			unchanged.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		whole.Add(1)
		f.ServeHTTP(w, r)
	}))
	defer s.Close()
	c := client(t, s.URL)
	first, err := c.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if whole.Load() != 5 || unchanged.Load() != 5 || len(again.Jobs) != len(first.Jobs) || len(again.Workers) != len(first.Workers) {
		t.Errorf("%d whole answers and %d of 304; %d jobs: want 5 and 5, and the same jobs", whole.Load(), unchanged.Load(), len(again.Jobs))
	}
}

// A run that ended is asked for once more.
func TestPollEnd(t *testing.T) {
	over := false
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		switch {
		case over && strings.HasPrefix(path, "/repos/Org/app/actions/runs?"):
			return `{"workflow_runs":[{"id":5002,"status":"completed","event":"push"}]}`, true
		case over && strings.Contains(path, "/5002/jobs"):
			return `{"total_count":1,"jobs":[{"id":901,"run_id":5002,"name":"build","status":"completed","conclusion":"success","runner_id":31,"created_at":"2026-11-30T07:09:10Z","started_at":"2026-11-30T07:09:40Z","completed_at":"2026-11-30T07:12:00Z"}]}`, true
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
	for i, want := range []int{1, 0} {
		r, err := c.Poll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, j := range r.Jobs {
			if j.Pipeline == "5002" {
				n++
				if j.Status != cimeter.JobSuccess || j.EndedAt.IsZero() {
					t.Errorf("%+v: want its end", j)
				}
			}
		}
		if n != want {
			t.Errorf("poll %d: %d jobs of the run that ended: want %d", i, n, want)
		}
	}
}

// A token that may not see the runners leaves them out; a limit that is reached is
// an error that says until when.
func TestLimits(t *testing.T) {
	status, header := 403, http.Header{}
	f := &citest.Folder{Dir: "testdata/server"}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/runners") {
			for name := range header {
				w.Header().Set(name, header.Get(name))
			}
			w.WriteHeader(status)
			return
		}
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Add(10*time.Minute).Unix()))
		f.ServeHTTP(w, r)
	}))
	defer s.Close()
	r, err := client(t, s.URL).Poll(t.Context())
	if err != nil || len(r.Jobs) != 5 || !r.WholeJobs || r.WholeWorkers || len(r.Workers) != 0 {
		t.Errorf("%+v, %v: want jobs and no word of runners", r, err)
	}
	if r.Wait < 9*time.Minute || r.Wait > 11*time.Minute {
		t.Errorf("wait %v: want ten minutes: nothing is left", r.Wait)
	}
	for _, code := range []int{403, 429} {
		status = code
		header.Set("X-RateLimit-Remaining", "0")
		header.Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Add(5*time.Minute).Unix()))
		var source *queue.SourceError
		if _, err := client(t, s.URL).Poll(t.Context()); !errors.As(err, &source) || source.RetryAfter < 4*time.Minute || source.RetryAfter > 6*time.Minute || queue.Reason(err) != "limited" {
			t.Errorf("%d at the limit: %v: want five minutes", code, err)
		}
	}
}

func TestFaults(t *testing.T) {
	citest.Faults(t, &citest.Folder{Dir: "testdata/server"}, func(t *testing.T, url string) citest.Poller {
		return client(t, url)
	})
	for _, body := range []string{`{}`, `{"message":"x"}`, `{"workflow_runs":null}`, `{"workflow_runs":[{"id":0}]}`} {
		s := httptest.NewServer(&citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) { return body, strings.Contains(path, "/actions/runs?") }})
		if r, err := client(t, s.URL).Poll(t.Context()); !errors.Is(err, cimeter.ErrInvalid) || r.WholeJobs {
			t.Errorf("%s: %+v, %v", body, r, err)
		}
		s.Close()
	}
	for _, projects := range [][]string{nil, {""}, {"a/b/c"}, {"../x"}, {"a/.."}} {
		if _, err := githubapi.New(githubapi.Options{URL: "https://github.com", Projects: projects}); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("projects %q: %v", projects, err)
		}
	}
	for address, want := range map[string]string{"https://github.com": "https://api.github.com", "https://GitHub.com/": "https://api.github.com", "https://ghe.example.com": "https://ghe.example.com/api/v3"} {
		if got := githubapi.API(address); got != want {
			t.Errorf("API of %s: %s: want %s", address, got, want)
		}
	}
}

func TestCancel(t *testing.T) {
	f := &citest.Folder{Dir: "testdata/server"}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, s.URL)
	for _, key := range []string{"github/github.com/Org/app/5002/job/901", github.Key("github.com", "Org/app", "5002", 2, "GitHub Actions 12", "build"), github.Key("github.com", "Org/app", "5002", 2, "big-1", "a/b")} {
		if err := c.Cancel(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if asked := f.Asked(t); !slices.Equal(asked, []string{"POST /repos/Org/app/actions/runs/5002/cancel"}) {
			t.Errorf("%s: asked %q", key, asked)
		}
	}
	for _, key := range []string{"", "github/other/Org/app/5002/job/901", "github/github.com/Org/app/x/job/1", "github/github.com/../app/5002/job/1", "github/local/0123456789abcdef"} {
		if err := c.Cancel(t.Context(), key); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v: want it refused", key, err)
		}
	}
}

func TestBuilds(t *testing.T) {
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		return `{"workflow_runs":[{"id":5002,"status":"completed","event":"push"}]}`, path == "/repos/Org/app/actions/runs?created=%3E%3D2026-11-01T00%3A00%3A00Z&page=1&per_page=30"
	}}
	s := httptest.NewServer(f)
	defer s.Close()
	jobs, next, err := client(t, s.URL, "Org", "Org/app").Builds(t.Context(), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), "")
	if err != nil || next != "" || len(jobs) != 2 || jobs[0].Event != "push" {
		t.Errorf("%+v, next %q, %v", jobs, next, err)
	}
	if _, _, err := client(t, s.URL).Builds(t.Context(), time.Time{}, "x"); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("cursor x: %v", err)
	}
}

const payload = `{"action":"in_progress","workflow_job":{"id":901,"run_id":5002,"run_attempt":2,"html_url":"https://github.com/Org/app/actions/runs/5002/job/901","head_sha":"7e4d","head_branch":"main","name":"build (1.26)","status":"in_progress","conclusion":null,"labels":["self-hosted","big"],"runner_id":31,"runner_name":"big-1","created_at":"2026-11-30T07:09:10Z","started_at":"2026-11-30T07:09:40Z","completed_at":null,"steps":[]},"repository":{"id":1,"full_name":"Org/app"},"organization":{"login":"Org"},"sender":{"login":"a"}}`

func sign(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func hook() githubapi.Hook { return githubapi.Hook{URL: "https://github.com", Secret: token} }

func TestHookVerify(t *testing.T) {
	// The example of GitHub's own documentation.
	docs := githubapi.Hook{Secret: func() (string, error) { return "It's a Secret to Everybody", nil }}
	if err := docs.Verify(header("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"), []byte("Hello, World!"), time.Time{}); err != nil {
		t.Error(err)
	}
	good := sign(citest.Token, payload)
	for name, test := range map[string]struct {
		h    http.Header
		body string
		ok   bool
	}{
		"good":                     {header("X-Hub-Signature-256", good), payload, true},
		"another secret":           {header("X-Hub-Signature-256", sign("x", payload)), payload, false},
		"signed by an empty one":   {header("X-Hub-Signature-256", sign("", payload)), payload, false},
		"another body":             {header("X-Hub-Signature-256", good), payload + " ", false},
		"without its prefix":       {header("X-Hub-Signature-256", good[7:]), payload, false},
		"SHA-1 alone":              {header("X-Hub-Signature", "sha1=ab"), payload, false},
		"none":                     {header(), payload, false},
		"half":                     {header("X-Hub-Signature-256", good[:39]), payload, false},
		"no hexadecimal":           {header("X-Hub-Signature-256", "sha256=zz"), payload, false},
		"a signature of something": {header("X-Hub-Signature-256", sign(citest.Token, "{}")), payload, false},
	} {
		if err := hook().Verify(test.h, []byte(test.body), time.Time{}); (err == nil) != test.ok || err != nil && !errors.Is(err, cimeter.ErrUnauthorized) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHookParse(t *testing.T) {
	h := header("X-GitHub-Event", "workflow_job", "X-GitHub-Delivery", "d-1", "Content-Type", "application/json")
	r, id, err := hook().Parse(h, []byte(payload))
	if err != nil || id != "d-1" {
		t.Fatalf("id %q, %v", id, err)
	}
	citest.Report(t, "testdata/hook.json", r)
	form := header("X-GitHub-Event", "workflow_job", "X-GitHub-Delivery", "d-1", "Content-Type", "application/x-www-form-urlencoded")
	if f, _, err := hook().Parse(form, []byte(url.Values{"payload": {payload}}.Encode())); err != nil || len(f.Jobs) != 1 || f.Jobs[0].Key != r.Jobs[0].Key {
		t.Errorf("as a form: %+v, %v", f, err)
	}
	for body, want := range map[string]error{"": cimeter.ErrInvalid, "null": cimeter.ErrInvalid, "{}": cimeter.ErrInvalid, payload[:300]: cimeter.ErrInvalid, `{"workflow_job":{"id":1},"repository":{"full_name":"a/b"}}`: cimeter.ErrInvalid} {
		if _, _, err := hook().Parse(h, []byte(body)); !errors.Is(err, want) {
			t.Errorf("%.60s: %v", body, err)
		}
	}
	for _, event := range []string{"ping", "workflow_run", ""} {
		if _, _, err := hook().Parse(header("X-GitHub-Event", event), []byte(payload)); !errors.Is(err, cimeter.ErrUnsupported) {
			t.Errorf("%s: %v", event, err)
		}
	}
}

func FuzzHook(f *testing.F) {
	f.Add([]byte(payload), "application/json")
	f.Add([]byte("payload=%7B%7D"), "application/x-www-form-urlencoded")
	f.Fuzz(func(t *testing.T, body []byte, kind string) {
		r, _, err := hook().Parse(header("X-GitHub-Event", "workflow_job", "Content-Type", kind), body)
		citest.Sane(t, r, err)
	})
}

// Jobs are told under their ids, whichever runner had them and whatever they are
// called, and under the name of the repository as its jobs know it.
func TestPollMatrix(t *testing.T) {
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		switch {
		case strings.Contains(path, "/actions/runs?"):
			return `{"workflow_runs":[{"id":5002,"run_attempt":2,"status":"in_progress","event":"push","repository":{"full_name":"Org/App"}}]}`, true
		case strings.Contains(path, "/runs/5002/jobs"):
			return `{"total_count":3,"jobs":[
				{"id":903,"run_id":5002,"run_attempt":2,"name":"test (3)","status":"in_progress","runner_id":31,"runner_name":"big-1","created_at":"2026-11-30T07:09:00Z","started_at":"2026-11-30T07:20:00Z"},
				{"id":902,"run_id":5002,"run_attempt":2,"name":"Unit tests","status":"completed","conclusion":"success","runner_id":31,"runner_name":"big-1","created_at":"2026-11-30T07:09:00Z","started_at":"2026-11-30T07:10:00Z"},
				{"id":901,"run_id":5002,"run_attempt":2,"name":"test (1)","status":"queued","runner_name":"","created_at":"2026-11-30T07:09:00Z","started_at":"2026-11-30T07:09:00Z"}]}`, true
		}
		return "", false
	}}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, s.URL)
	poll, err := c.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	past, _, err := c.Builds(t.Context(), time.Time{}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, jobs := range [][]cimeter.Job{poll.Jobs, past} {
		if len(jobs) != 3 {
			t.Fatalf("%d jobs: want 3", len(jobs))
		}
		for _, j := range jobs {
			want := "github.com\nOrg/App\n5002\nbig-1"
			if j.Number == "901" {
				want = ""
			}
			if j.Key != "github/github.com/Org/App/5002/job/"+j.Number || j.Place() != want {
				t.Errorf("%s, place %q: want %q", j.Key, j.Place(), want)
			}
		}
	}
	if len(poll.Moved) != 0 {
		t.Errorf("moved %v", poll.Moved)
	}
}

// A run that begins and finishes between two polls is told of, once.
func TestPollShort(t *testing.T) {
	runs := `{"id":5001,"status":"completed","event":"push"}`
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		switch {
		case strings.Contains(path, "/actions/runs?"):
			return `{"workflow_runs":[` + runs + `]}`, true
		case strings.Contains(path, "/runs/5009/jobs"):
			return `{"total_count":1,"jobs":[{"id":990,"run_id":5009,"run_attempt":1,"name":"lint","status":"completed","conclusion":"success","runner_id":31,"runner_name":"big-1","created_at":"2026-11-30T07:09:00Z","started_at":"2026-11-30T07:09:01Z","completed_at":"2026-11-30T07:09:03Z"}]}`, true
		}
		return "", false
	}}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, s.URL)
	for step, want := range []int{0, 1, 0} {
		r, err := c.Poll(t.Context())
		if err != nil || len(r.Jobs) != want || want == 1 && r.Jobs[0].Status != cimeter.JobSuccess {
			t.Errorf("poll %d: %+v, %v: want %d", step, r.Jobs, err, want)
		}
		runs = `{"id":5009,"status":"completed","event":"push"},{"id":5001,"status":"completed","event":"push"}`
	}
}
