package droneapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/drone"
	"github.com/cimeter/cimeter/internal/ci/drone/droneapi"
	"github.com/cimeter/cimeter/internal/queue"
)

// ran is a build of the stand-in, of one stage, which has run when ended is not zero.
type ran struct {
	id, number     int64
	repo           int
	created, ended time.Time
	status         string
}

// server is a stand-in of Drone with a clock, repositories and their builds.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	now    time.Time
	repos  []string
	builds []*ran
	gone   map[int64]bool // ids of builds that were deleted
	late   *ran           // has a number, and is not there when it is asked for the first time
	noOwn  bool           // nor those of the user
	noAll  bool           // as Drone before it listed all repositories
	status int            // that all answers have; 0: all is well
	asked  []string
}

func newServer(t *testing.T, repos ...string) *server {
	t.Helper()
	s := &server{now: time.Unix(1796022600, 0), repos: repos, gone: map[int64]bool{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// build makes a build of a repository that began now and, where it says how long it
// ran, is over.
func (s *server) build(repo int, status string, ran1 time.Duration) *ran {
	b := &ran{id: int64(len(s.builds) + 100), repo: repo, created: s.now, status: status, number: s.counter(repo) + 1}
	if ran1 > 0 {
		b.ended = s.now.Add(ran1)
	}
	s.builds = append(s.builds, b)
	return b
}

func (s *server) counter(repo int) (n int64) {
	for _, b := range s.builds {
		if b.repo == repo {
			n = max(n, b.number)
		}
	}
	return n
}

func (s *server) row(b *ran, full bool) map[string]any {
	unix := func(at time.Time) int64 {
		if at.IsZero() || at.After(s.now) {
			return 0
		}
		return at.Unix()
	}
	is := b.status
	if unix(b.ended) == 0 && is != "blocked" {
		is = "running"
	}
	m := map[string]any{"id": b.id, "repo_id": b.repo + 1, "number": b.number, "status": is, "event": "push", "after": "7e4d", "ref": "refs/heads/main", "target": "main",
		"created": b.created.Unix(), "started": b.created.Unix(), "finished": unix(b.ended), "version": 3}
	if full {
		m["stages"] = []any{map[string]any{"id": b.id * 10, "build_id": b.id, "number": 1, "name": "default", "status": is, "machine": "ci-7", "os": "linux", "arch": "amd64",
			"created": b.created.Unix(), "started": b.created.Unix(), "stopped": unix(b.ended), "version": 3}}
	}
	return m
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.URL.RequestURI())
	w.Header().Set("Date", s.now.UTC().Format(http.TimeFormat))
	if s.status != 0 {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(s.status)
		return
	}
	queued, incomplete, repos := []any{}, []any{}, []any{}
	for id, slug := range s.repos {
		repos = append(repos, map[string]any{"id": id + 1, "slug": slug, "active": true, "counter": s.counter(id)})
	}
	var found any
	for _, b := range slices.Backward(s.builds) {
		if b == s.late && slices.Contains(s.asked[:len(s.asked)-1], r.URL.RequestURI()) && strings.Contains(r.URL.Path, "/builds/") && !strings.HasSuffix(r.URL.Path, "incomplete") {
			s.late = nil
		}
		if s.gone[b.id] || b == s.late {
			continue
		}
		if (b.ended.IsZero() || b.ended.After(s.now)) && b.status != "blocked" {
			full := s.row(b, true)
			queued = append(queued, full["stages"].([]any)...)
			incomplete = append(incomplete, map[string]any{"id": b.repo + 1, "slug": s.repos[b.repo], "build": s.row(b, false)})
		}
		if r.URL.Path == "/api/repos/"+s.repos[b.repo]+"/builds/"+strconv.FormatInt(b.number, 10) {
			found = s.row(b, true)
		}
	}
	switch path := r.URL.Path; {
	case path == "/api/queue":
		found = queued
	case path == "/api/builds/incomplete":
		found = incomplete[:min(50, len(incomplete))]
	case path == "/api/repos" && !s.noAll, path == "/api/user/repos" && !s.noOwn:
		found = repos
	}
	if found == nil {
		http.Error(w, `{"message":"Not Found"}`, http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(found)
}

func (s *server) key(b *ran) string {
	return drone.Key("drone.example.com:8443", s.repos[b.repo], strconv.FormatInt(b.number, 10), "1")
}

// hook is what Drone's webhook tells of a build.
func (s *server) hook(t *testing.T, b *ran) queue.Report {
	t.Helper()
	body, err := json.Marshal(map[string]any{"event": "build", "action": "updated", "repo": map[string]any{"slug": s.repos[b.repo]}, "build": s.row(b, true)})
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := droneapi.Hook{URL: "https://drone.example.com:8443", Secret: token}.Parse(http.Header{}, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Builds that come and end between two polls are each counted once: thirty of them at
// once, of more than one repository, while others run on; also where webhooks tell of
// some of them, before and after the polls.
func TestPollShort(t *testing.T) {
	for name, noAll := range map[string]bool{"all repositories": false, "those of the user": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, "Org/app", "Org/zoo", "a/b")
			s.noAll = noAll
			for range 40 {
				s.build(0, "success", time.Second) // the past
			}
			s.now = s.now.Add(time.Minute)
			c, ends, want := clientAt(t, s.URL, func() time.Time { return s.now }), citest.NewEnds(s.now), map[string]citest.Ended{}
			rnd := rand.New(rand.NewPCG(3, 4))
			lasts := s.build(1, "success", 0)
			var hooked []*ran
			for look := range 60 {
				switch look {
				case 3, 20, 33:
					for n := range 30 {
						b := s.build(n%3, []string{"success", "failure", "killed"}[n%3], time.Duration(n%5+1)*time.Second)
						want[s.key(b)] = citest.Ended{Status: []cimeter.JobStatus{cimeter.JobSuccess, cimeter.JobFailed, cimeter.JobCanceled}[n%3], Ran: b.ended.Sub(b.created)}
						hooked = append(hooked, b)
					}
				case 30:
					lasts.ended = s.now
					want[s.key(lasts)] = citest.Ended{Status: cimeter.JobSuccess, Ran: lasts.ended.Sub(lasts.created)}
				}
				if b := s.build(rnd.IntN(3), "success", 35*time.Second); look < 40 { // seen by three polls or four
					want[s.key(b)] = citest.Ended{Status: cimeter.JobSuccess, Ran: 35 * time.Second}
				} else {
					s.builds = s.builds[:len(s.builds)-1]
				}
				s.now = s.now.Add(10 * time.Second)
				for _, b := range hooked {
					if rnd.IntN(10) == 0 {
						ends.Hook(t, s.hook(t, b), s.now.Add(-time.Second))
					}
				}
				r, err := ends.Poll(t, c, s.now)
				if err != nil || !r.WholeJobs {
					t.Fatalf("look %d: whole %v, %v", look, r.WholeJobs, err)
				}
				if r.Requests > 4+10+20 {
					t.Errorf("look %d: %d requests", look, r.Requests)
				}
			}
			ends.Want(t, want)
		})
	}
}

// What came and ended while the server did not answer is counted when it does again,
// also where it is more than a page, with numbers that no build has.
func TestPollShort_away(t *testing.T) {
	for _, status := range []int{429, 500, 503} {
		s := newServer(t, "Org/app", "Org/zoo")
		c, ends, want := clientAt(t, s.URL, func() time.Time { return s.now }), citest.NewEnds(s.now), map[string]citest.Ended{}
		if _, err := ends.Poll(t, c, s.now); err != nil {
			t.Fatal(err)
		}
		s.status = status
		for n := range 130 {
			s.now = s.now.Add(5 * time.Second)
			b := s.build(0, "failure", 4*time.Second)
			if want[s.key(b)] = (citest.Ended{Status: cimeter.JobFailed, Ran: 4 * time.Second}); n%10 == 3 {
				s.gone[b.id] = true
				delete(want, s.key(b))
			}
			if n%50 == 0 {
				_, err := ends.Poll(t, c, s.now)
				var e *queue.SourceError
				if !errors.As(err, &e) || e.Status != status || e.RetryAfter != 30*time.Second || e.Requests != 1 {
					t.Fatalf("%v: want %d", err, status)
				}
			}
		}
		s.status = 0
		requests := 0
		for look := range 20 {
			s.now = s.now.Add(10 * time.Second)
			switch look { // in the middle of it
			case 3:
				s.status = status
			case 4:
				s.status = 0
			}
			r, err := ends.Poll(t, c, s.now)
			if (err != nil) != (look == 3) {
				t.Fatalf("look %d: %v", look, err)
			}
			requests += r.Requests
		}
		ends.Want(t, want)
		if most := 130 + 3*20; requests > most {
			t.Errorf("%d requests for 130 builds: want at most %d", requests, most)
		}
	}
}

// A repository that comes later, with builds of before and new ones; a build that waits
// for approval; a repository that was made anew.
func TestPollShort_repositories(t *testing.T) {
	s := newServer(t, "Org/app")
	for range 3 {
		s.build(0, "success", time.Second)
	}
	s.now = s.now.Add(time.Hour)
	c, ends, want := clientAt(t, s.URL, func() time.Time { return s.now }), citest.NewEnds(s.now.Add(-2*time.Hour)), map[string]citest.Ended{}
	look := func(n int) {
		t.Helper()
		for range n {
			s.now = s.now.Add(20 * time.Second)
			if _, err := ends.Poll(t, c, s.now); err != nil {
				t.Fatal(err)
			}
		}
	}
	look(1)
	s.repos = append(s.repos, "moved/here")
	at := s.now
	s.now = s.now.Add(-time.Hour)
	for range 60 {
		s.build(1, "success", time.Second)
	}
	s.now = at
	b := s.build(1, "success", 3*time.Second)
	want[s.key(b)] = citest.Ended{Status: cimeter.JobSuccess, Ran: 3 * time.Second}
	s.build(0, "blocked", 0)
	look(6)
	ends.Want(t, want)
	s.builds = slices.DeleteFunc(s.builds, func(b *ran) bool { return b.repo == 1 })
	look(2)
	b = s.build(1, "failure", 2*time.Second)
	look(3)
	want[s.key(b)] = citest.Ended{Status: cimeter.JobFailed, Ran: 2 * time.Second}
	ends.Want(t, want)

	s.asked, s.late = nil, s.build(0, "success", 2*time.Second)
	want[s.key(s.late)] = citest.Ended{Status: cimeter.JobSuccess, Ran: 2 * time.Second}
	look(4)
	ends.Want(t, want)

	// A token that sees more than it did tells no past, and a list that is missing once hides nothing.
	for n := range 30 {
		s.repos = append(s.repos, fmt.Sprint("more/", n))
		s.build(len(s.repos)-1, "success", time.Second)
	}
	s.asked = nil
	look(4)
	if n := len(slices.DeleteFunc(s.asked, func(p string) bool { return !strings.HasPrefix(p, "/api/repos/more/") })); n > 0 {
		t.Errorf("asked for %d builds of the past", n)
	}
	b = s.build(5, "success", time.Second)
	want[s.key(b)] = citest.Ended{Status: cimeter.JobSuccess, Ran: time.Second}
	s.noAll, s.noOwn = true, true
	look(2)
	s.noAll, s.noOwn = false, false
	look(3)
	ends.Want(t, want)

	// When this server polls anew, as another did meanwhile, what that one saw is the past.
	s.build(0, "success", time.Second)
	c.Begin()
	look(4)
	ends.Want(t, want)
	s.asked = nil
	look(6)
	if n := len(slices.DeleteFunc(s.asked, func(p string) bool { return !strings.HasPrefix(p, "/api/repos?") })); n > 4 {
		t.Errorf("repositories were listed %d times in two minutes: want every half minute", n)
	}
}
