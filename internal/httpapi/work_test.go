package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/queue"
)

// work is a queue with everything that can be told.
func work() queue.State {
	const name = "gitlab.example.com"
	b := queue.NewBoard(queue.Options{Start: now().Add(-time.Hour), Servers: []queue.Source{
		{Name: name, CI: "gitlab", Interval: 15 * time.Second}, {Name: "drone.example.com", CI: "drone", Interval: 15 * time.Second},
	}})
	job := func(n int, status cimeter.JobStatus) cimeter.Job {
		id := fmt.Sprint(n)
		j := cimeter.Job{
			Build:  cimeter.Build{Key: cimeter.BuildKey("gitlab", name, id), CI: "gitlab", Server: name, Number: id, Project: "group/app", Runner: cimeter.Runner{ID: "s_1"}},
			Status: status, Tags: []string{"arm"}, CreatedAt: now().Add(-time.Minute), QueuedAt: now().Add(-time.Minute),
		}
		if status != cimeter.JobWaiting {
			j.StartedAt, j.Worker, j.QueueSeconds = now().Add(-30*time.Second), "w1", cimeter.Some(30.0)
		}
		if status.Ended() {
			j.EndedAt, j.FailureReason = now().Add(-10*time.Second), "script_failure"
		}
		return j
	}
	r := queue.Report{At: now().Add(-5 * time.Second), WholeWorkers: true, WholeJobs: true, Workers: []cimeter.Worker{
		{CI: "gitlab", Server: name, ID: "w1", Name: "docker-1", Machine: "ci-7", Runner: cimeter.Runner{ID: "s_1"}, State: "busy", Tags: []string{"arm"},
			Slots: cimeter.Some(2), Running: cimeter.Some(2), ContactedAt: now(), Version: "18.5.0", Platform: "linux/amd64"},
		{CI: "gitlab", Server: name, ID: "w2", State: "offline"},
	}, Clock: cimeter.Some(time.Duration(0))}
	for n := range 30 {
		r.Jobs = append(r.Jobs, job(100+n, cimeter.JobFailed))
	}
	r.Jobs = append(r.Jobs, job(1, cimeter.JobWaiting), job(2, cimeter.JobWaiting), job(3, cimeter.JobRunning), job(4, cimeter.JobRunning))
	r.Jobs[30].QueuedAt = now().Add(-20 * time.Second) // the estimate knows longer waits
	b.Add(name, true, r)
	b.Failed("drone.example.com", now(), &queue.SourceError{Status: 401, Err: errors.New("GET /api/queue")})
	b.Look(now(), []queue.AgentBuild{{Key: r.Jobs[32].Key, Machine: "ci-7", Stage: "prepare_script", StartedAt: now().Add(-20 * time.Second)}})
	return b.State(now())
}

func (in *intake) cancel(_ context.Context, key, by string) error {
	if in.refuse != nil {
		return in.refuse
	}
	in.canceled = append(in.canceled, key+" by "+by)
	return nil
}

func (in *intake) Receive(ci string, header http.Header, body []byte) error {
	if in.refuse != nil {
		return in.refuse
	}
	if header.Get("X-Secret") != "right" {
		return fmt.Errorf("signature: %w", cimeter.ErrUnauthorized)
	}
	in.hooks = append(in.hooks, fmt.Sprintf("%s %d", ci, len(body)))
	return nil
}

func TestAPI_work(t *testing.T) {
	api, _ := newServer(t, 0)
	for path, want := range map[string]string{
		"/api/v1/work/pending": "2 builds", "/api/v1/work/pending?limit=1": "1 builds", "/api/v1/work/started": "2 builds",
		"/api/v1/work/assignments": "2 assignments", "/api/v1/workers": "2 workers",
	} {
		var answer map[string]json.RawMessage
		var list []json.RawMessage
		var servers []queue.Server
		w := get(t, api, path)
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		n, kind, _ := strings.Cut(want, " ")
		if err := json.Unmarshal(answer[kind], &list); err != nil || fmt.Sprint(len(list)) != n || string(answer["total"]) != "2" {
			t.Errorf("%s: %d of %s: want %s", path, len(list), answer["total"], want)
		}
		if err := json.Unmarshal(answer["servers"], &servers); err != nil || len(servers) != 2 || !servers[0].Stale || servers[0].Status != 401 || servers[1].Waiting.Value != 2 {
			t.Errorf("%s: %+v, %v", path, servers, err)
		}
	}
	if w := get(t, api, "/api/v1/work/assignments"); !strings.Contains(w.Body.String(), `"id":"w1"`) {
		t.Errorf("%s: want the worker", w.Body)
	}
	api, _ = newServer(t, 0, func(o *httpapi.Options) { o.Queue, o.Cancel, o.Hooks = nil, nil, nil })
	for _, path := range []string{"/api/v1/work/pending", "/api/v1/workers", "/api/v1/work/cancel", "/api/v1/hooks/gitlab"} {
		if w := get(t, api, path); w.Code != http.StatusNotFound {
			t.Errorf("%s without CI servers: %d: want 404", path, w.Code)
		}
	}
}

func TestAPI_cancel(t *testing.T) {
	api, in := newServer(t, 0)
	ask := func(body string) int {
		return post(t, api, "/api/v1/work/cancel", []byte(body), "Content-Type", "application/json").Code
	}
	if code := ask(`{"key":"a/b/1"}`); code != http.StatusAccepted || len(in.canceled) != 1 || in.canceled[0] != "a/b/1 by 192.0.2.1" {
		t.Errorf("%d, %q", code, in.canceled)
	}
	for _, body := range []string{"", "x", "{}", `{"key":""}`, `{"key":` + strings.Repeat(" ", 5000)} {
		if code := ask(body); code != http.StatusBadRequest {
			t.Errorf("%.20q: %d: want 400", body, code)
		}
	}
	for _, c := range []struct {
		err  error
		want int
	}{
		{fmt.Errorf("x: %w", cimeter.ErrNotFound), 404},
		{fmt.Errorf("x: %w", cimeter.ErrUnsupported), 501},
		{&queue.SourceError{Status: 409, Err: errors.New("it ended")}, 409},
		// That the CI server does not take our token is not to be taken for the client's fault.
		{&queue.SourceError{Status: 401, Err: errors.New("POST /cancel")}, 502},
		{&queue.SourceError{Status: 500, Err: errors.New("POST /cancel")}, 502},
		{&queue.SourceError{Err: context.DeadlineExceeded}, 502},
	} {
		in.refuse = c.err
		if code := ask(`{"key":"a/b/1"}`); code != c.want {
			t.Errorf("%v: %d: want %d", c.err, code, c.want)
		}
	}
}

func TestAPI_hooks(t *testing.T) {
	api, in := newServer(t, 0)
	ask := func(kind string, body []byte) int {
		return post(t, api, httpapi.HooksPath+kind, body, "X-Secret", "right").Code
	}
	if code := ask("gitlab", make([]byte, 2<<20)); code != 200 || len(in.hooks) != 1 || in.hooks[0] != "gitlab 2097152" {
		t.Errorf("%d, %q", code, in.hooks)
	}
	if code := ask("gitlab", make([]byte, 2<<20+1)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("%d: want 413", code)
	}
	for _, c := range []struct {
		err  error
		want int
	}{
		{fmt.Errorf("x: %w", cimeter.ErrNotFound), 404}, {fmt.Errorf("x: %w", cimeter.ErrInvalid), 400}, {httpapi.ErrBusy, 429},
	} {
		in.refuse = c.err
		if code := ask("gitlab", nil); code != c.want {
			t.Errorf("%v: %d: want %d", c.err, code, c.want)
		}
	}
}
