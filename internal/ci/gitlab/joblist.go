package gitlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/cimeter/cimeter"
)

const (
	// jobListTimeout is short: an answer that is late tells of stages that are over.
	jobListTimeout = 2 * time.Second
	// maxJobList bounds an answer: 1 MiB is some 5,000 jobs of one runner process.
	maxJobList = 1 << 20
)

// PullingImage is the executor's stage while the Docker executor pulls an image
// (executors/docker/docker.go); other executors tell of no pull.
const PullingImage = "docker_pulling_image"

// JobState is one line of a runner's list of jobs.
type JobState struct {
	JobPage
	State         string        // pending, running, finished, success, failed ...
	Stage         string        // the stage that runs; "" while the job is prepared
	ExecutorStage string        // docker_run, docker_pulling_image ...
	Duration      time.Duration // since the runner took the job
}

// AppendJobStates appends the jobs of a runner's /debug/jobs/list
// (commands/builds_helper.go, list version 2) to dst, as in
//
//	url=https://gitlab.example.com/group/app/-/jobs/5001 state=running stage=get_sources executor_stage=docker_run duration=5.3s
//
// Keys may come in any order and unknown ones are ignored. A line that tells no job
// is left out and counted in bad; empty lines are not counted.
func AppendJobStates(dst []JobState, b []byte) (jobs []JobState, bad int) {
	for line := range bytes.Lines(b) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		j, ok := parseJobState(line)
		if !ok {
			bad++
			continue
		}
		dst = append(dst, j)
	}
	return dst, bad
}

func parseJobState(line []byte) (j JobState, ok bool) {
	for field := range bytes.FieldsSeq(line) {
		key, value, _ := bytes.Cut(field, []byte{'='})
		switch string(key) {
		case "url":
			if j.JobPage, ok = ParseJobURL(string(value)); !ok {
				return JobState{}, false
			}
		case "state":
			j.State = string(value)
		case "stage":
			j.Stage = string(value)
		case "executor_stage":
			j.ExecutorStage = string(value)
		case "duration":
			d, err := time.ParseDuration(string(value))
			if err != nil || d < 0 {
				return JobState{}, false
			}
			j.Duration = d
		}
	}
	return j, ok
}

// JobList reads the list of jobs of one runner process over HTTP.
type JobList struct {
	URL    string       // http://<listen_address of the runner>/debug/jobs/list
	Client *http.Client // nil is http.DefaultClient
}

// Fetch asks once, for at most 2 s, and appends the jobs to dst. Lines that tell
// no job are left out. An answer of more than 1 MiB is cut there, at the end of a
// line. The error wraps cimeter.ErrUnavailable when the runner does not answer with
// 200, and cimeter.ErrInvalid when the answer is not a list of jobs; it never
// holds user name or password of the URL.
func (l *JobList) Fetch(ctx context.Context, dst []JobState) ([]JobState, error) {
	ctx, cancel := context.WithTimeout(ctx, jobListTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL, nil)
	if err != nil {
		return dst, fmt.Errorf("list jobs of %s: %w: not an absolute http URL", l.name(), cimeter.ErrInvalid)
	}
	client := l.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return dst, fmt.Errorf("list jobs of %s: %w: %s", l.name(), cimeter.ErrUnavailable, reason(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return dst, fmt.Errorf("list jobs of %s: %w: status %d, want 200", l.name(), cimeter.ErrUnavailable, resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxJobList+1))
	if err != nil {
		return dst, fmt.Errorf("list jobs of %s: %w: %s", l.name(), cimeter.ErrUnavailable, reason(err))
	}
	if len(body) > maxJobList {
		body = body[:bytes.LastIndexByte(body[:maxJobList], '\n')+1]
	}
	jobs, bad := AppendJobStates(dst, body)
	if bad > 0 && len(jobs) == len(dst) {
		return dst, fmt.Errorf("list jobs of %s: %w: none of %d lines tells a job", l.name(), cimeter.ErrInvalid, bad)
	}
	return jobs, nil
}

// name is the URL as errors show it.
func (l *JobList) name() string {
	u, err := url.Parse(l.URL)
	if err != nil {
		return "a runner"
	}
	u.User, u.RawQuery = nil, ""
	return u.String()
}

// reason is the cause of a failed request without the URL that net/http puts
// before it.
func reason(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return err.Error()
}
