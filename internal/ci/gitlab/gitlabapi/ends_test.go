package gitlabapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/ci/gitlab/gitlabapi"
	"github.com/cimeter/cimeter/internal/queue"
)

// endsOf is a stand-in, one who asks it, and what is counted and is to be.
type endsOf struct {
	*standin
	c    *gitlabapi.Client
	ends *citest.Ends
	want map[string]citest.Ended
	wait time.Duration
	made int // requests
}

func newEndsOf(t *testing.T, s *standin, set ...func(*gitlabapi.Options)) *endsOf {
	t.Helper()
	return &endsOf{standin: s, c: client(t, s, set...), ends: citest.NewEnds(s.now), want: map[string]citest.Ended{}}
}

// job makes one that began now. Where it says how long it ran it is over.
func (e *endsOf) job(project, pipeline int64, name, status string, took time.Duration) *job {
	id := int64(len(e.jobs) + 1)
	j := &job{id: id, project: project, pipeline: pipeline, name: name, status: "running", runner: 1, manager: "s_1", created: e.now, queued: e.now, started: e.now}
	if e.jobs[id] = j; took > 0 {
		e.end(j, status, e.now.Add(took))
	}
	return j
}

func (e *endsOf) end(j *job, status string, at time.Time) {
	j.status, j.finished = status, at
	e.want[gitlab.JobKey(e.c.Server(), j.id)] = citest.Ended{Status: gitlab.JobStatus(status), Ran: at.Sub(j.started)}
}

// look polls once, ten seconds after the last time, unless it is to wait.
func (e *endsOf) look(t *testing.T) error {
	t.Helper()
	e.now = e.now.Add(gitlabapi.Interval)
	if e.wait -= gitlabapi.Interval; e.wait > 0 {
		return nil
	}
	r, err := e.ends.Poll(t, e.c, e.now)
	e.wait = r.Wait
	e.made += r.Requests
	return err
}

func (e *endsOf) looks(t *testing.T, n int) {
	t.Helper()
	for range n {
		if err := e.look(t); err != nil {
			t.Fatal(err)
		}
	}
}

// hook is what a webhook tells of a job.
func (e *endsOf) hook(t *testing.T, j *job) queue.Report {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"object_kind": "build", "build_id": j.id, "build_name": j.name, "build_stage": "test", "build_status": j.status, "build_created_at": iso(j.created),
		"build_started_at": iso(j.started), "build_finished_at": iso(j.finished), "build_duration": j.finished.Sub(j.started).Seconds(), "build_queued_duration": 0,
		"pipeline_id": j.id, "project": map[string]any{"path_with_namespace": pathOf(j.project)},
	})
	if err != nil {
		t.Fatal(err)
	}
	hook := gitlabapi.Hook{Server: e.c.Server(), Secrets: func() (string, error) { return "x", nil }}
	r, _, err := hook.Parse(http.Header{}, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Builds that come and end between two looks are each counted once, whatever the token
// and the server: thirty at once over many projects, more than a page in one pipeline,
// more pipelines than a page in one project, a child's, a later stage of a pipeline that
// runs on; also where webhooks tell of some, before and after the looks.
func TestPoll_ShortEnds(t *testing.T) {
	for name, set := range map[string]func(*standin){
		"administrator": func(s *standin) { s.admin = true },
		"member":        func(*standin) {},
		"member of a server that lists no ends at once": func(s *standin) {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				var body strings.Builder
				return r.URL.Path == "/api/graphql" && copied(&body, r) && strings.Contains(body.String(), "SUCCESS FAILED") && refuse(w)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandin(t)
			s.admin, s.projects = false, 200
			set(s)
			e := newEndsOf(t, s)
			for range 40 {
				e.job(1, 0, "job", "success", time.Second) // the past
			}
			clear(e.want)
			s.now = s.now.Add(time.Minute)
			e.ends = citest.NewEnds(s.now)
			e.looks(t, 3)
			rnd := rand.New(rand.NewPCG(3, 4))
			long := e.job(9, 5000, "job", "", 0)
			var hooked []*job
			var later *job
			for look := range 90 {
				switch look {
				case 3, 20:
					for n := range int64(30) {
						hooked = append(hooked, e.job(n*5+1, 0, "job", []string{"success", "failed", "canceled"}[n%3], time.Duration(n%5+1)*time.Second))
					}
				case 8: // more than a page in one pipeline, and a child's
					for range 50 {
						e.job(7, 6000, "job", "success", 2*time.Second)
					}
					e.job(7, 6000, "child", "failed", 3*time.Second)
				case 12: // more pipelines than a page has
					for n := range int64(9) {
						e.job(8, 7000+n, "job", "failed", time.Second)
					}
				case 15: // a later stage of a pipeline that runs on
					later = e.job(9, 5000, "job", "failed", time.Second)
				case 24:
					if e.ends.Times[gitlab.JobKey(e.c.Server(), later.id)] != 1 {
						t.Error("a build that ended in a pipeline that goes on was not told of within a minute and a half")
					}
				case 40: // the last stage
					e.job(9, 5000, "job", "failed", time.Second)
					e.end(long, "success", s.now.Add(time.Second))
				}
				if look < 45 { // seen by three looks or four
					e.job(rnd.Int64N(200)+1, 0, "job", "", 0)
				}
				for _, j := range s.jobs {
					if j.status == "running" && j != long && s.now.Sub(j.started) >= 35*time.Second {
						e.end(j, "success", s.now)
					}
				}
				for _, j := range hooked {
					if rnd.IntN(10) == 0 {
						e.ends.Hook(t, e.hook(t, j), s.now.Add(9*time.Second))
					}
				}
				if err := e.look(t); err != nil {
					t.Fatal(err)
				}
			}
			e.ends.Want(t, e.want)
			if most := 16 * 60; e.made > most {
				t.Errorf("%d requests in sixteen minutes: want at most 60 a minute", e.made)
			}
		})
	}
}

func refuse(w http.ResponseWriter) bool {
	answer(w, 200, map[string]any{"errors": []any{map[string]any{"message": "Argument 'statuses' on Field 'jobs' has an invalid value"}}})
	return true
}

// What came and ended while the server did not answer is counted when it does again,
// also where it is more than a page of one project, and of the server.
func TestPoll_ShortAway(t *testing.T) {
	for _, admin := range []bool{true, false} {
		for status, builds := range map[int]int64{429: 900, 500: 130, 503: 130} {
			s := newStandin(t)
			s.admin, s.projects = admin, 50
			e := newEndsOf(t, s)
			e.looks(t, 6)
			away := func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Retry-After", "30")
				w.WriteHeader(status)
				return true
			}
			s.fault = away
			for n := range builds {
				s.now = s.now.Add(time.Second)
				if e.job(map[bool]int64{true: n%50 + 1, false: 3}[n%2 == 0], 0, "job", "failed", time.Second); n%100 == 99 {
					_, err := e.ends.Poll(t, e.c, s.now)
					var source *queue.SourceError
					if !errors.As(err, &source) || source.Status != status || source.RetryAfter != 30*time.Second && status != 500 || source.Requests != 1 {
						t.Fatalf("%v: want %d", err, status)
					}
				}
			}
			s.fault = nil
			for look := 0; look < 90 && len(e.ends.Times) < len(e.want); look++ {
				if s.fault = nil; look%6 == 4 { // it goes on to fail now and then, in the middle of a look
					n := 0
					s.fault = func(w http.ResponseWriter, r *http.Request) bool {
						n++
						return n > 2 && away(w, r)
					}
				}
				if err := e.look(t); err != nil && s.fault == nil {
					t.Fatal(err)
				}
			}
			s.fault = nil
			e.looks(t, 6)
			e.ends.Want(t, e.want)
		}
	}
}

// An older server tells where was pushed to; of few projects each is listed.
func TestPoll_ShortOld(t *testing.T) {
	for _, few := range []bool{true, false} {
		s := newStandin(t)
		s.admin, s.oldPipes, s.projects = false, true, 100
		e := newEndsOf(t, s, func(o *gitlabapi.Options) {
			if few {
				o.Projects = []string{pathOf(1), pathOf(2), pathOf(3)}
			}
		})
		s.events = []event{{1, 1}}
		e.looks(t, 6)
		for n := range int64(20) {
			j := e.job(n%3+1, 0, "job", "failed", time.Second)
			s.events = append(s.events, event{j.id + 1, j.project})
			e.looks(t, 1)
		}
		e.looks(t, 30)
		e.ends.Want(t, e.want)
		if j := e.ends.Last[gitlab.JobKey(e.c.Server(), 1)]; j.FailureReason != "script_failure" || j.SHA != "7e4d" {
			t.Errorf("%+v: want what REST tells", j)
		}
	}
}

// When polls begin anew, as another server of cimeter polled meanwhile, what that one saw
// is the past; what comes after is counted.
func TestPoll_Begin(t *testing.T) {
	for _, admin := range []bool{true, false} {
		s := newStandin(t)
		s.admin, s.projects = admin, 10
		e := newEndsOf(t, s)
		e.looks(t, 3)
		for n := range int64(10) {
			e.job(n+1, 0, "job", "success", time.Second)
		}
		s.now = s.now.Add(time.Hour)
		clear(e.want)
		e.c.Begin()
		e.looks(t, 6)
		e.job(4, 0, "job", "failed", 2*time.Second)
		e.looks(t, 12)
		e.ends.Want(t, e.want)
		if len(e.want) != 1 || e.want[gitlab.JobKey(e.c.Server(), 11)].Status != cimeter.JobFailed {
			t.Fatal(fmt.Sprint(e.want))
		}
	}
}

// copied reads a request's body and puts it back.
func copied(to *strings.Builder, r *http.Request) bool {
	_, err := io.Copy(to, r.Body)
	r.Body = io.NopCloser(strings.NewReader(to.String()))
	return err == nil
}
