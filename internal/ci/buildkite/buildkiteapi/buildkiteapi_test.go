package buildkiteapi_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/cimeter/cimeter/internal/ci/buildkite/buildkiteapi"
	"github.com/cimeter/cimeter/internal/ci/citest"
)

func token() (string, error) { return citest.Token, nil }

func client(t *testing.T, url string) *buildkiteapi.Client {
	t.Helper()
	s, err := askhttp.New(askhttp.Options{URL: url, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	c, err := buildkiteapi.New(buildkiteapi.Options{URL: "https://buildkite.com", Ask: s, Projects: []string{"acme"}})
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

// A build that is not told of any more is asked for once.
func TestPollEnd(t *testing.T) {
	over := false
	s := httptest.NewServer(&citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		switch {
		case over && strings.HasPrefix(path, "/v2/organizations/acme/builds"):
			return `[]`, true
		case over && strings.HasPrefix(path, "/v2/organizations/acme/pipelines/app/builds/12?"):
			return `{"number":12,"url":"https://api.buildkite.com/v2/organizations/acme/pipelines/app/builds/12","state":"passed","jobs":[
				{"id":"0190-a","type":"script","state":"passed","runnable_at":"2026-11-30T07:09:41Z","started_at":"2026-11-30T07:09:50Z","finished_at":"2026-11-30T07:10:50Z"},{"id":"0190-c","type":"script","state":"expired"}]}`, true
		}
		return "", false
	}})
	defer s.Close()
	c := client(t, s.URL)
	if _, err := c.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	over = true
	r, err := c.Poll(t.Context())
	if err != nil || len(r.Jobs) != 2 || r.Jobs[0].Status != cimeter.JobSuccess || r.Jobs[0].EndedAt.IsZero() || r.Jobs[1].Status != cimeter.JobCanceled || r.Jobs[1].FailureReason != "expired" {
		t.Errorf("%+v, %v: want how both ended", r.Jobs, err)
	}
	if r, err = c.Poll(t.Context()); err != nil || len(r.Jobs) != 0 || !r.WholeJobs {
		t.Errorf("%+v, %v: want none of all", r, err)
	}
}

func TestFaults(t *testing.T) {
	citest.Faults(t, &citest.Folder{Dir: "testdata/server"}, func(t *testing.T, url string) citest.Poller {
		return client(t, url)
	})
	for _, body := range []string{`[{"number":0}]`, `[{"number":1,"url":"https://x/"}]`, `{"message":"x"}`} {
		s := httptest.NewServer(&citest.Folder{Dir: "testdata/server", Change: func(p string) (string, bool) { return body, strings.Contains(p, "/builds?") }})
		if r, err := client(t, s.URL).Poll(t.Context()); !errors.Is(err, cimeter.ErrInvalid) || r.WholeJobs {
			t.Errorf("%s: %+v, %v", body, r, err)
		}
		s.Close()
	}
	for _, projects := range [][]string{nil, {""}, {"a/b"}, {".."}} {
		if _, err := buildkiteapi.New(buildkiteapi.Options{URL: "https://buildkite.com", Projects: projects}); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("projects %q: %v", projects, err)
		}
	}
}

func TestCancelAndBuilds(t *testing.T) {
	f := &citest.Folder{Dir: "testdata/server"}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, s.URL)
	if err := c.Cancel(t.Context(), "buildkite/buildkite.com/acme/app/12/0190-a"); err != nil {
		t.Fatal(err)
	}
	if asked := f.Asked(t); !slices.Equal(asked, []string{"PUT /v2/organizations/acme/pipelines/app/builds/12/cancel"}) {
		t.Errorf("asked %q", asked)
	}
	for _, key := range []string{"", "buildkite/other/acme/app/12/x", "buildkite/buildkite.com/acme/../12/x", "buildkite/buildkite.com/acme/app/-1/x", "buildkite/buildkite.com/acme/app/12"} {
		if err := c.Cancel(t.Context(), key); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: %v: want it refused", key, err)
		}
	}
	jobs, next, err := c.Builds(t.Context(), time.Unix(1790000000, 0), "")
	if err != nil || next != "" || len(jobs) != 4 {
		t.Errorf("%d jobs, next %q, %v: want 4 and the end", len(jobs), next, err)
	}
}

const payload = `{"event":"job.finished","build":{"id":"b1","number":12,"url":"https://api.buildkite.com/v2/organizations/acme/pipelines/app/builds/12","state":"running","commit":"7e4d","branch":"main","source":"webhook"},"job":{"id":"0190-a","type":"script","name":"test","state":"finished","exit_status":2,"soft_failed":false,"created_at":"2026-11-30 07:09:40 UTC","agent":null},"pipeline":{"slug":"app"},"agent":{"id":"ag-1","name":"host-1-1","connection_state":"connected"},"sender":{"name":"a"}}`

func sign(secret string, at time.Time, body string) http.Header {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	h := http.Header{}
	h.Set("X-Buildkite-Signature", fmt.Sprintf("timestamp=%d,signature=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil))))
	return h
}

func plain(token string) http.Header {
	h := http.Header{}
	h.Set("X-Buildkite-Token", token)
	return h
}

func hook() buildkiteapi.Hook { return buildkiteapi.Hook{URL: "https://buildkite.com", Secret: token} }

func TestHookVerify(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	good := sign(citest.Token, now, payload)
	both := sign("x", now, payload)
	both.Set("X-Buildkite-Token", citest.Token)
	for name, test := range map[string]struct {
		h    http.Header
		body string
		ok   bool
	}{
		"signed":                      {good, payload, true},
		"four minutes late":           {sign(citest.Token, now.Add(-4*time.Minute), payload), payload, true},
		"an hour late":                {sign(citest.Token, now.Add(-time.Hour), payload), payload, false},
		"an hour early":               {sign(citest.Token, now.Add(time.Hour), payload), payload, false},
		"another secret":              {sign("x", now, payload), payload, false},
		"another body":                {good, payload + " ", false},
		"plain":                       {plain(citest.Token), payload, true},
		"plain and wrong":             {plain("x"), payload, false},
		"plain and half":              {plain(citest.Token[:8]), payload, false},
		"plain, beside a forged sign": {both, payload, false},
		"none":                        {http.Header{}, payload, false},
		"garbage":                     {http.Header{"X-Buildkite-Signature": {"signature=x,timestamp=1"}}, payload, false},
	} {
		if err := hook().Verify(test.h, []byte(test.body), now); (err == nil) != test.ok || err != nil && !errors.Is(err, cimeter.ErrUnauthorized) {
			t.Errorf("%s: %v", name, err)
		}
	}
	none := buildkiteapi.Hook{Secret: func() (string, error) { return "", nil }}
	if err := none.Verify(plain(""), []byte(payload), now); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("without a secret: %v: want all refused", err)
	}
}

func TestHookParse(t *testing.T) {
	r, id, err := hook().Parse(sign(citest.Token, time.Unix(1, 0), payload), []byte(payload))
	if err != nil || len(id) != 64 {
		t.Fatalf("id %q, %v", id, err)
	}
	citest.Report(t, "testdata/hook.json", r)
	lost := `{"event":"agent.lost","agent":{"id":"ag-1","name":"host-1-1","hostname":"host-1","connection_state":"lost"}}`
	if r, _, err := hook().Parse(plain("x"), []byte(lost)); err != nil || len(r.Workers) != 1 || r.Workers[0].State != cimeter.WorkerOffline || r.WholeWorkers {
		t.Errorf("%+v, %v: want an agent that is lost", r, err)
	}
	for body, want := range map[string]error{
		"": cimeter.ErrInvalid, "null": cimeter.ErrUnsupported, `{"event":"ping"}`: cimeter.ErrUnsupported, `{"event":"build.running","build":{"number":1}}`: cimeter.ErrUnsupported,
		`{"event":"job.started"}`: cimeter.ErrInvalid, `{"event":"agent.lost"}`: cimeter.ErrInvalid, payload[:200]: cimeter.ErrInvalid,
	} {
		if _, _, err := hook().Parse(plain("x"), []byte(body)); !errors.Is(err, want) {
			t.Errorf("%.60s: %v", body, err)
		}
	}
}

func FuzzHook(f *testing.F) {
	f.Add([]byte(payload))
	f.Add([]byte(`{"event":"agent.stopped","agent":{"id":"a"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, _, err := hook().Parse(http.Header{}, body)
		citest.Sane(t, r, err)
	})
}

// A build that is made and finished between two polls is told of, once.
func TestPollShort(t *testing.T) {
	made := ""
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		switch {
		case strings.Contains(path, "created_from="):
			return "[" + made + "]", true
		case strings.Contains(path, "/builds?"):
			return "[]", true
		case strings.Contains(path, "/agents?"):
			return "[]", true
		}
		return "", false
	}}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, s.URL)
	for step, want := range []int{0, 0, 1, 0} {
		if step == 2 {
			made = `{"number":13,"url":"https://api.buildkite.com/v2/organizations/acme/pipelines/app/builds/13","state":"passed","finished_at":"2026-11-30T07:10:00Z","jobs":[{"id":"0190-z","type":"script","state":"passed"}]},
				{"number":14,"url":"https://api.buildkite.com/v2/organizations/acme/pipelines/app/builds/14","state":"running","finished_at":null,"jobs":[{"id":"0190-y","type":"script","state":"running"}]}`
		}
		r, err := c.Poll(t.Context())
		if err != nil || len(r.Jobs) != want || want == 1 && r.Jobs[0].Key != "buildkite/buildkite.com/acme/app/13/0190-z" {
			t.Errorf("poll %d: %+v, %v: want %d", step, r.Jobs, err, want)
		}
	}
}
