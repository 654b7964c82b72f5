package jenkinsapi_test

import (
	"encoding/base64"
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
	"github.com/cimeter/cimeter/internal/ci/jenkins/jenkinsapi"
)

// basic lets a stand-in that wants a bearer token be asked with user and token.
func basic(f http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Basic "+base64.StdEncoding.EncodeToString([]byte("meter:"+citest.Token)) {
			r.Header.Set("Authorization", "Bearer "+citest.Token)
		}
		f.ServeHTTP(w, r)
	})
}

func client(t *testing.T, url string) *jenkinsapi.Client {
	t.Helper()
	return clientAt(t, url, time.Now)
}

// clientAt is one whose clock is that of now.
func clientAt(t *testing.T, url string, now func() time.Time) *jenkinsapi.Client {
	t.Helper()
	s, err := askhttp.New(askhttp.Options{URL: url, User: "meter", Token: func() (string, error) { return citest.Token, nil }})
	if err != nil {
		t.Fatal(err)
	}
	c, err := jenkinsapi.New(jenkinsapi.Options{URL: "https://ci.example.com/jenkins/", Ask: citest.Clocked{Doer: s, Now: now}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPoll(t *testing.T) {
	s := httptest.NewServer(basic(&citest.Folder{Dir: "testdata/server"}))
	defer s.Close()
	r, err := client(t, s.URL).Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	citest.Report(t, "testdata/poll.json", r)
}

// A build that waited, ran and ended has since when it could have been taken.
func TestPollLife(t *testing.T) {
	step := 0
	f := &citest.Folder{Dir: t.TempDir(), Change: func(path string) (string, bool) {
		switch {
		case strings.HasPrefix(path, "/queue/") && step == 0:
			return `{"items":[{"id":41,"inQueueSince":1796022600000,"buildable":true,"buildableStartMilliseconds":1796022605000,"task":{"url":"http://x/job/a/"}}]}`, true
		case strings.HasPrefix(path, "/queue/"):
			return `{"items":[]}`, true
		case strings.HasPrefix(path, "/computer/") && step == 1:
			return `{"computer":[{"displayName":"n","numExecutors":1,"executors":[{"currentExecutable":{"url":"http://x/job/a/3/","number":3,"timestamp":1796022620000,"building":true,"queueId":41}}]}]}`, true
		case strings.HasPrefix(path, "/computer/"):
			return `{"computer":[{"displayName":"n","numExecutors":1,"executors":[{}]}]}`, true
		case strings.HasPrefix(path, "/job/a/3/api/json") && step == 2:
			return `{"url":"http://x/job/a/3/","number":3,"timestamp":1796022620000,"building":true,"duration":0,"queueId":41}`, true
		case strings.HasPrefix(path, "/job/a/3/api/json"):
			return `{"url":"http://x/job/a/3/","number":3,"timestamp":1796022620000,"building":false,"result":"UNSTABLE","duration":30500,"queueId":41}`, true
		}
		return "", false
	}}
	s := httptest.NewServer(basic(f))
	defer s.Close()
	c := client(t, s.URL)
	for _, want := range []struct {
		key    string
		status cimeter.JobStatus
	}{{"jenkins/ci.example.com/queue/41", cimeter.JobWaiting}, {"jenkins/ci.example.com/a/3", cimeter.JobRunning}, {"jenkins/ci.example.com/a/3", cimeter.JobRunning}, {"jenkins/ci.example.com/a/3", cimeter.JobFailed}} {
		r, err := c.Poll(t.Context())
		if err != nil || len(r.Jobs) != 1 || r.Jobs[0].Key != want.key || r.Jobs[0].Status != want.status || r.Jobs[0].QueuedAt.UnixMilli() != 1796022605000 {
			t.Fatalf("step %d: %+v, %v: want %v", step, r.Jobs, err, want)
		}
		if step == 3 && (r.Jobs[0].EndedAt.UnixMilli() != 1796022650500 || r.Jobs[0].FailureReason != "unstable") {
			t.Errorf("%+v: want its end", r.Jobs[0])
		}
		step++
	}
	if r, err := c.Poll(t.Context()); err != nil || len(r.Jobs) != 0 || !r.WholeJobs {
		t.Errorf("%+v, %v: want none of all", r, err)
	}
}

func TestFaults(t *testing.T) {
	citest.Faults(t, basic(&citest.Folder{Dir: "testdata/server"}), func(t *testing.T, url string) citest.Poller {
		return client(t, url)
	})
	for path, body := range map[string]string{"/queue/": `{"_class":"x"}`, "/computer/": `{"computer":null}`} {
		s := httptest.NewServer(basic(&citest.Folder{Dir: "testdata/server", Change: func(p string) (string, bool) { return body, strings.HasPrefix(p, path) }}))
		if r, err := client(t, s.URL).Poll(t.Context()); !errors.Is(err, cimeter.ErrInvalid) || r.WholeJobs {
			t.Errorf("%s: %+v, %v", body, r, err)
		}
		s.Close()
	}
}

func TestCancel(t *testing.T) {
	f := &citest.Folder{Dir: "testdata/server"}
	s := httptest.NewServer(basic(f))
	defer s.Close()
	c := client(t, s.URL)
	for key, want := range map[string]string{
		"jenkins/ci.example.com/queue/41":           "POST /queue/cancelItem?id=41",
		"jenkins/ci.example.com/team/my%20app/17":   "POST /job/team/job/my%20app/17/stop",
		"jenkins/ci.example.com/a/3":                "POST /job/a/3/stop",
		"jenkins/other/a/3":                         "",
		"jenkins/ci.example.com/a/x":                "",
		"jenkins/ci.example.com/../3":               "",
		"jenkins/ci.example.com/a%2F..%2F..%2Fx/3":  "",
		"jenkins/ci.example.com/%2E%2E/configure/3": "",
		"jenkins/ci.example.com/3":                  "",
		"":                                          "",
	} {
		err := c.Cancel(t.Context(), key)
		asked := f.Asked(t)
		if want == "" && (!errors.Is(err, cimeter.ErrInvalid) || len(asked) != 0) || want != "" && (err != nil || !slices.Equal(asked, []string{want})) {
			t.Errorf("%s: asked %q, %v: want %q", key, asked, err, want)
		}
	}
}

// A poll that fails after it saw a build begin loses nothing of it.
func TestPollFailsBetween(t *testing.T) {
	step := 0
	f := &citest.Folder{Dir: t.TempDir(), Change: func(path string) (string, bool) {
		switch {
		case strings.HasPrefix(path, "/queue/") && step == 0:
			return `{"items":[{"id":41,"inQueueSince":1796022600000,"buildable":true,"buildableStartMilliseconds":1796022605000,"task":{"url":"http://x/job/a/"}}]}`, true
		case strings.HasPrefix(path, "/queue/"):
			return `{"items":[]}`, true
		case strings.HasPrefix(path, "/computer/") && step == 0:
			return `{"computer":[{"displayName":"n","numExecutors":1,"executors":[{"currentExecutable":{"url":"http://x/job/b/1/","number":1,"timestamp":1,"building":true,"queueId":7}}]}]}`, true
		case strings.HasPrefix(path, "/computer/"):
			return `{"computer":[{"displayName":"n","numExecutors":1,"executors":[{"currentExecutable":{"url":"http://x/job/a/3/","number":3,"timestamp":1796022620000,"building":true,"queueId":41}}]}]}`, true
		case strings.HasPrefix(path, "/job/b/1/") && step == 1:
			return `garbage`, true
		case strings.HasPrefix(path, "/job/b/1/"):
			return `{"url":"http://x/job/b/1/","number":1,"timestamp":1,"building":false,"result":"SUCCESS","duration":5}`, true
		}
		return "", false
	}}
	s := httptest.NewServer(basic(f))
	defer s.Close()
	c := client(t, s.URL)
	for ; step < 3; step++ {
		r, err := c.Poll(t.Context())
		if (err != nil) != (step == 1) {
			t.Fatalf("step %d: %v", step, err)
		}
		if step == 2 && (len(r.Jobs) != 2 || r.Jobs[0].QueuedAt.UnixMilli() != 1796022605000 || r.Jobs[1].Status != cimeter.JobSuccess) {
			t.Errorf("%+v: want the build with since when it waited, and the end of the other", r.Jobs)
		}
	}
}
