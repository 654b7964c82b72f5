package gitlabapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/ci/gitlab/gitlabapi"
)

// Every build that is over and was created since then is told once, by whichever way.
func TestBuilds(t *testing.T) {
	for name, set := range map[string]func(*standin, *gitlabapi.Options){
		"administrator": func(*standin, *gitlabapi.Options) {},
		"member":        func(s *standin, _ *gitlabapi.Options) { s.admin = false },
		"given": func(s *standin, o *gitlabapi.Options) {
			s.admin = false
			o.Projects = []string{pathOf(1), pathOf(2), "no/such"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandin(t)
			s.projects = 130
			want := 0
			for id := int64(1); id <= 700; id++ {
				j := &job{id: id, project: id%2 + 1, status: "success", name: "job", created: s.now.Add(-time.Duration(700-id) * time.Hour)}
				j.queued, j.started, j.finished = j.created, j.created.Add(time.Minute), j.created.Add(time.Hour)
				if id%7 == 0 {
					j.status, j.finished = "running", time.Time{}
				} else if s.now.Sub(j.created) <= 400*time.Hour {
					want++
				}
				s.jobs[id] = j
			}
			c := client(t, s, func(o *gitlabapi.Options) { set(s, o) })
			got := map[string]bool{}
			cursor := ""
			for range 1000 {
				jobs, next, err := c.Builds(context.Background(), s.now.Add(-400*time.Hour), cursor)
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range jobs {
					if got[j.Key] || !j.Status.Ended() || j.EndedAt.Sub(j.StartedAt) != 59*time.Minute || j.StartedAt.Sub(j.QueuedAt) != time.Minute || !strings.HasPrefix(j.Project, "group/app-") {
						t.Fatalf("%+v", j)
					}
					got[j.Key] = true
				}
				if cursor = next; next == "" {
					break
				}
			}
			if len(got) != want || cursor != "" {
				t.Errorf("%d builds: want %d", len(got), want)
			}
		})
	}
	c := client(t, newStandin(t))
	if _, _, err := c.Builds(context.Background(), time.Time{}, "nonsense"); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("a cursor of nobody's: %v", err)
	}
}

func TestCancel(t *testing.T) {
	s := busyServer(t)
	c := client(t, s)
	for _, k := range []struct {
		key  string
		want error
	}{
		{gitlab.JobKey(c.Server(), 2), nil}, {gitlab.JobKey(c.Server(), 2), cimeter.ErrConflict}, {gitlab.JobKey(c.Server(), 77), cimeter.ErrNotFound},
		{gitlab.JobKey("other.example.com", 1), cimeter.ErrNotFound}, {"drone/x/1", cimeter.ErrNotFound}, {"", cimeter.ErrNotFound},
		{gitlab.JobKey(c.Server(), 1) + `"}){errors}}`, cimeter.ErrNotFound},
	} {
		if err := c.Cancel(context.Background(), k.key); !errors.Is(err, k.want) {
			t.Errorf("%s: %v: want %v", k.key, err, k.want)
		}
	}
	if s.jobs[2].status != "canceled" || s.jobs[1].status != "pending" {
		t.Errorf("job 2 is %s, job 1 is %s", s.jobs[2].status, s.jobs[1].status)
	}
	none := client(t, s, func(o *gitlabapi.Options) { o.CancelToken = nil })
	before := s.made()
	if err := none.Cancel(context.Background(), gitlab.JobKey(c.Server(), 1)); !errors.Is(err, cimeter.ErrUnauthorized) || s.made() != before {
		t.Errorf("without a token: %v", err)
	}
	wrong := client(t, s, func(o *gitlabapi.Options) { o.CancelToken = func() (string, error) { return "wrong", nil } })
	if err := wrong.Cancel(context.Background(), gitlab.JobKey(c.Server(), 1)); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("with another's token: %v", err)
	}
}

func TestSections(t *testing.T) {
	s := busyServer(t)
	c := client(t, s)
	log, err := c.Sections(context.Background(), pathOf(5), gitlab.JobKey(c.Server(), 5))
	if err != nil || len(log.Sections) != 1 || log.Sections[0].Name != "step_script" || log.Sections[0].To.Sub(log.Sections[0].From) != 39*time.Minute {
		t.Errorf("%+v, %v", log, err)
	}
	if strings.Contains(fmt.Sprintf("%+v", log), "secret") {
		t.Errorf("text is kept: %+v", log)
	}
	if _, err := c.Sections(context.Background(), pathOf(5), gitlab.JobKey(c.Server(), 99)); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("no log: %v", err)
	}
	// An endless log ends where it is enough.
	s.with(func() {
		s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, "section_start:1000000001:a\r\x1b[0K\n")
			line := strings.Repeat("x", 1<<16) + "\n"
			for range 2000 {
				if _, err := fmt.Fprint(w, line); err != nil {
					break
				}
			}
			return true
		}
	})
	if log, err := c.Sections(context.Background(), pathOf(5), gitlab.JobKey(c.Server(), 5)); err != nil || len(log.Sections) != 1 {
		t.Errorf("endless: %+v, %v", log, err)
	}
}

func TestNew(t *testing.T) {
	for _, u := range []string{"", "gitlab.example.com", "ftp://h", "https://user:secret@h", "https://h?x=1", "http://"} {
		if _, err := gitlabapi.New(gitlabapi.Options{URL: u}); !errors.Is(err, cimeter.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", u, err)
		}
	}
}

func TestHook(t *testing.T) {
	var told []gitlab.Pipeline
	h := gitlabapi.Hook{Server: "gitlab.example.com", Secrets: func() (string, error) { return "old\nnew\n", nil }, Pipeline: func(p gitlab.Pipeline) { told = append(told, p) }}
	header := http.Header{"X-Gitlab-Token": {"new"}, "Idempotency-Key": {"k"}}
	body := []byte(`{"object_kind":"pipeline","object_attributes":{"id":1,"status":"running"},"builds":[{"id":2,"status":"pending"}],"merge_request":{"iid":3}}`)
	if err := h.Verify(header, body, time.Now()); err != nil {
		t.Error(err)
	}
	if err := h.Verify(http.Header{"X-Gitlab-Token": {"old\nnew"}}, body, time.Now()); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("the file as a token: %v", err)
	}
	r, id, err := h.Parse(header, body)
	if err != nil || id != "k" || len(r.Jobs) != 1 || r.Jobs[0].Status != cimeter.JobWaiting || len(told) != 1 || told[0].MergeRequest != 3 {
		t.Errorf("%+v, %q, %v, %+v", r, id, err, told)
	}
	h.Secrets = func() (string, error) { return "", nil }
	if err := h.Verify(http.Header{"X-Gitlab-Token": {""}}, body, time.Now()); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("no secret: %v", err)
	}
}
