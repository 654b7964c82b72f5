package gitlab

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/queue"
)

// hook is the body of a Job Hook or a Pipeline Hook (lib/gitlab/data_builder/build.rb
// and pipeline.rb), as far as it is of use.
type hook struct {
	Kind    string `json:"object_kind"`
	Project *struct {
		Path   string `json:"path_with_namespace"`
		WebURL string `json:"web_url"`
	} `json:"project"`

	// Of a job.
	Ref            string               `json:"ref"`
	SHA            string               `json:"sha"`
	Retries        cimeter.Opt[int]     `json:"retries_count"`
	BuildID        int64                `json:"build_id"`
	BuildName      string               `json:"build_name"`
	BuildStage     string               `json:"build_stage"`
	BuildStatus    string               `json:"build_status"`
	CreatedAt      Time                 `json:"build_created_at"`
	StartedAt      Time                 `json:"build_started_at"`
	FinishedAt     Time                 `json:"build_finished_at"`
	CreatedISO     Time                 `json:"build_created_at_iso"`
	StartedISO     Time                 `json:"build_started_at_iso"`
	FinishedISO    Time                 `json:"build_finished_at_iso"`
	QueuedDuration cimeter.Opt[float64] `json:"build_queued_duration"`
	FailureReason  string               `json:"build_failure_reason"`
	PipelineID     int64                `json:"pipeline_id"`
	Runner         *hookRunner          `json:"runner"`
	Repository     *struct {
		Homepage string `json:"homepage"`
	} `json:"repository"`

	// Of a pipeline.
	Pipeline struct {
		ID         int64  `json:"id"`
		Ref        string `json:"ref"`
		SHA        string `json:"sha"`
		Source     string `json:"source"`
		Status     string `json:"status"`
		FinishedAt Time   `json:"finished_at"`
	} `json:"object_attributes"`
	MergeRequest *struct {
		IID           int64  `json:"iid"`
		TargetBranch  string `json:"target_branch"`
		TargetProject int64  `json:"target_project_id"`
	} `json:"merge_request"`
	Builds []struct {
		ID             int64                `json:"id"`
		Stage          string               `json:"stage"`
		Name           string               `json:"name"`
		Status         string               `json:"status"`
		CreatedAt      Time                 `json:"created_at"`
		StartedAt      Time                 `json:"started_at"`
		FinishedAt     Time                 `json:"finished_at"`
		QueuedDuration cimeter.Opt[float64] `json:"queued_duration"`
		FailureReason  string               `json:"failure_reason"`
		Runner         *hookRunner          `json:"runner"`
	} `json:"builds"`
}

type hookRunner struct {
	Description string   `json:"description"`
	Tags        []string `json:"tags"` // the runner's, not the job's
}

// Pipeline is a pipeline as its webhook tells of it.
type Pipeline struct {
	ID         string
	Project    string // path
	Ref, SHA   string
	Source     string // push, merge_request_event ...
	Ended      bool
	Status     cimeter.JobStatus
	FinishedAt time.Time
	// MergeRequest is the number of the merge request within TargetProject, 0 when it
	// has none; TargetBranch is the branch it would be merged into.
	MergeRequest  int64
	TargetProject int64 // id
	TargetBranch  string
}

// ParseHook reads the body of a Job Hook or a Pipeline Hook of the server of that
// host. The pipeline is nil for a job. What the body says of addresses is believed
// for nothing but a project's path. The error wraps [cimeter.ErrUnsupported] for
// other hooks, and [cimeter.ErrInvalid] for what cannot be read, such as the body of
// a custom template.
func ParseHook(server string, body []byte) (queue.Report, *Pipeline, error) {
	var h hook
	if err := json.Unmarshal(body, &h); err != nil {
		return queue.Report{}, nil, fmt.Errorf("webhook: no JSON of GitLab's: %w", cimeter.ErrInvalid)
	}
	base := cimeter.Build{CI: CI, Server: strings.ToLower(server), Project: h.project()}
	switch h.Kind {
	case "build":
		if h.BuildID <= 0 || h.BuildStatus == "" {
			return queue.Report{}, nil, fmt.Errorf("job hook: want build_id and build_status: %w", cimeter.ErrInvalid)
		}
		return queue.Report{Jobs: []cimeter.Job{h.job(base)}}, nil, nil
	case "pipeline":
		if h.Pipeline.ID <= 0 || h.Pipeline.Status == "" {
			return queue.Report{}, nil, fmt.Errorf("pipeline hook: want object_attributes.id and status: %w", cimeter.ErrInvalid)
		}
		jobs, p := h.pipeline(base)
		return queue.Report{Jobs: jobs}, p, nil
	case "":
		return queue.Report{}, nil, fmt.Errorf("webhook: want object_kind; is there a custom template? %w", cimeter.ErrInvalid)
	}
	return queue.Report{}, nil, fmt.Errorf("webhook of kind %s: %w", ci.Quote(h.Kind), cimeter.ErrUnsupported)
}

// project is the path of the project. Older servers tell it by the page of the
// repository alone.
func (h *hook) project() string {
	if h.Project != nil && h.Project.Path != "" {
		return h.Project.Path
	}
	if h.Repository != nil {
		if page, ok := ParseJobURL(h.Repository.Homepage + "/-/jobs/1"); ok {
			return page.Project
		}
	}
	return ""
}

func (h *hook) page(server string, job int64) string {
	if h.Project == nil {
		return ""
	}
	u := h.Project.WebURL + "/-/jobs/" + strconv.FormatInt(job, 10)
	if page, ok := ParseJobURL(u); !ok || page.Server != server {
		return ""
	}
	return ci.PageOf(u)
}

func (h *hook) job(b cimeter.Build) cimeter.Job {
	b.Key, b.Number, b.Name, b.PipelineStage = JobKey(b.Server, h.BuildID), strconv.FormatInt(h.BuildID, 10), h.BuildName, h.BuildStage
	b.Ref, b.SHA, b.URL = h.Ref, h.SHA, h.page(b.Server, h.BuildID)
	if h.PipelineID > 0 {
		b.Pipeline = strconv.FormatInt(h.PipelineID, 10)
	}
	if n, ok := h.Retries.Get(); ok && n >= 0 && n < 1<<20 {
		b.Attempt = n + 1
	}
	return finishJob(b, h.BuildStatus, h.Runner, h.QueuedDuration, h.FailureReason,
		either(h.CreatedISO, h.CreatedAt), either(h.StartedISO, h.StartedAt), either(h.FinishedISO, h.FinishedAt))
}

func (h *hook) pipeline(b cimeter.Build) ([]cimeter.Job, *Pipeline) {
	o := &h.Pipeline
	p := &Pipeline{
		ID: strconv.FormatInt(o.ID, 10), Project: b.Project, Ref: o.Ref, SHA: o.SHA, Source: o.Source,
		Status: JobStatus(o.Status), FinishedAt: o.FinishedAt.Time,
	}
	p.Ended = p.Status.Ended()
	if m := h.MergeRequest; m != nil && m.IID > 0 {
		p.MergeRequest, p.TargetProject, p.TargetBranch = m.IID, m.TargetProject, m.TargetBranch
	}
	b.Pipeline, b.Ref, b.SHA, b.Event = p.ID, o.Ref, o.SHA, o.Source
	jobs := make([]cimeter.Job, 0, len(h.Builds))
	seen := make(map[int64]bool, len(h.Builds))
	for _, j := range h.Builds {
		if j.ID <= 0 || j.Status == "" || seen[j.ID] {
			continue
		}
		seen[j.ID] = true
		one := b
		one.Key, one.Number, one.Name, one.PipelineStage = JobKey(b.Server, j.ID), strconv.FormatInt(j.ID, 10), j.Name, j.Stage
		one.URL = h.page(b.Server, j.ID)
		jobs = append(jobs, finishJob(one, j.Status, j.Runner, j.QueuedDuration, j.FailureReason, j.CreatedAt.Time, j.StartedAt.Time, j.FinishedAt.Time))
	}
	return jobs, p
}

// finishJob adds to a job's identity what both hooks tell of it. The runner is told
// by a number that many machines may share, so no worker is.
func finishJob(b cimeter.Build, status string, r *hookRunner, queued cimeter.Opt[float64], failure string, created, started, finished time.Time) cimeter.Job {
	j := cimeter.Job{Build: b, Status: JobStatus(status), CreatedAt: created, StartedAt: started, EndedAt: finished}
	if r != nil {
		j.Runner.Name = r.Description
	}
	if q, ok := queued.Get(); ok && q >= 0 && q < maxQueued {
		j.QueueSeconds = queued
		if !started.IsZero() {
			j.QueuedAt = started.Add(-time.Duration(q * float64(time.Second)))
		}
	}
	if j.Status == cimeter.JobFailed {
		j.FailureReason = FailureReason(failure)
	}
	return j
}

// maxQueued bounds what is believed of a wait, in seconds: a year.
const maxQueued = 365 * 24 * 3600

// FailureReason is a reason in one word of the server's list; unknown_failure, which
// it says while there is none, and what is no word are "".
func FailureReason(s string) string {
	if s == "unknown_failure" || len(s) > 64 || strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && r != '_' }) {
		return ""
	}
	return s
}

func either(a, b Time) time.Time {
	if a.IsZero() {
		return b.Time
	}
	return a.Time
}

// MergeRequestOf is the number of the merge request that a ref such as
// refs/merge-requests/12/head belongs to, 0 for other refs.
func MergeRequestOf(ref string) int64 {
	rest, ok := strings.CutPrefix(ref, "refs/merge-requests/")
	number, _, found := strings.Cut(rest, "/")
	if !ok || !found || !ci.IsDecimal(number) {
		return 0
	}
	n, _ := strconv.ParseInt(number, 10, 64)
	return n
}
