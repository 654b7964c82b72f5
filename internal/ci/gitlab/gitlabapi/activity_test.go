package gitlabapi_test

import (
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/ci/gitlab/gitlabapi"
)

// What the lists of active pipelines do not have is told all the same, and nothing is
// told to be over that is not: more builds than a page has, those of a pipeline that
// another one started, and those of one whose parent is over.
func TestPoll_Activity(t *testing.T) {
	s := newStandin(t)
	s.admin, s.projects, s.hidden = false, 60, map[int64]bool{}
	add := func(id, project int64, name, status string) {
		s.jobs[id] = &job{id: id, project: project, status: status, name: name, created: s.now, queued: s.now}
		if status == "running" {
			s.jobs[id].started, s.jobs[id].runner, s.jobs[id].manager = s.now, 1, "s_1"
		}
	}
	for id := int64(1); id <= 30; id++ {
		add(id, 7, "job", "pending")
	}
	add(31, 7, "job", "running")
	add(32, 8, "job", "running")
	add(33, 8, "child", "pending")
	add(34, 9, "hidden", "running")
	add(35, 9, "job", "created")
	s.hidden[34], s.hidden[35] = true, true
	c := client(t, s)
	told := map[string]cimeter.JobStatus{}
	look := func(seconds int) {
		t.Helper()
		s.with(func() { s.now = s.now.Add(time.Duration(seconds) * time.Second) })
		for key, j := range byKey(poll(t, c)) {
			told[key] = j.Status
		}
	}
	is := func(id int64) cimeter.JobStatus { return told[gitlab.JobKey(c.Server(), id)] }
	for range 12 {
		look(10)
	}
	for id, j := range s.jobs {
		if got := is(id); got != gitlab.JobStatus(j.status) {
			t.Errorf("%s job %d of project %d is told as %q", j.status, id, j.project, got)
		}
	}
	s.with(func() {
		for _, id := range []int64{5, 31, 32, 33, 34} {
			s.jobs[id].status, s.jobs[id].finished = "success", s.now
		}
		add(36, 50, "job", "pending") // where nothing was, and nobody pushed
	})
	look(10)
	if is(36) != cimeter.JobWaiting {
		t.Errorf("a new job is told as %q", is(36))
	}
	for range 12 {
		look(10)
	}
	for id, j := range s.jobs {
		if got := is(id); got != gitlab.JobStatus(j.status) {
			t.Errorf("%s job %d of project %d is told as %q", j.status, id, j.project, got)
		}
	}
}

// Projects that the settings name are asked so too, but for those that the token does
// not see.
func TestPoll_ActivityOfNamed(t *testing.T) {
	s := newStandin(t)
	s.admin, s.projects = false, 250
	var paths []string
	for id := int64(1); id <= 260; id++ {
		paths = append(paths, pathOf(id))
	}
	c := client(t, s, func(o *gitlabapi.Options) { o.Projects = paths })
	for range 60 {
		s.with(func() { s.now = s.now.Add(10 * time.Second) })
		poll(t, c)
	}
	s.with(func() {
		s.now = s.now.Add(10 * time.Second)
		s.jobs[1] = &job{id: 1, project: 211, status: "pending", name: "job", created: s.now, queued: s.now}
		s.log = nil
	})
	if j := byKey(poll(t, c))[gitlab.JobKey(c.Server(), 1)]; j.Status != cimeter.JobWaiting || j.Project != pathOf(211) {
		t.Errorf("%+v: want the job at once; asked %q", j, s.log)
	}
}

// A build that comes and ends between two looks is told of, once.
func TestPoll_Short(t *testing.T) {
	s := newStandin(t)
	s.projects = 1
	old := func(id int64) *job {
		return &job{id: id, project: 1, status: "success", name: "job", created: s.now, queued: s.now, started: s.now, finished: s.now}
	}
	s.jobs[1] = old(1)
	c := client(t, s)
	for look, want := range []int{0, 1, 0} {
		if got := len(byKey(poll(t, c))); got != want {
			t.Errorf("look %d: %d builds, want %d", look, got, want)
		}
		s.with(func() { s.now, s.jobs[2] = s.now.Add(10*time.Second), old(2) })
	}
}
