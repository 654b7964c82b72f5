package jenkinsapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/jenkins"
	"github.com/cimeter/cimeter/internal/ci/jenkins/jenkinsapi"
	"github.com/cimeter/cimeter/internal/queue"
)

// ran is a build of the stand-in; it is over when ended is not after now.
type ran struct {
	job            string
	number, item   int64
	queued         time.Time // zero: nobody saw it wait
	started, ended time.Time
	result         string
}

// master is a stand-in of Jenkins with a clock.
type master struct {
	*httptest.Server
	mu     sync.Mutex
	now    time.Time
	next   map[string]int64 // number of the next build, by the job's path
	builds []*ran
	gone   map[*ran]bool // deleted
	noList bool          // there is no list of jobs
	late   *ran          // has a number, and is not listed when it is asked for the first time
	status int           // that all answers have; 0: all is well
	after  string        // the path after whose answer begins what began says
	began  func()
	asked  []string
}

func newMaster(t *testing.T, jobs ...string) *master {
	t.Helper()
	s := &master{now: time.UnixMilli(1796022600000), next: map[string]int64{}, gone: map[*ran]bool{}}
	for _, j := range jobs {
		s.next[j] = 1
	}
	s.Server = httptest.NewServer(basic(s))
	t.Cleanup(s.Close)
	return s
}

// build makes a build that began now and, where it says how long it ran, is over.
func (s *master) build(job, result string, took time.Duration) *ran {
	b := &ran{job: job, number: s.next[job], item: int64(len(s.builds) + 1000), started: s.now, ended: s.now.Add(took), result: result}
	if took == 0 {
		b.ended = s.now.Add(1000 * time.Hour)
	}
	s.next[job]++
	s.builds = append(s.builds, b)
	return b
}

func address(path string) string {
	return "https://ci.example.com/jenkins/job/" + strings.ReplaceAll(strings.ReplaceAll(path, " ", "%20"), "/", "/job/") + "/"
}

func (s *master) row(b *ran) map[string]any {
	m := map[string]any{"_class": "x", "url": fmt.Sprintf("%s%d/", address(b.job), b.number), "number": b.number, "timestamp": b.started.UnixMilli(), "building": b.ended.After(s.now),
		"result": nil, "duration": 0, "queueId": b.item, "builtOn": "agent-1"}
	if !b.ended.After(s.now) {
		m["result"], m["duration"] = b.result, b.ended.Sub(b.started).Milliseconds()
	}
	return m
}

// list is what is in a folder.
func (s *master) list(folder string) []any {
	all, folders := []any{}, map[string]bool{}
	for path, next := range s.next {
		rest, ok := strings.CutPrefix(path, folder)
		name, _, below := strings.Cut(rest, "/")
		switch {
		case !ok || folders[name]:
		case below:
			folders[name] = true
			all = append(all, map[string]any{"url": address(folder + name), "jobs": s.list(folder + name + "/")})
		default:
			for _, b := range s.builds {
				if b.job == path && b.started.After(s.now) {
					next-- // it waits, and has no number yet
				}
			}
			all = append(all, map[string]any{"url": address(path), "nextBuildNumber": next})
		}
	}
	return all
}

func (s *master) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.URL.Path)
	w.Header().Set("Date", s.now.UTC().Format(http.TimeFormat))
	if s.status != 0 {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(s.status)
		return
	}
	path := strings.Trim(strings.TrimSuffix(r.URL.Path, "api/json"), "/")
	path = strings.TrimPrefix(strings.ReplaceAll("/"+path, "/job/", "/"), "/")
	var running, waiting []any
	var listed []any
	var found any
	for _, b := range slices.Backward(s.builds) {
		if s.gone[b] {
			continue
		}
		if b.ended.After(s.now) && !b.started.After(s.now) {
			running = append(running, map[string]any{"currentExecutable": s.row(b)})
		}
		if b.started.After(s.now) {
			waiting = append(waiting, map[string]any{"id": b.item, "inQueueSince": b.queued.UnixMilli(), "buildable": true, "buildableStartMilliseconds": b.queued.UnixMilli(), "task": map[string]any{"url": address(b.job)}})
			continue
		}
		if b == s.late && slices.Contains(s.asked[:len(s.asked)-1], r.URL.Path) {
			s.late = nil
		}
		if b == s.late {
			continue
		}
		if b.job == path {
			listed = append(listed, s.row(b))
		}
		if path == fmt.Sprintf("%s/%d", b.job, b.number) {
			found = s.row(b)
		}
	}
	switch _, isJob := s.next[path]; {
	case path == "queue":
		found = map[string]any{"items": append([]any{}, waiting...)}
	case path == "computer":
		found = map[string]any{"computer": []any{map[string]any{"displayName": "agent-1", "numExecutors": 90, "executors": running}}}
	case path == "" && !s.noList:
		found = map[string]any{"_class": "hudson.model.Hudson", "jobs": s.list("")}
	case isJob:
		var from, to int
		_, rest, _ := strings.Cut(r.FormValue("tree"), "]]{")
		if _, err := fmt.Sscanf(rest, "%d,%d}", &from, &to); err != nil {
			http.Error(w, "tree", http.StatusBadRequest)
			return
		}
		found = map[string]any{"allBuilds": listed[min(from, len(listed)):min(to, len(listed))]}
	}
	if found == nil {
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(found)
	if s.began != nil && path == s.after {
		s.began()
		s.began = nil
	}
}

func (s *master) key(b *ran) string {
	return jenkins.Key("ci.example.com", b.job, fmt.Sprint(b.number))
}

// hook is what the plugin Notification tells of the end of a build.
func (s *master) hook(t *testing.T, b *ran) queue.Report {
	t.Helper()
	body := fmt.Sprintf(`{"name":"x","url":"job/x/","build":{"full_url":"%s%d/","number":%d,"queue_id":%d,"timestamp":%d,"duration":%d,"phase":"COMPLETED","status":"%s","url":"job/x/"}}`,
		address(b.job), b.number, b.number, b.item, b.ended.UnixMilli(), b.ended.Sub(b.started).Milliseconds(), b.result)
	r, _, err := jenkinsapi.Hook{URL: "https://ci.example.com/jenkins/", Secret: func() (string, error) { return "x", nil }}.Parse(nil, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Builds that come and end between two polls are each counted once: thirty of them at
// once, of jobs in folders, while others run on; also where webhooks tell of some of
// them, before and after the polls. One that was seen to wait has since when.
func TestPollShort(t *testing.T) {
	jobs := []string{"nightly", "team/my app", "team/inner/deep"}
	s := newMaster(t, jobs...)
	for range 150 {
		s.build(jobs[0], "SUCCESS", time.Second) // the past
	}
	s.now = s.now.Add(time.Minute)
	c, ends, want := clientAt(t, s.URL, func() time.Time { return s.now }), citest.NewEnds(s.now), map[string]citest.Ended{}
	rnd := rand.New(rand.NewPCG(3, 4))
	var hooked []*ran
	var waited *ran
	for look := range 60 {
		switch look {
		case 3, 20, 33:
			for n := range 30 {
				b := s.build(jobs[n%3], []string{"SUCCESS", "FAILURE", "ABORTED"}[n%3], time.Duration(n%5+1)*1100*time.Millisecond)
				want[s.key(b)] = citest.Ended{Status: []cimeter.JobStatus{cimeter.JobSuccess, cimeter.JobFailed, cimeter.JobCanceled}[n%3], Ran: b.ended.Sub(b.started)}
				hooked = append(hooked, b)
			}
		case 30: // it waits at this poll, and is over at the next
			waited = s.build(jobs[1], "SUCCESS", 0)
			waited.queued, waited.started, waited.ended = s.now.Add(5*time.Second), s.now.Add(12*time.Second), s.now.Add(17*time.Second)
			want[s.key(waited)] = citest.Ended{Status: cimeter.JobSuccess, Ran: 5 * time.Second}
		case 36: // it begins after the nodes were asked for, and is there when its job is
			s.after, s.began = "computer", func() {
				b := s.build(jobs[0], "SUCCESS", 15*time.Second)
				want[s.key(b)] = citest.Ended{Status: cimeter.JobSuccess, Ran: 15 * time.Second}
			}
		}
		if look < 40 {
			b := s.build(jobs[rnd.IntN(3)], "SUCCESS", 35*time.Second) // seen by three polls or four
			want[s.key(b)] = citest.Ended{Status: cimeter.JobSuccess, Ran: 35 * time.Second}
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
		if r.Requests > 3+10+20 {
			t.Errorf("look %d: %d requests", look, r.Requests)
		}
	}
	ends.Want(t, want)
	if j := ends.Last[s.key(waited)]; !j.QueuedAt.Equal(waited.queued) || j.Worker != "agent-1" {
		t.Errorf("%+v: want since when it waited, %v", j, waited.queued)
	}
	lists := len(slices.DeleteFunc(s.asked, func(p string) bool { return p != "/api/json" }))
	if lists > 21 {
		t.Errorf("jobs were listed %d times in ten minutes: want every half minute", lists)
	}
}

// What came and ended while the server did not answer is counted when it does again,
// also where it is more than a page, with numbers that no build has.
func TestPollShort_away(t *testing.T) {
	for _, status := range []int{429, 500, 503} {
		s := newMaster(t, "nightly", "team/a", "team/b")
		c, ends, want := clientAt(t, s.URL, func() time.Time { return s.now }), citest.NewEnds(s.now), map[string]citest.Ended{}
		if _, err := ends.Poll(t, c, s.now); err != nil {
			t.Fatal(err)
		}
		s.status = status
		for n := range 350 {
			s.now = s.now.Add(5 * time.Second)
			b := s.build([]string{"nightly", "nightly", "nightly", "team/a", "team/b"}[n%5], "FAILURE", 4*time.Second)
			if want[s.key(b)] = (citest.Ended{Status: cimeter.JobFailed, Ran: 4 * time.Second}); n%10 == 3 {
				s.gone[b] = true
				delete(want, s.key(b))
			}
			if n%100 == 0 {
				_, err := ends.Poll(t, c, s.now)
				var e *queue.SourceError
				if !errors.As(err, &e) || e.Status != status || e.RetryAfter != 30*time.Second || e.Requests != 1 {
					t.Fatalf("%v: want %d", err, status)
				}
			}
		}
		s.status = 0
		// It fails once more in the middle, after some of it was learned.
		s.after, s.began = "team/a", func() { s.status = status }
		for look := range 5 {
			s.now = s.now.Add(10 * time.Second)
			r, err := ends.Poll(t, c, s.now)
			if (err != nil) != (look == 0) {
				t.Fatalf("look %d: %v", look, err)
			}
			if s.status = 0; r.Requests > 3+10 {
				t.Errorf("%d requests", r.Requests)
			}
		}
		ends.Want(t, want)
	}
}

// A job that comes later, with builds of before and new ones; one that was made anew;
// and polls that begin anew.
func TestPollShort_jobs(t *testing.T) {
	s := newMaster(t, "nightly")
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
	at := s.now
	s.now, s.next["moved/here"] = s.now.Add(-time.Hour), 1
	for range 160 {
		s.build("moved/here", "SUCCESS", time.Second)
	}
	s.now = at
	b := s.build("moved/here", "SUCCESS", 3*time.Second)
	want[s.key(b)] = citest.Ended{Status: cimeter.JobSuccess, Ran: 3 * time.Second}
	look(4)
	ends.Want(t, want)
	s.builds, s.next["moved/here"] = nil, 1
	look(2)
	b = s.build("moved/here", "FAILURE", 2*time.Second)
	want[s.key(b)] = citest.Ended{Status: cimeter.JobFailed, Ran: 2 * time.Second}
	s.next["nightly"] = 1_000_000_000 // as administrators may
	look(4)
	s.asked, s.late = nil, s.build("nightly", "SUCCESS", 2*time.Second)
	want[s.key(s.late)] = citest.Ended{Status: cimeter.JobSuccess, Ran: 2 * time.Second}
	look(4)
	ends.Want(t, want)

	// A user that sees more than before tells no past, and a list that is missing once hides nothing.
	for n := range 300 {
		path := fmt.Sprint("more/", n)
		s.next[path] = 1
		s.build(path, "SUCCESS", time.Second)
	}
	s.asked = nil
	look(4)
	if n := len(slices.DeleteFunc(s.asked, func(p string) bool { return !strings.HasPrefix(p, "/job/more/") })); n > 0 {
		t.Errorf("asked for builds of %d jobs that are the past", n)
	}
	b = s.build("more/7", "SUCCESS", time.Second)
	want[s.key(b)] = citest.Ended{Status: cimeter.JobSuccess, Ran: time.Second}
	s.noList = true
	look(2)
	s.noList = false
	look(3)
	ends.Want(t, want)

	s.build("nightly", "SUCCESS", time.Second)
	c.Begin()
	look(4)
	ends.Want(t, want)
}
