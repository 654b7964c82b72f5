package gitlab_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
)

func hookBody(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "hooks", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestParseHook(t *testing.T) {
	base := cimeter.Build{CI: "gitlab", Server: "gitlab.example.com"}
	b := func(set func(*cimeter.Build)) cimeter.Build { c := base; set(&c); return c }
	for name, want := range map[string][]cimeter.Job{
		"job-old.json": {{
			Build: b(func(b *cimeter.Build) {
				b.Key, b.Project, b.Number, b.Name, b.PipelineStage = "gitlab/gitlab.example.com/1977", "gitlab-org/gitlab-test", "1977", "test", "test"
				b.Pipeline, b.Ref, b.SHA, b.Runner.Name = "2366", "gitlab-script-trigger", "2293ada6b400935a1378653304eaf6221e0fdb8f", "shared-runners-manager-6.gitlab.com"
			}),
			Status: cimeter.JobRunning, CreatedAt: at("2021-02-23T02:41:37Z"), QueuedAt: at("2021-02-23T02:41:37Z"), StartedAt: at("2021-02-23T02:41:40Z"),
			QueueSeconds: cimeter.Some(3.0),
		}},
		"job-new.json": {{
			Build: b(func(b *cimeter.Build) {
				b.Key, b.Project, b.Number, b.Name, b.PipelineStage = "gitlab/gitlab.example.com/4242", "group/app", "4242", "build-and-test", "test"
				b.Pipeline, b.Ref, b.SHA, b.Runner.Name, b.Attempt = "991", "main", "95d4", "docker-1", 2
				b.URL = "https://gitlab.example.com/group/app/-/jobs/4242"
			}),
			Status: cimeter.JobFailed, CreatedAt: at("2026-08-24T10:00:00Z"), QueuedAt: at("2026-08-24T10:00:00.75Z"), StartedAt: at("2026-08-24T10:00:05Z"),
			EndedAt: at("2026-08-24T10:01:00Z"), QueueSeconds: cimeter.Some(4.25), FailureReason: "script_failure",
		}},
		"pipeline.json": {
			{
				Build: b(func(b *cimeter.Build) {
					b.Key, b.Project, b.Number, b.Name, b.PipelineStage = "gitlab/gitlab.example.com/380", "gitlab-org/gitlab-test", "380", "production", "deploy"
					b.Pipeline, b.Ref, b.SHA, b.Event = "31", "refs/merge-requests/5/head", "bcbb", "merge_request_event"
					b.URL = "http://gitlab.example.com/gitlab-org/gitlab-test/-/jobs/380"
				}),
				Status: cimeter.JobSkipped, CreatedAt: at("2016-08-12T15:23:28Z"),
			},
			{
				Build: b(func(b *cimeter.Build) {
					b.Key, b.Project, b.Number, b.Name, b.PipelineStage = "gitlab/gitlab.example.com/377", "gitlab-org/gitlab-test", "377", "test-image", "test"
					b.Pipeline, b.Ref, b.SHA, b.Event, b.Runner.Name = "31", "refs/merge-requests/5/head", "bcbb", "merge_request_event", "shared-runners-manager-6"
					b.URL = "http://gitlab.example.com/gitlab-org/gitlab-test/-/jobs/377"
				}),
				Status: cimeter.JobSuccess, CreatedAt: at("2016-08-12T15:23:28Z"), QueuedAt: at("2016-08-12T15:22:56Z"), StartedAt: at("2016-08-12T15:26:12Z"),
				EndedAt: at("2016-08-12T15:26:29Z"), QueueSeconds: cimeter.Some(196.0),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, p, err := gitlab.ParseHook("GitLab.example.com", hookBody(t, name))
			if err != nil {
				t.Fatal(err)
			}
			got, _ := json.MarshalIndent(r.Jobs, "", " ")
			text, _ := json.MarshalIndent(want, "", " ")
			if string(got) != string(text) {
				t.Errorf("got\n%s\nwant\n%s", got, text)
			}
			if r.WholeJobs || strings.Contains(string(got), "not to be kept") {
				t.Errorf("whole %v, or a variable in it", r.WholeJobs)
			}
			if name == "pipeline.json" {
				want := gitlab.Pipeline{ID: "31", Project: "gitlab-org/gitlab-test", Ref: "refs/merge-requests/5/head", SHA: "bcbb", Source: "merge_request_event",
					Ended: true, Status: cimeter.JobSuccess, FinishedAt: at("2016-08-12T15:26:29Z"), MergeRequest: 5, TargetProject: 1, TargetBranch: "master"}
				if *p != want {
					t.Errorf("got %+v\nwant %+v", *p, want)
				}
			}
		})
	}
	for text, want := range map[string]error{
		`{"object_kind":"push"}`: cimeter.ErrUnsupported, `{"object_kind":"build"}`: cimeter.ErrInvalid, `{"object_kind":"pipeline"}`: cimeter.ErrInvalid,
		`{"text":"job done"}`: cimeter.ErrInvalid, ``: cimeter.ErrInvalid, `[]`: cimeter.ErrInvalid, `{"object_kind":"build","build_id":"1"}`: cimeter.ErrInvalid,
	} {
		if _, _, err := gitlab.ParseHook("h", []byte(text)); !errors.Is(err, want) {
			t.Errorf("%s: %v: want %v", text, err, want)
		}
	}
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]string{
		"2021-02-23 02:41:37 UTC": "2021-02-23T02:41:37Z", "2021-02-23T02:41:37.886Z": "2021-02-23T02:41:37.886Z",
		"2021-02-23T03:41:37+01:00": "2021-02-23T02:41:37Z", "2021-02-23 03:41:37 +0100": "2021-02-23T02:41:37Z",
	} {
		if got, err := gitlab.ParseTime(text); err != nil || !got.Equal(at(want)) || got.Location() != time.UTC {
			t.Errorf("%s: %v, %v: want %s", text, got, err, want)
		}
	}
	if got, err := gitlab.ParseTime(""); err != nil || !got.IsZero() {
		t.Errorf("nothing: %v, %v", got, err)
	}
	if _, err := gitlab.ParseTime("yesterday"); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("yesterday: %v", err)
	}
}

const signing = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// signed is a webhook's header as GitLab signs it.
func signed(secret, id string, sent time.Time, body []byte) http.Header {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		panic(err)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", id, sent.Unix(), body)
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", fmt.Sprint(sent.Unix()))
	h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	h.Set("Idempotency-Key", id)
	return h
}

func TestVerifyHook(t *testing.T) {
	now, body := at("2026-08-24T10:00:00Z"), hookBody(t, "job-new.json")
	other := "whsec_" + base64.StdEncoding.EncodeToString([]byte("ffffffffffffffffffffffffffffffff"))
	with := func(h http.Header, kv ...string) http.Header {
		h = h.Clone()
		for i := 0; i < len(kv); i += 2 {
			h.Set(kv[i], kv[i+1])
		}
		return h
	}
	good := signed(signing, "id-1", now, body)
	plain := http.Header{"X-Gitlab-Token": {"s3cret"}}
	for name, c := range map[string]struct {
		secrets []string
		header  http.Header
		body    []byte
		ok      bool
	}{
		"token":                              {[]string{"s3cret"}, plain, body, true},
		"token, the second of two":           {[]string{"new", "s3cret"}, plain, body, true},
		"token, the first of two":            {[]string{"s3cret", "new"}, plain, body, true},
		"another token":                      {[]string{"s3cret"}, http.Header{"X-Gitlab-Token": {"s3cret "}}, body, false},
		"a longer token":                     {[]string{"s3cret"}, http.Header{"X-Gitlab-Token": {"s3crets3cret"}}, body, false},
		"no token":                           {[]string{"s3cret"}, http.Header{}, body, false},
		"no secret, no token":                {nil, http.Header{}, body, false},
		"empty secret, empty token":          {[]string{""}, http.Header{"X-Gitlab-Token": {""}}, body, false},
		"signed":                             {[]string{signing}, good, body, true},
		"signed with the old and the new":    {[]string{signing}, with(good, "webhook-signature", "v1,AAAA "+good.Get("webhook-signature")), body, true},
		"signed by another":                  {[]string{signing}, signed(other, "id-1", now, body), body, false},
		"changed body":                       {[]string{signing}, good, append([]byte(" "), body...), false},
		"changed id":                         {[]string{signing}, with(good, "webhook-id", "id-2"), body, false},
		"changed time":                       {[]string{signing}, with(good, "webhook-timestamp", fmt.Sprint(now.Unix()+1)), body, false},
		"replayed after five minutes":        {[]string{signing}, signed(signing, "id-1", now.Add(-301*time.Second), body), body, false},
		"almost late":                        {[]string{signing}, signed(signing, "id-1", now.Add(-299*time.Second), body), body, true},
		"from the future":                    {[]string{signing}, signed(signing, "id-1", now.Add(301*time.Second), body), body, false},
		"another version of signature":       {[]string{signing}, with(good, "webhook-signature", "v1a,"+good.Get("webhook-signature")[3:]), body, false},
		"not signed":                         {[]string{signing}, plain, body, false},
		"the signing token as a plain token": {[]string{signing}, http.Header{"X-Gitlab-Token": {signing}}, body, false},
		"an empty signing token":             {[]string{"whsec_"}, signed("whsec_", "id-1", now, body), body, false},
		"a thousand signatures before it":    {[]string{signing}, with(good, "webhook-signature", strings.Repeat("v1,AAAA ", 1000)+good.Get("webhook-signature")), body, false},
	} {
		err := gitlab.VerifyHook(c.secrets, c.header.Get, c.body, now)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, cimeter.ErrUnauthorized) {
			t.Errorf("%s: %v: want it to pass: %v", name, err, c.ok)
		}
		if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "MDEy")) {
			t.Errorf("%s: the error tells a secret: %v", name, err)
		}
	}
}

func TestHookID(t *testing.T) {
	for want, h := range map[string]http.Header{
		"k":    {"Idempotency-Key": {"k"}, "X-Gitlab-Event-Uuid": {"shared"}},
		"id-1": signed(signing, "id-1", at("2026-08-24T10:00:00Z"), nil),
		"":     {"X-Gitlab-Event-Uuid": {"shared"}},
	} {
		if got := gitlab.HookID(h.Get); got != want {
			t.Errorf("%q: want %q", got, want)
		}
	}
}

func TestMergeRequestOf(t *testing.T) {
	for ref, want := range map[string]int64{"refs/merge-requests/12/head": 12, "refs/merge-requests/3/merge": 3, "main": 0, "refs/merge-requests/x/head": 0, "refs/merge-requests/1": 0} {
		if got := gitlab.MergeRequestOf(ref); got != want {
			t.Errorf("%s: %d: want %d", ref, got, want)
		}
	}
}

// Whatever a body holds, what is told has keys of the server and no negative time.
func FuzzParseHook(f *testing.F) {
	for _, name := range []string{"job-old.json", "job-new.json", "pipeline.json"} {
		f.Add(hookBody(f, name))
	}
	f.Add([]byte(`{"object_kind":"build","build_id":1,"build_status":"x","build_queued_duration":-1e308}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, p, err := gitlab.ParseHook("gitlab.example.com", body)
		if err != nil && (p != nil || len(r.Jobs) > 0) {
			t.Fatalf("an error and a report: %v", err)
		}
		seen := map[string]bool{}
		for _, j := range r.Jobs {
			if !strings.HasPrefix(j.Key, "gitlab/gitlab.example.com/") || seen[j.Key] || j.Attempt < 0 || j.QueueSeconds.Value < 0 {
				t.Fatalf("%+v", j)
			}
			seen[j.Key] = true
			if _, err := json.Marshal(j); err != nil {
				t.Fatal(err)
			}
		}
	})
}
