package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/queue"
)

// fakeQueue is queueServer for one script.
func fakeQueue(e *testscript.Env) string {
	s := queueServer()
	e.Defer(s.Close)
	return s.URL
}

// queueServer is a server that knows of one CI server, which is away.
func queueServer() *httptest.Server {
	const name = "gitlab.example.com"
	board := queue.NewBoard(queue.Options{Servers: []queue.Source{{Name: name, CI: "gitlab", Interval: 10 * time.Second}}})
	now := time.Now()
	job := func(id, name string, status cimeter.JobStatus, tag string, queued, started time.Duration) cimeter.Job {
		j := cimeter.Job{
			Build:  cimeter.Build{Key: "gitlab/gitlab.example.com/" + id, CI: "gitlab", Server: "gitlab.example.com", Number: id, Name: name, Project: "group/app"},
			Status: status, Tags: []string{tag}, QueuedAt: now.Add(-queued),
		}
		if started > 0 {
			j.StartedAt, j.Worker, j.Runner = now.Add(-started), "w1", cimeter.Runner{Name: "docker-1"}
		}
		return j
	}
	board.Add(name, true, queue.Report{
		At: now.Add(-2 * time.Minute), WholeJobs: true, WholeWorkers: true,
		Jobs: []cimeter.Job{
			job("2", "lint\x1b[2J", cimeter.JobWaiting, "docker", 5*time.Minute, 0), job("1", "test", cimeter.JobWaiting, "gpu", 10*time.Minute, 0),
			job("3", "build", cimeter.JobRunning, "docker", 5*time.Minute, time.Minute),
		},
		Workers: []cimeter.Worker{{CI: "gitlab", ID: "w1", Name: "docker-1", State: cimeter.WorkerBusy, Tags: []string{"docker"}, Slots: cimeter.Some(1), Running: cimeter.Some(1)}},
	})
	board.Failed(name, now, &queue.SourceError{Status: 502, Err: errors.New("GET /api/v4/jobs")})
	tokens, err := httpapi.ParseTokens(fmt.Sprintf("cancel me %x\nread me %x\n", sha256.Sum256([]byte("cmt_cancels")), sha256.Sum256([]byte("cmt_reads"))))
	if err != nil {
		panic(err)
	}
	return httptest.NewServer(httpapi.New(httpapi.Options{
		Queue:  func() queue.State { return board.State(now) },
		Access: httpapi.NewAccess(httpapi.AccessOptions{Tokens: tokens, OpenRead: true}),
		Cancel: func(_ context.Context, key, _ string) error {
			if strings.HasSuffix(key, "/2") {
				return &queue.SourceError{Status: 409, Err: errors.New("it ended")}
			}
			return nil
		},
	}))
}
