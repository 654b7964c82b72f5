package gitlabapi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/ci/gitlab/gitlabapi"
	"github.com/cimeter/cimeter/internal/queue"
)

func client(t *testing.T, s *standin, set ...func(*gitlabapi.Options)) *gitlabapi.Client {
	t.Helper()
	give := func() (string, error) { return token, nil }
	o := gitlabapi.Options{URL: s.URL, Token: give, CancelToken: give, WriteToken: give, Now: s.clock}
	for _, f := range set {
		f(&o)
	}
	c, err := gitlabapi.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func poll(t *testing.T, c *gitlabapi.Client) queue.Report {
	t.Helper()
	r, err := c.Poll(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// server is a stand-in with builds in each status.
func busyServer(t *testing.T) *standin {
	s := newStandin(t)
	s.projects, s.runners = 5, 3
	for i, status := range []string{"pending", "running", "created", "manual", "success", "canceling", "waiting_for_resource", "failed"} {
		j := &job{id: int64(i + 1), project: int64(i%5 + 1), status: status, name: fmt.Sprint("job ", status), created: s.now.Add(-time.Hour)}
		if status != "created" && status != "manual" {
			j.queued = s.now.Add(-50 * time.Minute)
		}
		if status == "running" || status == "success" || status == "canceling" || status == "failed" {
			j.started, j.runner, j.manager = s.now.Add(-40*time.Minute), 1, "s_1"
		}
		if status == "success" || status == "failed" {
			j.finished = s.now.Add(-time.Minute)
		}
		s.jobs[j.id] = j
	}
	return s
}

func byKey(r queue.Report) map[string]cimeter.Job {
	m := make(map[string]cimeter.Job)
	for _, j := range r.Jobs {
		m[j.Key] = j
	}
	return m
}

func TestPoll(t *testing.T) {
	for name, admin := range map[string]bool{"the whole server": true, "project by project": false} {
		t.Run(name, func(t *testing.T) {
			s := busyServer(t)
			s.admin = admin
			c := client(t, s)
			r := poll(t, c)
			jobs := byKey(r)
			if len(r.Jobs) != 5 || len(jobs) != 5 || !r.WholeJobs || !r.WholeWorkers {
				t.Fatalf("%d jobs, whole %v, workers whole %v: want the 5 that are not over and no person must start", len(r.Jobs), r.WholeJobs, r.WholeWorkers)
			}
			run := jobs[gitlab.JobKey(c.Server(), 2)]
			want := cimeter.Job{
				Build: cimeter.Build{Key: "gitlab/" + strings.ReplaceAll(c.Server(), ":", ":") + "/2", CI: "gitlab", Server: c.Server(), Project: "group/app-2", Number: "2",
					Name: "job running", Pipeline: "991", PipelineStage: "test", Ref: "main", URL: s.URL + "/group/app-2/-/jobs/2",
					Runner: cimeter.Runner{ID: "s_1", Name: "docker-1"}},
				Status: cimeter.JobRunning, Tags: []string{"docker"}, CreatedAt: s.now.Add(-time.Hour), QueuedAt: s.now.Add(-50 * time.Minute),
				StartedAt: s.now.Add(-40 * time.Minute), QueueSeconds: cimeter.Some(600.0), Worker: "1/s_1",
			}
			if !admin {
				want.SHA, want.Event = "7e4d", "push"
			}
			if fmt.Sprintf("%+v", run) != fmt.Sprintf("%+v", want) {
				t.Errorf("got\n%+v\nwant\n%+v", run, want)
			}
			for id, status := range map[int64]cimeter.JobStatus{1: cimeter.JobWaiting, 3: cimeter.JobBlocked, 6: cimeter.JobRunning, 7: cimeter.JobBlocked} {
				if j := jobs[gitlab.JobKey(c.Server(), id)]; j.Status != status {
					t.Errorf("job %d: %q: want %q", id, j.Status, status)
				}
			}
			if len(r.Workers) != 3 || r.Workers[0].ID != "1/s_1" || len(r.Workers[0].Builds) != 2 || r.Workers[1].State != cimeter.WorkerOffline ||
				r.Workers[2].State != cimeter.WorkerDraining || r.Workers[0].Runner.ID != "s_1" || r.Workers[0].Platform != "linux/amd64" {
				t.Errorf("workers %+v", r.Workers)
			}
			if admin && r.Workers[0].State != cimeter.WorkerBusy {
				t.Errorf("worker with two builds is %q", r.Workers[0].State)
			}

			// One ends, one is deleted: both are told once.
			s.with(func() {
				s.jobs[2].status, s.jobs[2].finished = "success", s.now
				s.jobs[1].deleted = true
				s.now = s.now.Add(10 * time.Second)
			})
			jobs = byKey(poll(t, c))
			if j := jobs[gitlab.JobKey(c.Server(), 2)]; j.Status != cimeter.JobSuccess || !j.EndedAt.Equal(s.now.Add(-10*time.Second)) {
				t.Errorf("ended: %+v", j)
			}
			if j := jobs[gitlab.JobKey(c.Server(), 1)]; j.Status != cimeter.JobCanceled {
				t.Errorf("deleted: %+v", j)
			}
			s.with(func() { s.now = s.now.Add(10 * time.Second) })
			if jobs = byKey(poll(t, c)); len(jobs) != 3 {
				t.Errorf("%d jobs: want the 3 that are left", len(jobs))
			}
		})
	}
}

// An older server without single jobs in GraphQL is asked by REST.
func TestPoll_OldSchema(t *testing.T) {
	s := busyServer(t)
	s.oldJobs, s.oldPipes, s.admin = true, true, false // an administrator's looks list what is over
	c := client(t, s)
	poll(t, c)
	s.with(func() { s.jobs[2].status, s.jobs[2].finished, s.now = "failed", s.now, s.now.Add(10*time.Second) })
	j := byKey(poll(t, c))[gitlab.JobKey(c.Server(), 2)]
	if j.Status != cimeter.JobFailed || j.FailureReason != "script_failure" {
		t.Errorf("%+v", j)
	}
}

// The requirement: 2,000 projects and 50 runners below 60 requests a minute, new
// pending builds seen within 15 s: with 30 builds a minute that nobody pushed for, for an
// administrator's token and for another's; and with 12 pushes a minute where a server does
// not tell which projects are active.
func TestPoll_Requests(t *testing.T) {
	for name, old := range map[string]bool{"administrator": false, "member": false, "member, old server": true} {
		t.Run(name, func(t *testing.T) {
			admin := name == "administrator"
			s := newStandin(t)
			s.admin, s.projects, s.runners, s.oldPipes = admin, 2000, 50, old
			c := client(t, s)
			rnd := rand.New(rand.NewPCG(1, 2))
			next, made := int64(0), map[int64]time.Time{}
			var worst time.Duration
			ends := map[cimeter.JobStatus]int{}
			perMinute := map[int]int{}
			start, wait, step := s.now, time.Duration(0), 2*time.Second
			if old {
				step = 5 * time.Second
			}
			for s.now.Sub(start) < 20*time.Minute {
				wait -= step
				s.with(func() {
					s.now = s.now.Add(step)
					for _, j := range s.jobs {
						switch age := s.now.Sub(j.created); {
						case j.status == "pending" && age > 30*time.Second:
							j.status, j.started, j.runner = "running", s.now, j.id%50+1
							j.manager = fmt.Sprint("s_", j.runner)
						case j.status == "running" && age > 90*time.Second:
							j.status, j.finished = "success", s.now
						}
					}
					next++
					project := rnd.Int64N(2000) + 1
					s.jobs[next] = &job{id: next, project: project, status: "pending", name: "job", created: s.now, queued: s.now}
					if old {
						s.events = append(s.events, event{next, project})
					}
					made[next] = s.now
				})
				if wait > 0 {
					continue
				}
				before := s.made()
				r := poll(t, c)
				if n := s.made() - before; n != r.Requests {
					t.Fatalf("says %d requests, made %d", r.Requests, n)
				}
				perMinute[int(s.now.Sub(start).Minutes())] += r.Requests
				for _, j := range r.Jobs {
					var id int64
					fmt.Sscan(j.Number, &id)
					if at, ok := made[id]; ok {
						if d := s.now.Sub(at); at.Sub(start) > 8*time.Minute { // made when all is steady
							worst = max(worst, d)
						}
						delete(made, id)
					}
					if j.Status.Ended() {
						ends[j.Status]++
					}
				}
				wait = max(gitlabapi.Interval, r.Wait)
			}
			most := 0
			for m, n := range perMinute {
				if m > 0 {
					most = max(most, n)
				}
			}
			t.Logf("%d requests in the busiest minute, %d not changed; a new pending build was seen after at most %v; %v of %d ended", most, s.notMod, worst, ends, next)
			if most > 60 {
				t.Errorf("%d requests in a minute: want at most 60", most)
			}
			if worst > 15*time.Second {
				t.Errorf("seen after %v: want 15 s", worst)
			}
			if ends[cimeter.JobSuccess] < int(next)-int(3*time.Minute/step) {
				t.Errorf("%d ends told of %d", ends[cimeter.JobSuccess], next)
			}
			if len(ends) > 1 {
				t.Errorf("ends %v: want success alone", ends)
			}
		})
	}
}

// What a server answers instead of what was asked, and what becomes of it.
func TestPoll_Faults(t *testing.T) {
	head := func(status int, header ...string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"message":"%d for %s"}`, status, token)
			return true
		}
	}
	body := func(text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(w, text); return true }
	}
	for name, c := range map[string]struct {
		fault  func(http.ResponseWriter, *http.Request) bool
		reason string
		is     error
		after  time.Duration
	}{
		"401":                  {head(401), "unauthorized", cimeter.ErrUnauthorized, 0},
		"429":                  {head(429), "limited", cimeter.ErrUnavailable, 0},
		"429 with seconds":     {head(429, "Retry-After", "37"), "limited", cimeter.ErrUnavailable, 37 * time.Second},
		"429 with a date":      {head(429, "RateLimit-ResetTime", "Tue, 01 Sep 2026 12:01:00 GMT", "Date", "Tue, 01 Sep 2026 12:00:10 GMT"), "limited", cimeter.ErrUnavailable, 50 * time.Second},
		"500":                  {head(500), "unavailable", cimeter.ErrUnavailable, 0},
		"503 with seconds":     {head(503, "Retry-After", "9"), "unavailable", cimeter.ErrUnavailable, 9 * time.Second},
		"a page of HTML":       {body("<!DOCTYPE html><title>Sign in</title>"), "garbage", cimeter.ErrInvalid, 0},
		"nothing":              {body(""), "garbage", cimeter.ErrInvalid, 0},
		"another kind of JSON": {body(`"pending"`), "garbage", cimeter.ErrInvalid, 0},
		"null":                 {body(`{"data":null}`), "garbage", cimeter.ErrInvalid, 0},
		"half an answer": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", "10000")
			fmt.Fprint(w, `{"data":{"jobs":{"nodes":[{"id":"gid://`)
			return true
		}, "unavailable", cimeter.ErrUnavailable, 0},
		"a closed connection": {func(w http.ResponseWriter, _ *http.Request) bool { panic(http.ErrAbortHandler) }, "unavailable", cimeter.ErrUnavailable, 0},
		"an endless answer": {func(w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, `[`)
			for range 1 << 10 {
				fmt.Fprint(w, strings.Repeat(`{"id":1},`, 1<<10))
			}
			return true
		}, "garbage", cimeter.ErrInvalid, 0},
		"a redirect elsewhere": {head(302, "Location", "http://169.254.169.254/latest/meta-data/"), "refused", cimeter.ErrUnavailable, 0},
		"a redirect to itself": {head(307, "Location", "/api/graphql"), "refused", cimeter.ErrUnavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, first := range []bool{true, false} {
				s := busyServer(t)
				s.Config.ErrorLog = nil
				cl := client(t, s)
				if !first {
					poll(t, cl)
				}
				s.with(func() { s.fault, s.now = c.fault, s.now.Add(61*time.Second) })
				before := s.made()
				_, err := cl.Poll(context.Background())
				var e *queue.SourceError
				if !errors.As(err, &e) || !errors.Is(err, c.is) || queue.Reason(err) != c.reason || e.RetryAfter != c.after {
					t.Fatalf("first %v: %v: reason %q, after %v: want %q, %v", first, err, queue.Reason(err), e.RetryAfter, c.reason, c.after)
				}
				if strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "127.0.0.1:") && !strings.Contains(err.Error(), "read tcp") {
					t.Errorf("the error tells too much: %v", err)
				}
				if n := s.made() - before; n != 1 || e.Requests != 1 {
					t.Errorf("%d requests after a failure, says %d: want 1", n, e.Requests)
				}
				s.with(func() { s.fault, s.now = nil, s.now.Add(20*time.Second) })
				if r := poll(t, cl); len(r.Jobs) != 5 {
					t.Errorf("%d jobs after it: want 5", len(r.Jobs))
				}
			}
		})
	}
}

// What GraphQL says in an answer of 200 is a failure, and no empty queue.
func TestPoll_GraphQLErrors(t *testing.T) {
	for message, reason := range map[string]string{"Request timeout. Please try a less complex query": "unavailable", "Field 'x' doesn't exist on type 'CiJob'": "garbage"} {
		s := busyServer(t)
		c := client(t, s)
		poll(t, c)
		s.with(func() { s.graphql = message })
		if _, err := c.Poll(context.Background()); queue.Reason(err) != reason {
			t.Errorf("%s: %v: %q: want %q", message, err, queue.Reason(err), reason)
		}
	}
}

// A token that is no administrator's any more gets an empty list of all jobs.
func TestPoll_RightsLost(t *testing.T) {
	s := busyServer(t)
	c := client(t, s)
	poll(t, c)
	s.with(func() { s.admin, s.now = false, s.now.Add(11*time.Minute) })
	if r := poll(t, c); len(r.Jobs) != 5 {
		t.Errorf("%d jobs: want 5, project by project", len(r.Jobs))
	}
}

// Times are by the server's clock; how far it is off is told, nothing is negative.
func TestPoll_Clock(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour, 0} {
		s := newStandin(t)
		s.ahead, s.projects = ahead, 1
		s.jobs[1] = &job{id: 1, project: 1, status: "pending", name: "job", created: s.at(), queued: s.at()}
		s.now = s.now.Add(20 * time.Second)
		r := poll(t, client(t, s))
		if d := r.Clock.Value - ahead; !r.Clock.Known || d.Abs() > time.Second {
			t.Errorf("clock %v: want %v", r.Clock, ahead)
		}
		if q := r.Jobs[0].QueueSeconds; q.Value != 20 {
			t.Errorf("waits %v: want 20 s", q)
		}
	}
}

// A limit that is nearly used up makes the next look later.
func TestPoll_Limit(t *testing.T) {
	s := busyServer(t)
	s.limit = func(h http.Header) {
		h.Set("RateLimit-Limit", "600")
		h.Set("RateLimit-Remaining", "12")
		h.Set("RateLimit-Reset", fmt.Sprint(s.at().Add(42*time.Second).Unix()))
	}
	if r := poll(t, client(t, s)); r.Wait != 42*time.Second {
		t.Errorf("wait %v: want 42 s", r.Wait)
	}
}

// Lists of more than a page, and lists that do not end.
func TestPoll_Pages(t *testing.T) {
	for _, admin := range []bool{true, false} {
		s := newStandin(t)
		s.admin, s.projects = admin, 1
		for id := range int64(250) {
			s.jobs[id+1] = &job{id: id + 1, project: 1, status: "pending", name: "job", created: s.now, queued: s.now}
		}
		c := client(t, s)
		if r := poll(t, c); len(r.Jobs) != 250 || !r.WholeJobs {
			t.Errorf("administrator %v: %d jobs, whole %v: want 250", admin, len(r.Jobs), r.WholeJobs)
		}
		if admin {
			continue
		}
		s.with(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/jobs") {
					w.Header().Set("Link", fmt.Sprintf(`<http://elsewhere.example/x?page=%d>; rel="next"`, s.made()))
					fmt.Fprint(w, `[{"id":1,"status":"pending"}]`)
					return true
				}
				return false
			}
			s.now = s.now.Add(20 * time.Second)
		})
		before := s.made()
		if r := poll(t, c); s.made()-before > 60 || r.Wait < 10*time.Second {
			t.Errorf("%d requests for a list without an end, next in %v", s.made()-before, r.Wait)
		}
	}
}

// One project that the server cannot list hides no other; when most fail, all do.
func TestPoll_ProjectFails(t *testing.T) {
	s := busyServer(t)
	s.admin = false
	s.oldPipes = true
	bad := map[string]bool{"/api/v4/projects/2/jobs": true}
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if bad[r.URL.Path] {
			w.WriteHeader(500)
		}
		return bad[r.URL.Path]
	}
	c := client(t, s)
	if r := poll(t, c); len(r.Jobs) != 3 || r.WholeJobs {
		t.Errorf("%d jobs, whole %v: want the 3 of the other projects", len(r.Jobs), r.WholeJobs)
	}
	s.with(func() {
		bad["/api/v4/projects/1/jobs"], bad["/api/v4/projects/3/jobs"] = true, true
		s.now = s.now.Add(90 * time.Second)
	})
	if _, err := c.Poll(context.Background()); queue.Reason(err) != "unavailable" {
		t.Errorf("%v", err)
	}
}

// Pages of GraphQL that do not end are left after some, and the list is no whole one.
func TestPoll_EndlessPages(t *testing.T) {
	s := busyServer(t)
	c := client(t, s)
	poll(t, c)
	n := 0
	s.with(func() {
		s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
			n++
			fmt.Fprintf(w, `{"data":{"jobs":{"pageInfo":{"hasNextPage":true,"endCursor":"%d"},"nodes":[{"id":"gid://gitlab/Ci::Build/%d","kind":"BUILD","status":"PENDING"},null]}}}`, n, n)
			return true
		}
		s.now = s.now.Add(20 * time.Second)
	})
	if r := poll(t, c); n > 60 || r.WholeJobs || r.Wait < 30*time.Second {
		t.Errorf("%d requests, whole %v, next in %v", n, r.WholeJobs, r.Wait)
	}
}

// What a board makes of it: counts are right at every look, whatever the clock and
// whatever fails between, and nothing waits or runs for less than no time.
func TestPoll_Board(t *testing.T) {
	for _, admin := range []bool{true, false} {
		for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
			s := newStandin(t)
			s.admin, s.ahead, s.projects, s.runners = admin, ahead, 4, 3
			c := client(t, s)
			b := queue.NewBoard(queue.Options{Servers: []queue.Source{{Name: "g", CI: "gitlab", Interval: gitlabapi.Interval}}, Start: s.now})
			rnd := rand.New(rand.NewPCG(7, 8))
			for look := range 120 {
				var waiting, running int
				s.with(func() {
					s.now = s.now.Add(10 * time.Second)
					id := int64(look + 1)
					s.jobs[id] = &job{id: id, project: id%4 + 1, status: "pending", name: "job", created: s.at(), queued: s.at()}
					for _, j := range s.jobs {
						switch {
						case j.id == id:
						case j.status == "pending" && rnd.IntN(3) == 0:
							j.status, j.started, j.runner, j.manager = "running", s.at(), 1, "s_1"
						case j.status == "running" && rnd.IntN(3) == 0:
							j.status, j.finished = []string{"success", "failed", "canceled"}[rnd.IntN(3)], s.at()
						}
						switch j.status {
						case "pending":
							waiting++
						case "running":
							running++
						}
					}
					s.fault = nil
					if look%7 == 6 {
						s.fault = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(502); return true }
					}
				})
				r, err := c.Poll(context.Background())
				if err != nil {
					b.Failed("g", s.now, err)
					if st := b.State(s.now).Servers[0]; !st.Stale || st.Status != 502 || !st.Waiting.Known {
						t.Fatalf("not stale after a failure: %+v", st)
					}
					continue
				}
				r.At = s.now
				b.Add("g", true, r)
				st := b.State(s.now)
				if sv := st.Servers[0]; sv.Waiting.Value != waiting || sv.Running.Value != running || sv.Stale {
					t.Fatalf("administrator %v, ahead %v, look %d: %d wait, %d run: want %d, %d", admin, ahead, look, sv.Waiting.Value, sv.Running.Value, waiting, running)
				}
				for _, x := range st.Builds {
					if x.Waited.Value < 0 || x.Ran.Value < 0 || x.Waited.Value > 1500 || x.Ran.Value > 1500 {
						t.Fatalf("ahead %v: %+v", ahead, x)
					}
				}
			}
		}
	}
}
