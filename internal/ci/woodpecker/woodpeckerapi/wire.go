package woodpeckerapi

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/woodpecker"
)

// The JSON of Woodpecker's server/model, as far as it is read. Times are Unix
// seconds; 0 is not yet. An agent's token is not read.
type (
	queueInfo struct {
		Pending []task `json:"pending"`
		Waiting []task `json:"waiting_on_deps"`
		Running []task `json:"running"`
		Stats   *struct {
			Workers int `json:"worker_count"`
		} `json:"stats"`
	}
	// task is a workflow in the queue. Servers before 3 name neither its pipeline's
	// number nor itself.
	task struct {
		ID             string            `json:"id"`
		PID            int64             `json:"pid"`
		Name           string            `json:"name"`
		Labels         map[string]string `json:"labels"`
		AgentID        int64             `json:"agent_id"`
		PipelineID     int64             `json:"pipeline_id"`
		PipelineNumber int64             `json:"pipeline_number"`
		RepoID         int64             `json:"repo_id"`
		Dependencies   []string          `json:"dependencies"`
		Created        int64             `json:"created"`
	}
	pipeline struct {
		ID        int64           `json:"id"`
		RepoID    int64           `json:"repo_id"`
		Number    int64           `json:"number"`
		Event     string          `json:"event"`
		Status    string          `json:"status"`
		Created   int64           `json:"created"`
		Commit    json.RawMessage `json:"commit"` // a hash; an object where servers are newer
		Branch    string          `json:"branch"`
		Ref       string          `json:"ref"`
		Workflows []workflow      `json:"workflows"`
	}
	workflow struct {
		ID       int64  `json:"id"`
		PID      int64  `json:"pid"`
		Name     string `json:"name"`
		State    string `json:"state"`
		Started  int64  `json:"started"`
		Finished int64  `json:"finished"`
		AgentID  int64  `json:"agent_id"`
		Platform string `json:"platform"`
	}
	repository struct {
		ID       int64  `json:"id"`
		FullName string `json:"full_name"`
	}
	agent struct {
		ID          int64             `json:"id"`
		Name        string            `json:"name"`
		LastContact int64             `json:"last_contact"`
		Platform    string            `json:"platform"`
		Capacity    int               `json:"capacity"`
		Version     string            `json:"version"`
		NoSchedule  bool              `json:"no_schedule"`
		Labels      map[string]string `json:"custom_labels"`
	}
)

// maxWorkflows is the most that one pipeline is believed to have.
const maxWorkflows = 1000

func (p *pipeline) sha() string {
	var s string
	if json.Unmarshal(p.Commit, &s) == nil {
		return s
	}
	var o struct {
		SHA string `json:"sha"`
	}
	if json.Unmarshal(p.Commit, &o) == nil {
		return o.SHA
	}
	return ""
}

// status maps a workflow's state.
func status(s string) cimeter.JobStatus {
	switch s {
	case "pending":
		return cimeter.JobWaiting
	case "created", "blocked":
		return cimeter.JobBlocked
	case "running":
		return cimeter.JobRunning
	case "success":
		return cimeter.JobSuccess
	case "failure", "error":
		return cimeter.JobFailed
	case "killed", "canceled", "declined":
		return cimeter.JobCanceled
	case "skipped":
		return cimeter.JobSkipped
	}
	return cimeter.JobUnknown
}

// server is the address of the Woodpecker server, as builds know it.
type server struct {
	host, page string
}

func newServer(address string) server {
	return server{host: ci.ServerOf(address), page: strings.TrimRight(ci.PageOf(address), "/")}
}

// job joins a workflow to its pipeline.
func (s server) job(repo string, p *pipeline, w *workflow) (j cimeter.Job, ok bool) {
	if repo == "" || p.Number <= 0 || w.PID <= 0 {
		return j, false
	}
	number := strconv.FormatInt(p.Number, 10)
	j.Build = cimeter.Build{
		Key: woodpecker.Key(s.host, repo, number, w.Name, strconv.FormatInt(w.PID, 10)), CI: woodpecker.CI, Server: s.host,
		Project: repo, Number: number, Name: w.Name, Ref: p.Branch, SHA: p.sha(), Event: p.Event,
	}
	if tag, ok := strings.CutPrefix(p.Ref, "refs/tags/"); ok {
		j.Ref = tag
	}
	if s.page != "" && p.RepoID > 0 {
		j.URL = s.page + "/repos/" + strconv.FormatInt(p.RepoID, 10) + "/pipeline/" + number
	}
	j.Status = status(w.State)
	if p.Status == "blocked" && !j.Status.Ended() {
		j.Status = cimeter.JobBlocked
	}
	if w.State == "error" {
		j.FailureReason = w.State
	}
	j.CreatedAt, j.StartedAt, j.EndedAt = ask.Unix(p.Created), ask.Unix(w.Started), ask.Unix(w.Finished)
	if w.AgentID > 0 {
		j.Worker = strconv.FormatInt(w.AgentID, 10)
	}
	return j, true
}

// jobs are those of a whole pipeline; change, where not nil, puts more into each.
func (s server) jobs(repo string, p *pipeline, change func(*workflow, *cimeter.Job)) (jobs []cimeter.Job) {
	seen := make(map[string]bool)
	for i := range p.Workflows[:min(len(p.Workflows), maxWorkflows)] {
		if j, ok := s.job(repo, p, &p.Workflows[i]); ok && !seen[j.Key] {
			seen[j.Key] = true
			if change != nil {
				change(&p.Workflows[i], &j)
			}
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// tags are what an agent must have, without what only says whose the task is.
func tags(labels map[string]string) (tags []string) {
	for name, value := range labels {
		if name != "repo" && name != "repo-id" && name != "org-id" && value != "" {
			tags = append(tags, name+"="+value)
		}
	}
	slices.Sort(tags)
	return tags
}

// offline is how long an agent that is well says nothing: it reports its health
// every ten seconds.
const offline = time.Minute

// worker is an agent with the builds that it has, at a time of the server's clock.
func (s server) worker(a *agent, builds []string, now time.Time) cimeter.Worker {
	w := cimeter.Worker{
		CI: woodpecker.CI, Server: s.host, ID: strconv.FormatInt(a.ID, 10), Name: a.Name, Platform: a.Platform, Version: a.Version,
		Running: cimeter.Some(len(builds)), Builds: builds, ContactedAt: ask.Unix(a.LastContact), Tags: tags(a.Labels),
	}
	if a.Capacity > 0 {
		w.Slots = cimeter.Some(a.Capacity)
	}
	switch {
	case w.ContactedAt.IsZero(), now.Sub(w.ContactedAt) > offline:
		w.State = cimeter.WorkerOffline
	case a.NoSchedule:
		w.State = cimeter.WorkerDraining
	case len(builds) > 0:
		w.State = cimeter.WorkerBusy
	default:
		w.State = cimeter.WorkerIdle
	}
	return w
}
