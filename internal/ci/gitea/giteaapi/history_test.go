package giteaapi_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/gitea"
	"github.com/cimeter/cimeter/internal/queue"
)

// pastServer is a stand-in that holds runs of two repositories: each with the jobs
// build and test, test of every fifth tried three times. It answers as Gitea or as
// Forgejo.
type pastServer struct {
	forgejo bool
	none    bool // lists no runs, as old ones of Forgejo do
	runs    []pastRun
	asked   atomic.Int32
}

type pastRun struct {
	id    int
	repo  string
	made  time.Time
	tasks []pastTask // of build, and of test in the order of its tries
}

type pastTask struct {
	id     int
	job    string
	made   time.Time
	status string
}

// lasts is how long each task takes.
const lasts = 30 * time.Second

func newPast(runs int, end time.Time) *pastServer {
	p := &pastServer{}
	task := 0
	for n := range runs {
		r := pastRun{id: n + 1, repo: []string{"Org/app", "Org/lib"}[n%2], made: end.Add(time.Duration(n-runs) * time.Hour)}
		tries := 1
		if n%5 == 0 {
			tries = 3
		}
		add := func(job, status string, after time.Duration) {
			task++
			r.tasks = append(r.tasks, pastTask{task, job, r.made.Add(after), status})
		}
		add("build", "success", time.Minute)
		for i := range tries {
			status := "failure"
			if i == tries-1 {
				status = "success"
			}
			add("test", status, time.Duration(2+3*i)*time.Minute)
		}
		p.runs = append(p.runs, r)
	}
	return p
}

func (p *pastServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.asked.Add(1)
	page, _ := strconv.Atoi(r.FormValue("page"))
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	answer := func(name string, all []map[string]any) {
		from := min((page-1)*limit, len(all))
		_ = json.NewEncoder(w).Encode(map[string]any{name: all[from:min(from+limit, len(all))], "total_count": len(all)})
	}
	rest, _ := strings.CutPrefix(r.URL.Path, "/api/v1")
	parts := strings.Split(strings.Trim(rest, "/"), "/")
	switch {
	case rest == "/repos/search":
		answer("data", []map[string]any{{"full_name": "Org/app", "has_actions": true}, {"full_name": "Org/none", "has_actions": false}, {"full_name": "Org/lib"}})
	case rest == "/admin/actions/runs" && !p.forgejo:
		answer("workflow_runs", p.list(func(pastRun) bool { return true }))
	case len(parts) == 5 && parts[4] == "runs" && !p.none:
		answer("workflow_runs", p.list(func(r pastRun) bool { return r.repo == parts[1]+"/"+parts[2] }))
	case len(parts) == 5 && parts[4] == "tasks":
		answer("workflow_runs", p.tasks(parts[1]+"/"+parts[2]))
	case len(parts) == 7 && parts[6] == "jobs" && !p.forgejo:
		id, _ := strconv.Atoi(parts[5])
		answer("jobs", p.jobs(p.runs[id-1]))
	default:
		http.Error(w, `{"message":"not found"}`, http.StatusNotFound)
	}
}

func pageOfRun(r pastRun) string {
	return fmt.Sprintf("https://git.example.com/%s/actions/runs/%d", r.repo, r.id)
}

func (p *pastServer) list(is func(pastRun) bool) (all []map[string]any) {
	for _, r := range slices.Backward(p.runs) {
		if is(r) {
			all = append(all, map[string]any{"id": r.id, "url": fmt.Sprintf("https://git.example.com/api/v1/repos/%s/actions/runs/%d", r.repo, r.id),
				"html_url": pageOfRun(r), "event": "push", "stopped": r.tasks[len(r.tasks)-1].made.Add(lasts)})
		}
	}
	return all
}

func (p *pastServer) tasks(repo string) (all []map[string]any) {
	for _, r := range p.runs {
		for _, t := range r.tasks {
			if r.repo == repo { // a log that was thrown away changed the task a month later
				all = append(all, map[string]any{"id": t.id, "name": t.job, "url": pageOfRun(r), "status": t.status, "head_branch": "main", "head_sha": "7e4d", "event": "push",
					"created_at": t.made, "run_started_at": t.made, "updated_at": t.made.AddDate(0, 1, 0)})
			}
		}
	}
	slices.SortFunc(all, func(a, b map[string]any) int { return cmp.Compare(b["id"].(int), a["id"].(int)) })
	return all
}

func (p *pastServer) jobs(r pastRun) (all []map[string]any) {
	for i, name := range []string{"build", "test"} {
		n, last := 0, pastTask{}
		for _, t := range r.tasks {
			if t.job == name {
				n, last = n+1, t
			}
		}
		id := r.id*10 + i
		all = append(all, map[string]any{"id": id, "run_id": r.id, "name": name, "run_attempt": n, "status": "completed", "conclusion": last.status, "runner_id": 2, "runner_name": "big-1",
			"labels": []string{"metal"}, "url": fmt.Sprintf("https://git.example.com/api/v1/repos/%s/actions/jobs/%d", r.repo, id), "html_url": fmt.Sprintf("%s/jobs/%d", pageOfRun(r), id),
			"head_branch": "main", "created_at": r.made, "started_at": last.made, "completed_at": last.made.Add(lasts)})
	}
	return all
}

// Every task of the time that is asked for is told of once, with how it ended and
// which try it was, also when another process goes on in the middle; no call makes more
// requests than it says.
func TestBuilds(t *testing.T) {
	end := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	since := end.Add(-250*time.Hour - time.Minute)
	for name, test := range map[string]struct {
		kind     string
		none     bool
		projects []string
		most     int32
	}{
		"gitea": {kind: gitea.CI, most: 32}, "gitea, by repository": {kind: gitea.CI, projects: []string{"Org/app", "Org/lib"}, most: 32},
		"forgejo": {kind: gitea.Forgejo, most: 8}, "forgejo, by repository": {kind: gitea.Forgejo, projects: []string{"Org/lib", "Org/app"}, most: 8},
		"forgejo, old": {kind: gitea.Forgejo, none: true, most: 8},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPast(300, end)
			p.forgejo, p.none = test.kind == gitea.Forgejo, test.none
			s := httptest.NewServer(p)
			defer s.Close()
			c := client(t, test.kind, s.URL, test.projects...)
			got := map[string]cimeter.Job{}
			cursor := ""
			for calls := 1; ; calls++ {
				p.asked.Store(0)
				jobs, next, err := c.Builds(t.Context(), since, cursor)
				if err != nil {
					t.Fatal(err)
				}
				if n := p.asked.Load(); n > test.most {
					t.Errorf("call %d made %d requests: want at most %d", calls, n, test.most)
				}
				for _, j := range jobs {
					if _, twice := got[j.Key]; twice {
						t.Errorf("%s is told of twice", j.Key)
					}
					got[j.Key] = j
				}
				if next == "" {
					break
				}
				if next == cursor || calls > 1000 {
					t.Fatalf("cursor %s leads to itself", next)
				}
				if cursor = next; calls%3 == 0 {
					c = client(t, test.kind, s.URL, test.projects...)
				}
			}
			want := 0
			for _, r := range p.runs {
				tries := 0
				for _, task := range r.tasks {
					if task.job == "test" {
						tries++
					}
					if r.made.Before(since) {
						continue
					}
					want++
					j, ok := got[gitea.Key(test.kind, strconv.Itoa(task.id))]
					attempt := max(tries, 1)
					if test.kind == gitea.Forgejo {
						attempt = 0 // it does not tell
					}
					switch {
					case !ok:
						t.Fatalf("task %d is not told of", task.id)
					case j.Project != r.repo || j.Name != task.job || j.Number != strconv.Itoa(task.id) || j.Attempt != attempt || j.Ref != "main" || j.Event != "push" || j.URL == "":
						t.Fatalf("%+v: want task %+v of run %d, try %d", j, task, r.id, attempt)
					case !test.none && j.Pipeline != strconv.Itoa(r.id):
						t.Fatalf("%+v: want run %d", j, r.id)
					case (j.Status == cimeter.JobSuccess) != (task.status == "success") || !j.Status.Ended():
						t.Fatalf("%+v: want %s", j, task.status)
					case !j.StartedAt.Equal(task.made) || j.EndedAt.Before(j.StartedAt):
						t.Fatalf("%+v: from %v to %v", j, j.StartedAt, j.EndedAt)
					case !test.none && j.EndedAt.Sub(j.StartedAt) > 10*time.Minute:
						t.Fatalf("%+v: took %v: the log's end is taken for the build's", j, j.EndedAt.Sub(j.StartedAt))
					}
				}
			}
			if len(got) != want {
				t.Errorf("%d builds: want %d", len(got), want)
			}
		})
	}
}

// A page that fails is an error, and asked for again tells all.
func TestBuilds_faults(t *testing.T) {
	end := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, kind := range []string{gitea.CI, gitea.Forgejo} {
		p := newPast(5, end)
		p.forgejo = kind == gitea.Forgejo
		whole := 0
		for broken := int32(0); broken < 12; broken++ {
			p.asked.Store(0)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if p.asked.Load() == broken-1 {
					p.asked.Add(1)
					_, _ = w.Write([]byte(`{}`))
					return
				}
				p.ServeHTTP(w, r)
			}))
			c := client(t, kind, s.URL)
			n, failed, cursor := 0, 0, ""
			for {
				jobs, next, err := c.Builds(t.Context(), time.Time{}, cursor)
				var source *queue.SourceError
				if err != nil {
					if failed++; failed > 1 || !errors.As(err, &source) || !errors.Is(err, cimeter.ErrInvalid) || len(jobs) > 0 {
						t.Fatalf("%s: %d jobs, %v", kind, len(jobs), err)
					}
					continue
				}
				n += len(jobs)
				if cursor = next; next == "" {
					break
				}
			}
			if broken == 0 {
				whole = n
			}
			if n != whole || whole != 12 {
				t.Errorf("%s, request %d broken: %d builds, want 12", kind, broken, n)
			}
			s.Close()
		}
		if _, _, err := client(t, kind, "http://127.0.0.1:1").Builds(t.Context(), end, "x"); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("cursor x: %v", err)
		}
	}
}

// A run that begins and finishes between two polls is told of once; one whose jobs were
// seen is not asked for again.
func TestPollShort(t *testing.T) {
	row := func(id int, status string) string {
		return fmt.Sprintf(`{"id":%d,"url":"https://git.example.com/api/v1/repos/Org/app/actions/runs/%d","event":"push","status":%q}`, id, id, status)
	}
	runs := row(4, "completed")
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		switch {
		case strings.HasPrefix(path, "/api/v1/admin/actions/runs?"):
			return `{"workflow_runs":[` + runs + `]}`, true
		case strings.HasPrefix(path, "/api/v1/admin/actions/jobs?"):
			return `{"jobs":[],"total_count":0}`, true
		case strings.Contains(path, "/actions/runs/6/jobs"):
			return `{"total_count":1,"jobs":[{"id":61,"run_id":6,"url":"https://git.example.com/api/v1/repos/Org/app/actions/jobs/61","html_url":"https://git.example.com/Org/app/actions/runs/6/jobs/61","name":"lint","run_attempt":1,
				"status":"completed","conclusion":"success","runner_id":2,"created_at":"2026-11-30T07:09:00Z","started_at":"2026-11-30T07:09:01Z","completed_at":"2026-11-30T07:09:03Z"}]}`, true
		case strings.Contains(path, "/actions/tasks"):
			return `{"workflow_runs":[{"id":99,"name":"lint","url":"https://git.example.com/Org/app/actions/runs/6"}]}`, true
		}
		return "", false
	}}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, gitea.CI, s.URL)
	for step, want := range []int{0, 0, 1, 0} {
		r, err := c.Poll(t.Context())
		if err != nil || len(r.Jobs) != want || want == 1 && (r.Jobs[0].Key != "gitea/local/99" || r.Jobs[0].Status != cimeter.JobSuccess || r.Jobs[0].Event != "push" || len(r.Moved) != 1) {
			t.Errorf("poll %d: %+v, %v: want %d", step, r.Jobs, err, want)
		}
		runs = row(6, map[bool]string{true: "in_progress", false: "completed"}[step == 0]) + "," + row(4, "completed")
	}
	f.Asked(t)
	if _, err := c.Poll(t.Context()); err != nil || len(f.Asked(t)) != 3 {
		t.Errorf("nothing moved: %v", err)
	}
}

// However many runs begin and finish between two polls, each is told of once: also
// those on later pages, and when a new one moves a run to the next page.
func TestPollShort_many(t *testing.T) {
	newest := 5
	f := &citest.Folder{Dir: "testdata/server", Change: func(path string) (string, bool) {
		u, err := url.Parse(path)
		if err != nil {
			t.Error(err)
		}
		var run int
		switch {
		case u.Path == "/api/v1/admin/actions/jobs":
			return `{"jobs":[],"total_count":0}`, true
		case u.Path == "/api/v1/admin/actions/runs":
			page, _ := strconv.Atoi(u.Query().Get("page"))
			limit, _ := strconv.Atoi(u.Query().Get("limit"))
			if page == 2 {
				newest++ // one more, meanwhile
			}
			var rows []string
			for id := newest - (page-1)*limit; id > max(0, newest-page*limit); id-- {
				rows = append(rows, fmt.Sprintf(`{"id":%d,"url":"https://git.example.com/api/v1/repos/Org/app/actions/runs/%d","event":"push","status":"completed"}`, id, id))
			}
			return `{"workflow_runs":[` + strings.Join(rows, ",") + `]}`, true
		case strings.HasSuffix(u.Path, "/actions/tasks"):
			return `{"workflow_runs":[]}`, true
		}
		if _, err := fmt.Sscanf(u.Path, "/api/v1/repos/Org/app/actions/runs/%d/jobs", &run); err == nil {
			return fmt.Sprintf(`{"total_count":1,"jobs":[{"id":%d,"run_id":%d,"url":"https://git.example.com/api/v1/repos/Org/app/actions/jobs/%d","html_url":"https://git.example.com/Org/app/actions/runs/%d/jobs/0","name":"lint","run_attempt":1,
				"status":"completed","conclusion":"success","created_at":"2026-11-30T07:09:00Z","started_at":"2026-11-30T07:09:01Z","completed_at":"2026-11-30T07:09:03Z"}]}`, 1000+run, run, 1000+run, run), true
		}
		return "", false
	}}
	s := httptest.NewServer(f)
	defer s.Close()
	c := client(t, gitea.CI, s.URL)
	told := map[string]int{}
	for _, made := range []int{0, 65, 0, 3, 0} {
		newest += made
		r, err := c.Poll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range r.Jobs {
			told[j.Key]++
		}
	}
	for key, n := range told {
		if n != 1 {
			t.Errorf("%s is told of %d times", key, n)
		}
	}
	if want := newest - 5; len(told) != want || newest < 74 {
		t.Errorf("%d runs are told of, want %d", len(told), want)
	}
}
