package giteaapi

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/gitea"
	"github.com/cimeter/cimeter/internal/queue"
)

// The JSON of Gitea's modules/structs/repo_actions.go, as far as it is read.
// Times are RFC 3339; what is not yet is that of a 0.
type (
	jobs struct {
		Jobs  *[]job `json:"jobs"`
		Total int    `json:"total_count"`
	}
	job struct {
		ID          int64     `json:"id"`
		URL         string    `json:"url"`
		HTMLURL     string    `json:"html_url"`
		RunID       int64     `json:"run_id"`
		Name        string    `json:"name"`
		Labels      []string  `json:"labels"`
		Attempt     int       `json:"run_attempt"`
		HeadSHA     string    `json:"head_sha"`
		HeadBranch  string    `json:"head_branch"`
		Status      string    `json:"status"`
		Conclusion  string    `json:"conclusion"`
		RunnerID    int64     `json:"runner_id"`
		RunnerName  string    `json:"runner_name"`
		CreatedAt   time.Time `json:"created_at"`
		StartedAt   time.Time `json:"started_at"`
		CompletedAt time.Time `json:"completed_at"`
	}
	tasks struct {
		Tasks *[]taskRow `json:"workflow_runs"` // that is what they call it
	}
	taskRow struct {
		ID         int64     `json:"id"`
		Name       string    `json:"name"` // of the job
		URL        string    `json:"url"`  // of the run
		HeadBranch string    `json:"head_branch"`
		HeadSHA    string    `json:"head_sha"`
		Event      string    `json:"event"`
		Status     string    `json:"status"`
		CreatedAt  time.Time `json:"created_at"` // when a runner took it
		UpdatedAt  time.Time `json:"updated_at"`
		StartedAt  time.Time `json:"run_started_at"` // the task's own start
	}
	runs struct {
		Runs *[]run `json:"workflow_runs"`
	}
	run struct {
		ID      int64     `json:"id"`
		URL     string    `json:"url"`
		HTMLURL string    `json:"html_url"`
		Event   string    `json:"event"`
		Status  string    `json:"status"`
		Stopped time.Time `json:"stopped"` // Forgejo
	}
	repos struct {
		Data *[]struct {
			FullName string `json:"full_name"`
			Actions  *bool  `json:"has_actions"`
		} `json:"data"`
	}
	runners struct {
		Runners *[]runner `json:"runners"`
		Total   int       `json:"total_count"`
	}
	runner struct {
		ID       int64   `json:"id"`
		Name     string  `json:"name"`
		Status   string  `json:"status"` // Gitea: online, offline; Forgejo: offline, idle, active
		Busy     bool    `json:"busy"`
		Disabled bool    `json:"disabled"`
		Version  string  `json:"version"`
		Labels   []label `json:"labels"`
	}
)

// label is an object with a name (Gitea) or a name (Forgejo).
type label string

// UnmarshalJSON implements [json.Unmarshaler].
func (l *label) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*l = label(s)
		return nil
	}
	var o struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	*l = label(o.Name)
	return nil
}

// status maps what the API and webhooks of Gitea say: queued waits for a runner,
// waiting and pending for another job.
func status(s, conclusion string) cimeter.JobStatus {
	switch s {
	case "queued":
		return cimeter.JobWaiting
	case "waiting", "pending", "blocked":
		return cimeter.JobBlocked
	case "in_progress", "running":
		return cimeter.JobRunning
	case "completed":
	default:
		return cimeter.JobUnknown
	}
	switch conclusion {
	case "success":
		return cimeter.JobSuccess
	case "cancelled":
		return cimeter.JobCanceled
	case "failure":
		return cimeter.JobFailed
	case "skipped":
		return cimeter.JobSkipped
	}
	return cimeter.JobUnknown
}

// taskStatus maps what Forgejo says of jobs, and both of tasks.
func taskStatus(s string) cimeter.JobStatus {
	switch s {
	case "waiting":
		return cimeter.JobWaiting
	case "blocked":
		return cimeter.JobBlocked
	case "running":
		return cimeter.JobRunning
	case "success":
		return cimeter.JobSuccess
	case "failure":
		return cimeter.JobFailed
	case "cancelled":
		return cimeter.JobCanceled
	case "skipped":
		return cimeter.JobSkipped
	}
	return cimeter.JobUnknown
}

// server is the address of the server, as builds know it, and its kind.
type server struct {
	ci, host string
}

func newServer(kind, address string) server { return server{ci: kind, host: ci.ServerOf(address)} }

// key is that of the task, which an agent knows too, and where there is none yet,
// that of the job.
func (s server) key(job, task int64) (key, number string) {
	if task > 0 {
		number = strconv.FormatInt(task, 10)
		return gitea.Key(s.ci, number), number
	}
	return cimeter.BuildKey(s.ci, s.host, "job", strconv.FormatInt(job, 10)), ""
}

// moved is the key that a job had until a runner took it, and that of its task; none
// where that is not known.
func (s server) moved(job, task int64) []queue.Moved {
	if task <= 0 {
		return nil
	}
	from, _ := s.key(job, 0)
	to, _ := s.key(job, task)
	return []queue.Moved{{From: from, To: to}}
}

// job maps a job of Gitea.
func (s server) job(repo string, j *job, task int64) (out cimeter.Job) {
	key, number := s.key(j.ID, task)
	out.Build = cimeter.Build{
		Key: key, CI: s.ci, Server: s.host, Project: repo, Number: number, Name: j.Name, Attempt: max(j.Attempt, 0),
		Ref: j.HeadBranch, SHA: j.HeadSHA, URL: ci.PageOf(j.HTMLURL), Runner: cimeter.Runner{Name: j.RunnerName},
	}
	if j.RunID > 0 {
		out.Pipeline = strconv.FormatInt(j.RunID, 10)
	}
	out.Status = status(j.Status, j.Conclusion)
	out.Tags = j.Labels
	out.CreatedAt, out.StartedAt, out.EndedAt = ask.Known(j.CreatedAt), ask.Known(j.StartedAt), ask.Known(j.CompletedAt)
	if j.RunnerID > 0 {
		out.Worker = strconv.FormatInt(j.RunnerID, 10)
	}
	return out
}

// worker maps a runner; builds are the keys of those that it has.
func (s server) worker(r *runner, builds []string) cimeter.Worker {
	w := cimeter.Worker{
		CI: s.ci, Server: s.host, ID: strconv.FormatInt(r.ID, 10), Name: r.Name, Runner: cimeter.Runner{Name: r.Name}, Version: r.Version, Builds: builds,
	}
	for _, l := range r.Labels {
		w.Tags = append(w.Tags, string(l))
	}
	switch {
	case r.Status == "offline":
		w.State = cimeter.WorkerOffline
	case r.Disabled:
		w.State = cimeter.WorkerDraining
	case r.Busy, r.Status == "active", len(builds) > 0:
		w.State = cimeter.WorkerBusy
	case r.Status == "online", r.Status == "idle":
		w.State = cimeter.WorkerIdle
	}
	return w
}

// repoOf reads OWNER/NAME out of the API's address of a job.
func repoOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	_, rest, ok := strings.Cut(u.Path, "/api/v1/repos/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < 4 || parts[2] != "actions" || parts[0] == "" || parts[1] == "" {
		return ""
	}
	return parts[0] + "/" + parts[1]
}
