package jenkinsapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/jenkins/jenkinsapi"
)

// tree is a stand-in that answers for folders, and jobs with builds of an hour each.
type tree struct {
	jobs  map[string]int // builds of each job, by path
	end   time.Time
	asked atomic.Int32
	gone  string // a job that is listed and not there
}

func (s *tree) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	path := strings.Trim(strings.TrimSuffix(r.URL.Path, "api/json"), "/")
	path = strings.TrimPrefix(strings.ReplaceAll("/"+path, "/job/", "/"), "/")
	address := func(path string) string {
		return "https://ci.example.com/jenkins/job/" + strings.ReplaceAll(strings.ReplaceAll(path, " ", "%20"), "/", "/job/") + "/"
	}
	var from, to int
	_, rest, _ := strings.Cut(r.FormValue("tree"), "]]{")
	if _, err := fmt.Sscanf(rest, "%d,%d}", &from, &to); err != nil {
		http.Error(w, "tree", http.StatusBadRequest)
		return
	}
	builds, isJob := s.jobs[path]
	if path == s.gone && path != "" {
		http.NotFound(w, r)
		return
	}
	answer := map[string]any{"_class": "x"}
	if isJob {
		list := []any{}
		for n := builds - from; n > max(0, builds-to); n-- {
			at := s.end.Add(time.Duration(n-builds) * time.Hour)
			list = append(list, map[string]any{"url": address(path) + fmt.Sprint(n) + "/", "number": n, "timestamp": at.UnixMilli(), "building": false,
				"result": []string{"SUCCESS", "FAILURE"}[n%2], "duration": 60_000, "builtOn": "agent-1",
				"actions": []any{map[string]any{}, map[string]any{"_class": "jenkins.metrics.impl.TimeInQueueAction", "buildableDurationMillis": 2500}}})
		}
		answer["allBuilds"] = list
	} else {
		below := map[string]bool{}
		for job := range s.jobs {
			if rest, ok := strings.CutPrefix("/"+job, strings.TrimRight("/"+path, "/")+"/"); ok {
				name, _, _ := strings.Cut(rest, "/")
				below[strings.TrimPrefix(path+"/"+name, "/")] = true
			}
		}
		list := []any{}
		for p := range below {
			list = append(list, map[string]any{"url": address(p)})
		}
		list = append(list, map[string]any{"url": address("team")}, map[string]any{"url": "https://ci.example.com/jenkins/view/all/"}) // a circle, and what is no job
		answer["jobs"] = list
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// Every build of the time that is asked for is told of once, in folders too, also
// when another process goes on in the middle.
func TestBuilds(t *testing.T) {
	end := time.UnixMilli(1796022600000)
	for name, test := range map[string]struct {
		hours, want int
		gone        string
	}{"all": {100_000, 250 + 3 + 100 + 40*2, ""}, "since": {150, 151 + 3 + 100 + 40*2, ""}, "one is gone": {100_000, 250 + 3 + 40*2, "team/inner/my app"}} {
		s := &tree{jobs: map[string]int{"nightly": 250, "empty": 0, "team/a": 3, "team/inner/my app": 100}, end: end, gone: test.gone}
		for n := range 40 {
			s.jobs[fmt.Sprintf("many/branch-%d", n)] = 2
		}
		server := httptest.NewServer(basic(s))
		got := map[string]cimeter.Job{}
		cursor := ""
		for calls := 1; ; calls++ {
			s.asked.Store(0)
			jobs, next, err := client(t, server.URL).Builds(t.Context(), end.Add(-time.Duration(test.hours)*time.Hour), cursor)
			if err != nil {
				t.Fatal(err)
			}
			if n := s.asked.Load(); n > 27 {
				t.Errorf("%s: a page took %d requests", name, n)
			}
			for _, j := range jobs {
				if _, twice := got[j.Key]; twice {
					t.Errorf("%s: %s twice", name, j.Key)
				}
				got[j.Key] = j
			}
			if next == "" {
				break
			}
			if next == cursor || calls > 100 {
				t.Fatalf("cursor %s leads to itself", next)
			}
			cursor = next
		}
		server.Close()
		if len(got) != test.want {
			t.Errorf("%s: %d builds: want %d", name, len(got), test.want)
		}
		if test.gone == "" {
			j := got["jenkins/ci.example.com/team/inner/my%20app/100"]
			if j.Status != cimeter.JobSuccess || !j.StartedAt.Equal(end) || j.EndedAt.Sub(j.StartedAt) != time.Minute || j.QueueSeconds != cimeter.Some(2.5) || j.Worker != "agent-1" || j.Project != "team/inner/my app" {
				t.Errorf("%s: %+v", name, j)
			}
		}
	}
}

func TestBuilds_faults(t *testing.T) {
	for body, want := range map[string]error{"": cimeter.ErrInvalid, "[]": cimeter.ErrInvalid, `{"jobs":{}}`: cimeter.ErrInvalid} {
		s := httptest.NewServer(basic(&citest.Folder{Change: func(string) (string, bool) { return body, true }}))
		if jobs, next, err := client(t, s.URL).Builds(t.Context(), time.Time{}, ""); !errors.Is(err, want) || len(jobs) > 0 || next != "" {
			t.Errorf("%q: %v, %q, %v", body, jobs, next, err)
		}
		s.Close()
	}
	for _, cursor := range []string{"x", `{"d":-1}`} {
		if _, _, err := client(t, "http://127.0.0.1:1").Builds(t.Context(), time.Time{}, cursor); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("cursor %s: %v", cursor, err)
		}
	}
}

func header(authorization string) http.Header { return http.Header{"Authorization": {authorization}} }

func TestHookVerify(t *testing.T) {
	const secret = "pa/ss%word"
	hook := jenkinsapi.Hook{URL: "https://ci.example.com", Secret: func() (string, error) { return secret, nil }}
	basicOf := func(user, password string) http.Header {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.SetBasicAuth(user, password)
		return r.Header
	}
	for name, test := range map[string]struct {
		header http.Header
		ok     bool
	}{
		"password": {basicOf("jenkins", secret), true}, "without user": {basicOf("", secret), true}, "as it stands in an address": {basicOf("jenkins", "pa%2Fss%25word"), true},
		"bearer": {header("Bearer " + secret), true}, "in small": {header("bearer " + secret), true},
		"another": {basicOf("jenkins", "x"), false}, "as the user": {basicOf(secret, ""), false}, "another token": {header("Bearer x"), false}, "none": {http.Header{}, false},
		"empty": {header("Bearer "), false}, "garbage": {header("Basic ???"), false}, "another scheme": {header("Digest " + secret), false}, "no scheme": {header(secret), false},
	} {
		if err := hook.Verify(test.header, nil, time.Now()); (err == nil) != test.ok || err != nil && (!errors.Is(err, cimeter.ErrUnauthorized) || strings.Contains(err.Error(), secret)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	hook.Secret = func() (string, error) { return "", nil }
	for _, h := range []http.Header{header("Bearer "), basicOf("", ""), {}} {
		if err := hook.Verify(h, nil, time.Now()); !errors.Is(err, cimeter.ErrUnauthorized) {
			t.Errorf("without a secret: %v", err)
		}
	}
}

// Bodies as the plugins' own sources and documents write them.
const (
	queuedHook    = `{"name":"app","display_name":"app","url":"job/team/job/app/","build":{"full_url":"https://ci.example.com/jenkins/job/team/job/app/18/","number":18,"queue_id":41,"timestamp":1796022600000,"duration":0,"phase":"QUEUED","url":"job/team/job/app/18/","scm":{"changes":[],"culprits":[]},"log":"","notes":"","artifacts":{}}}`
	startedHook   = `{"name":"app","display_name":"app","url":"job/team/job/app/","build":{"full_url":"https://ci.example.com/jenkins/job/team/job/app/18/","number":18,"queue_id":41,"timestamp":1796022610000,"duration":0,"phase":"STARTED","status":"FAILURE","url":"job/team/job/app/18/","scm":{},"log":"","artifacts":{}}}`
	completedHook = `{"name":"app","url":"job/team/job/app/","build":{"full_url":"https://ci.example.com/jenkins/job/team/job/app/18/","number":18,"queue_id":41,"timestamp":1796022640500,"duration":30500,"phase":"COMPLETED","status":"UNSTABLE","url":"job/team/job/app/18/","scm":{"url":"https://git.example.com/app.git","branch":"origin/main","commit":"c6d8"},"parameters":{"branch":"main"},"log":"","artifacts":{"a.war":{"archive":"https://ci.example.com/jenkins/job/app/18/artifact/a.war"}}}}`
	finalizedHook = `{"name":"app","url":"job/team/job/app/","build":{"number":18,"timestamp":1796022640900,"duration":30500,"phase":"FINALIZED","status":"UNSTABLE","url":"job/team/job/app/18/"}}`
	oldHook       = `{"name":"app","url":"job/app/","build":{"full_url":"http://localhost:8080/job/app/18/","number":18,"phase":"COMPLETED","status":"SUCCESS","url":"job/app/18/"}}`
	eventHook     = `{"data":{"_class":"io.jenkins.plugins.generic.event.data.WorkflowRunData","actions":[{},{"_class":"x"}],"building":true,"duration":1715,"id":"2","number":2,"queueId":3,"result":"SUCCESS","timestamp":1796022610000,"_multiBranch":true},"dataType":"org.jenkinsci.plugins.workflow.job.WorkflowRun","id":"aaf73c16","source":"job/team/job/my%20app/","time":"2026-11-30T13:48:17.022+0800","type":"run.completed"}`
	beganHook     = `{"data":{"multiBranch":true,"run":{"building":true,"duration":0,"number":2,"queueId":3,"result":null,"timestamp":1796022610000},"projectName":"main"},"dataType":"WorkflowRunData","id":"6f2e1eab","source":"job/team/job/my%20app/","type":"run.started"}`
)

func TestHookParse(t *testing.T) {
	hook := jenkinsapi.Hook{URL: "https://ci.example.com/jenkins/", Secret: func() (string, error) { return "x", nil }}
	ms := func(at time.Time) int64 {
		if at.IsZero() {
			return 0
		}
		return at.UnixMilli()
	}
	ids := map[string]bool{}
	for _, test := range []struct {
		body, key               string
		status                  cimeter.JobStatus
		created, started, ended int64
		reason                  string
	}{
		{queuedHook, "team/app/18", cimeter.JobRunning, 1796022600000, 0, 0, ""},
		{startedHook, "team/app/18", cimeter.JobRunning, 0, 1796022610000, 0, ""},
		{completedHook, "team/app/18", cimeter.JobFailed, 0, 1796022610000, 1796022640500, "unstable"},
		{finalizedHook, "team/app/18", cimeter.JobFailed, 0, 1796022610400, 1796022640900, "unstable"},
		{oldHook, "app/18", cimeter.JobSuccess, 0, 0, 0, ""},
		{strings.Replace(oldHook, `"number":18`, `"number":18,"timestamp":"2026-11-30T07:09:40.12+00:00"`, 1), "app/18", cimeter.JobSuccess, 0, 0, 1796022580120, ""},
		{eventHook, "team/my%20app/2", cimeter.JobSuccess, 0, 1796022610000, 1796022611715, ""},
		{beganHook, "team/my%20app/2", cimeter.JobRunning, 0, 1796022610000, 0, ""},
	} {
		r, id, err := hook.Parse(nil, []byte(test.body))
		if err != nil || len(r.Jobs) != 1 || r.WholeJobs {
			t.Errorf("%.200s: %+v, %v", test.body, r, err)
			continue
		}
		if ids[id] || id == "" {
			t.Errorf("%.200s: id %q is another's", test.body, id)
		}
		ids[id] = true
		j := r.Jobs[0]
		if j.Key != "jenkins/ci.example.com/"+test.key || j.Status != test.status || ms(j.CreatedAt) != test.created || ms(j.StartedAt) != test.started || ms(j.EndedAt) != test.ended || j.FailureReason != test.reason {
			t.Errorf("%.200s\n%+v: want %+v", test.body, j, test)
		}
	}
	if r, _, _ := hook.Parse(nil, []byte(completedHook)); r.Jobs[0].Ref != "main" || r.Jobs[0].SHA != "c6d8" || r.Jobs[0].Attempt != 0 {
		t.Errorf("%+v: want the branch", r.Jobs[0])
	}
	for _, body := range []string{"", "null", "{}", "[]", "<xml/>", `{"build":{"phase":"STARTED","number":0,"url":"job/a/0/"}}`, `{"build":{"phase":"STARTED","number":1,"url":"../"}}`,
		`{"type":"run.started","source":"","data":{"number":1}}`, `{"type":"run.started","source":"job/a/","data":[]}`, `{"type":"run.started","source":"job/a/"}`, startedHook[:100]} {
		if r, _, err := hook.Parse(nil, []byte(body)); !errors.Is(err, cimeter.ErrInvalid) || len(r.Jobs) > 0 {
			t.Errorf("%s: %+v, %v", body, r, err)
		}
	}
	for _, body := range []string{strings.Replace(startedHook, "STARTED", "NONE", 1), strings.Replace(eventHook, "run.completed", "run.deleted", 1), `{"type":"item.created","data":{}}`, `{"build":{}}`} {
		if _, _, err := hook.Parse(nil, []byte(body)); !errors.Is(err, cimeter.ErrUnsupported) {
			t.Errorf("%.100s: %v", body, err)
		}
	}
}

func FuzzHook(f *testing.F) {
	for _, body := range []string{queuedHook, startedHook, completedHook, finalizedHook, oldHook, eventHook, beganHook} {
		f.Add([]byte(body))
	}
	hook := jenkinsapi.Hook{URL: "https://ci.example.com/jenkins/", Secret: func() (string, error) { return "x", nil }}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, _, err := hook.Parse(nil, body)
		citest.Sane(t, r, err)
		if i := slices.IndexFunc(r.Jobs, func(j cimeter.Job) bool { return !j.EndedAt.IsZero() && j.EndedAt.Before(j.StartedAt) }); i >= 0 {
			t.Errorf("ends before it begins: %+v", r.Jobs[i])
		}
	})
}
