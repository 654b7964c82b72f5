package citest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/askhttp"
	"github.com/cimeter/cimeter/internal/ci/buildkite"
	"github.com/cimeter/cimeter/internal/ci/buildkite/buildkiteapi"
	"github.com/cimeter/cimeter/internal/ci/drone"
	"github.com/cimeter/cimeter/internal/ci/drone/droneapi"
	"github.com/cimeter/cimeter/internal/ci/gitea"
	"github.com/cimeter/cimeter/internal/ci/gitea/giteaapi"
	"github.com/cimeter/cimeter/internal/ci/github"
	"github.com/cimeter/cimeter/internal/ci/github/githubapi"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
	"github.com/cimeter/cimeter/internal/ci/jenkins"
	"github.com/cimeter/cimeter/internal/ci/jenkins/jenkinsapi"
	"github.com/cimeter/cimeter/internal/ci/woodpecker"
	"github.com/cimeter/cimeter/internal/ci/woodpecker/woodpeckerapi"
	"github.com/cimeter/cimeter/internal/queue"
)

// object is JSON that a server sends.
type object = map[string]any

func body(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// parse reads what a webhook tells.
func parse(t *testing.T, h interface {
	Parse(http.Header, []byte) (queue.Report, string, error)
}, header http.Header, v any) queue.Report {
	t.Helper()
	r, _, err := h.Parse(header, body(t, v))
	if err != nil || len(r.Jobs) == 0 {
		t.Fatalf("%+v, %v of %s", r, err, body(t, v))
	}
	return r
}

func identified(t *testing.T, id cimeter.Identity, ok bool) cimeter.Identity {
	t.Helper()
	if !ok {
		t.Fatal("the agent does not know the build")
	}
	return id
}

// unless is v from that state on, else nil.
func unless(early bool, v any) any {
	if early {
		return nil
	}
	return v
}

func gitlabSides(t *testing.T, n int) sides {
	queued, began, ended := times(n)
	id := 4000 + n
	s := sides{number: text(id), attempt: attempt(n), failed: fails(n), queued: true}
	for i, status := range []string{"pending", "running", map[bool]string{true: "failed", false: "success"}[s.failed]} {
		b := body(t, object{
			"object_kind": "build", "build_id": id, "build_name": "test", "build_stage": "test", "build_status": status, "retries_count": attempt(n) - 1, "ref": "main", "sha": "7e4d", "pipeline_id": original(n) / 10,
			"build_created_at": queued, "build_started_at": unless(i < 1, began), "build_finished_at": unless(i < 2, ended), "build_queued_duration": unless(i < 1, waits.Seconds()),
			"project": object{"path_with_namespace": "group/app", "web_url": "https://gitlab.example.com/group/app"},
		})
		r, _, err := gitlab.ParseHook("gitlab.example.com", b)
		if err != nil {
			t.Fatal(err)
		}
		s.reports = append(s.reports, r)
	}
	id2, ok := gitlab.Identify(&cimeter.Container{
		Name: fmt.Sprintf("runner-zx8k2mqpl-project-3-concurrent-0-%016x-build", id), ID: text(n),
		Labels: map[string]string{
			"com.gitlab.gitlab-runner.managed": "true", "com.gitlab.gitlab-runner.job.id": text(id), "com.gitlab.gitlab-runner.job.url": "https://gitlab.example.com/group/app/-/jobs/" + text(id),
			"com.gitlab.gitlab-runner.project.id": "3", "com.gitlab.gitlab-runner.runner.id": "Zx8k2mQpL", "com.gitlab.gitlab-runner.project.runner_id": "0", "com.gitlab.gitlab-runner.type": "build",
		},
	})
	s.agent = identified(t, id2, ok)
	return s
}

// Two stages are one build of Drone; one that is tried again has a number of its own.
func droneSides(t *testing.T, n int) sides {
	queued, began, ended := times(n)
	number, stage := n/2+1, n%2+1
	s := sides{number: text(number), failed: fails(n), queued: true}
	hook := droneapi.Hook{URL: "https://drone.example.com"}
	for i, status := range []string{"pending", "running", map[bool]string{true: "failure", false: "success"}[s.failed]} {
		unix := func(at time.Time, from int) int64 {
			if i < from {
				return 0
			}
			return at.Unix()
		}
		s.reports = append(s.reports, parse(t, hook, http.Header{}, object{
			"event": "build", "action": "updated", "repo": object{"slug": "Org/app"},
			"build": object{"id": number, "number": number, "event": "push", "target": "main", "stages": []any{object{
				"id": n + 1, "build_id": number, "number": stage, "name": "s" + text(stage), "status": status, "machine": "ci-7", "os": "linux", "arch": "amd64", "version": i,
				"created": queued.Unix(), "updated": queued.Unix(), "started": unix(began, 1), "stopped": unix(ended, 2),
			}}},
		}))
	}
	id, ok := drone.Identify(&cimeter.Container{Name: fmt.Sprintf("drone-pt4306jSfhaW8L19%04d", n), Labels: map[string]string{
		"io.drone": "true", "io.drone.system.host": "drone.example.com", "io.drone.repo.slug": "Org/app", "io.drone.build.number": text(number), "io.drone.stage.number": text(stage), "io.drone.stage.name": "s" + text(stage),
		"io.drone.step.name": "build",
	}})
	s.agent = identified(t, id, ok)
	return s
}

// stream is a stand-in of Woodpecker's stream of events.
type stream string

func (s stream) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, string(s))
}

// Three legs of a matrix, which have one name, are one pipeline of Woodpecker.
func woodpeckerSides(t *testing.T, n int) sides {
	_, began, ended := times(n)
	number, leg := n/3+1, n%3+1
	s := sides{number: text(number), failed: fails(n)}
	var lines strings.Builder
	for i, state := range []string{"running", map[bool]string{true: "failure", false: "success"}[s.failed]} {
		finished := int64(0)
		if i > 0 {
			finished = ended.Unix()
		}
		fmt.Fprintf(&lines, "data: %s\n\n", body(t, object{
			"repo": object{"id": 4, "full_name": "Org/app"},
			"pipeline": object{"id": number, "number": number, "status": "running", "event": "push", "branch": "main", "created": began.Unix(), "workflows": []any{
				object{"id": n + 1, "pid": leg, "name": "test", "state": state, "started": began.Unix(), "finished": finished, "agent_id": 2},
			}},
		}))
	}
	server := httptest.NewServer(stream(lines.String()))
	defer server.Close()
	to, err := askhttp.New(askhttp.Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c, err := woodpeckerapi.New(woodpeckerapi.Options{URL: "https://woodpecker.example.com", Ask: to, Stream: to})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Events(t.Context(), func(r queue.Report) { s.reports = append(s.reports, r) })
	id, ok := woodpecker.Identify(&cimeter.Container{Name: "wp_" + text(n), Labels: map[string]string{"wp_uuid": text(n), "wp_step": "build"}, Env: map[string]string{
		"CI_SYSTEM_NAME": "woodpecker", "CI_SYSTEM_URL": "https://woodpecker.example.com", "CI_REPO": "Org/app", "CI_PIPELINE_NUMBER": text(number), "CI_WORKFLOW_NAME": "test", "CI_WORKFLOW_NUMBER": text(leg),
	}})
	s.agent = identified(t, id, ok)
	return s
}

// taskOf is what polls have learned: which task a job of Gitea has at which try.
type taskOf struct{ n int }

func (t taskOf) Task(int64, int) int64 { return int64(7000 + t.n) }

// A job of Gitea that is tried again keeps its id and gets another task.
func giteaSides(t *testing.T, n int) sides {
	queued, began, ended := times(n)
	id := 100 + original(n)
	s := sides{number: text(7000 + n), attempt: attempt(n), failed: fails(n), queued: false}
	hook := giteaapi.Hook{Kind: gitea.CI, URL: "https://git.example.com", Tasks: taskOf{n}}
	states := []string{"queued", "in_progress", "completed"}
	if retried(n) {
		states = states[1:] // the job that waits is the one that was there before
	}
	for _, state := range states {
		conclusion := ""
		if state == "completed" {
			conclusion = map[bool]string{true: "failure", false: "success"}[s.failed]
		}
		s.reports = append(s.reports, parse(t, hook, http.Header{"X-Gitea-Event": {"workflow_job"}}, object{
			"action": state, "repository": object{"full_name": "Org/app"},
			"workflow_job": object{
				"id": id, "run_id": id / 3, "name": "build", "run_attempt": attempt(n), "status": state, "conclusion": conclusion, "runner_id": 2, "runner_name": "r",
				"created_at": queued, "started_at": began, "completed_at": ended, "html_url": "https://git.example.com/Org/app/actions/runs/5/jobs/11",
			},
		}))
	}
	c, ok := gitea.Identify(&cimeter.Container{Name: "GITEA-ACTIONS-TASK-" + text(7000+n) + "_WORKFLOW-ci_JOB-build"})
	s.agent = identified(t, c, ok)
	return s
}

// githubNames is what the API calls the jobs of a workflow, and their keys in it: with
// a name of their own, as legs of a matrix, or both.
var githubNames = [...]struct{ name, job string }{
	{"test", "test"}, {"Unit tests", "unit"}, {"call / test (1, linux)", "test"}, {"Prüfung 3/4 (arm)", "check"}, {"call / test (2, linux)", "test"},
	{"Unit tests", "unit_again"}, // another job of the same name
}

// Ten runners have one job after the other of runs of sixty; what is tried again is a
// job of its own of the run's next attempt. Neither side knows the other's name of it.
func githubSides(t *testing.T, n int) sides {
	queued, began, ended := times(n)
	run, runner, is := 9000+original(n)/60, "big-"+text(n%10), githubNames[original(n)%len(githubNames)]
	s := sides{key: fmt.Sprintf("github/github.com/Org/app/%d/job/%d", run, 50_000+n), number: text(50_000 + n), attempt: attempt(n), failed: fails(n), queued: true}
	hook := githubapi.Hook{URL: "https://github.com"}
	for i, state := range []string{"queued", "in_progress", "completed"} {
		j := object{
			"id": 50_000 + n, "run_id": run, "run_attempt": attempt(n), "name": is.name, "status": state, "labels": []string{"self-hosted"}, "head_branch": "main",
			"html_url": "https://github.com/Org/app/actions/runs/1/job/2", "created_at": queued, "started_at": queued,
		}
		if i > 0 {
			j["runner_id"], j["runner_name"], j["started_at"] = 31, runner, began
		}
		if i > 1 {
			j["conclusion"], j["completed_at"] = map[bool]string{true: "failure", false: "success"}[s.failed], ended
		}
		s.reports = append(s.reports, parse(t, hook, http.Header{"X-Github-Event": {"workflow_job"}}, object{"action": state, "workflow_job": j, "repository": object{"full_name": "Org/app"}}))
	}
	id, ok := github.OfProcess(map[string]string{
		"GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "Org/app", "GITHUB_RUN_ID": text(run), "GITHUB_RUN_ATTEMPT": text(attempt(n)),
		"GITHUB_RUN_NUMBER": "12", "GITHUB_JOB": is.job, "GITHUB_ACTION": "__run", "RUNNER_NAME": runner,
	})
	if n/10%6 > 0 { // the agent tells the jobs that one runner has of one key apart so
		id.Build.Key += fmt.Sprintf("/%08x", n)
	}
	s.agent = identified(t, id, ok)
	return s
}

// jenkinsQueue is a poll that saw the builds wait.
func jenkinsQueue(t *testing.T, builds int) queue.Report {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/computer") {
			_, _ = io.WriteString(w, `{"computer":[]}`)
			return
		}
		items := []any{}
		for n := range builds {
			queued, _, _ := times(n)
			items = append(items, object{"id": 300 + n, "inQueueSince": queued.UnixMilli(), "buildable": true, "buildableStartMilliseconds": queued.UnixMilli(), "task": object{"url": "https://ci.example.com/job/team/job/app/"}})
		}
		_ = json.NewEncoder(w).Encode(object{"items": items})
	}))
	defer server.Close()
	to, err := askhttp.New(askhttp.Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c, err := jenkinsapi.New(jenkinsapi.Options{URL: "https://ci.example.com", Ask: to})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Poll(context.Background())
	if err != nil || len(r.Jobs) != builds {
		t.Fatalf("%d items, %v", len(r.Jobs), err)
	}
	return r
}

// A build of Jenkins that is tried again has a number of its own.
func jenkinsSides(t *testing.T, n int) sides {
	_, began, ended := times(n)
	s := sides{number: text(n + 1), failed: fails(n), queued: true}
	hook := jenkinsapi.Hook{URL: "https://ci.example.com"}
	for i, phase := range []string{"STARTED", "COMPLETED"} {
		b := object{"full_url": "https://ci.example.com/job/team/job/app/" + text(n+1) + "/", "number": n + 1, "queue_id": 300 + n, "phase": phase, "timestamp": began.UnixMilli(), "duration": 0}
		if i > 0 {
			b["timestamp"], b["duration"], b["status"] = ended.UnixMilli(), ended.Sub(began).Milliseconds(), map[bool]string{true: "FAILURE", false: "SUCCESS"}[s.failed]
		}
		s.reports = append(s.reports, parse(t, hook, nil, object{"name": "app", "build": b}))
	}
	id, ok := jenkins.OfProcess(map[string]string{"JENKINS_URL": "https://ci.example.com/", "BUILD_URL": "https://ci.example.com/job/team/job/app/" + text(n+1) + "/", "JOB_NAME": "team/app", "BUILD_NUMBER": text(n + 1)})
	s.agent = identified(t, id, ok)
	return s
}

// A job of Buildkite that is tried again is a job of its own of the same build.
func buildkiteSides(t *testing.T, n int) sides {
	queued, began, ended := times(n)
	uuid, number := fmt.Sprintf("0190c0de-0000-4000-8000-%012d", n), original(n)/4+1
	s := sides{number: text(number), attempt: attempt(n), failed: fails(n), queued: true}
	hook := buildkiteapi.Hook{URL: "https://buildkite.com"}
	for i, state := range []string{"scheduled", "running", "finished"} {
		j := object{"id": uuid, "type": "script", "name": "test", "state": state, "retries_count": attempt(n) - 1, "created_at": queued, "runnable_at": queued, "web_url": "https://buildkite.com/acme/app/builds/1"}
		if i > 0 {
			j["started_at"], j["agent"] = began, object{"id": "ag-1", "name": "host-1"}
		}
		if i > 1 {
			j["finished_at"], j["exit_status"] = ended, map[bool]int{true: 1, false: 0}[s.failed]
		}
		s.reports = append(s.reports, parse(t, hook, http.Header{}, object{
			"event": "job." + state, "job": j, "build": object{"number": number, "url": "https://api.buildkite.com/v2/organizations/acme/pipelines/app/builds/" + strconv.Itoa(number), "branch": "main", "source": "webhook"},
		}))
	}
	id, ok := buildkite.OfProcess(map[string]string{
		"BUILDKITE": "true", "BUILDKITE_JOB_ID": uuid, "BUILDKITE_BUILD_URL": "https://buildkite.com/acme/app/builds/" + text(number), "BUILDKITE_BUILD_NUMBER": text(number),
		"BUILDKITE_ORGANIZATION_SLUG": "acme", "BUILDKITE_PIPELINE_SLUG": "app", "BUILDKITE_RETRY_COUNT": text(attempt(n) - 1),
	})
	s.agent = identified(t, id, ok)
	return s
}
