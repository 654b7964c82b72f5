package githubapi

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/github"
)

// The JSON of GitHub's REST API and webhooks, as far as it is read.
type (
	runs struct {
		Runs *[]run `json:"workflow_runs"`
	}
	run struct {
		ID         int64     `json:"id"`
		Attempt    int       `json:"run_attempt"`
		Status     string    `json:"status"`
		Event      string    `json:"event"`
		UpdatedAt  time.Time `json:"updated_at"`
		HeadBranch string    `json:"head_branch"`
		Repository struct {
			FullName string `json:"full_name"` // as its jobs know it, capitals included
		} `json:"repository"`
	}
	jobs struct {
		Jobs  *[]job `json:"jobs"`
		Total int    `json:"total_count"`
	}
	job struct {
		ID          int64     `json:"id"`
		RunID       int64     `json:"run_id"`
		Attempt     int       `json:"run_attempt"`
		HTMLURL     string    `json:"html_url"`
		HeadSHA     string    `json:"head_sha"`
		HeadBranch  string    `json:"head_branch"`
		Name        string    `json:"name"`
		Status      string    `json:"status"`
		Conclusion  string    `json:"conclusion"`
		Labels      []string  `json:"labels"`
		RunnerID    int64     `json:"runner_id"`   // 0 or null: none
		RunnerName  string    `json:"runner_name"` // "" or null: none
		CreatedAt   time.Time `json:"created_at"`
		StartedAt   time.Time `json:"started_at"`
		CompletedAt time.Time `json:"completed_at"`
	}
	runners struct {
		Runners *[]runner `json:"runners"`
		Total   int       `json:"total_count"`
	}
	runner struct {
		ID     int64  `json:"id"`
		Name   string `json:"name"`
		OS     string `json:"os"`
		Status string `json:"status"`
		Busy   bool   `json:"busy"`
		Labels []struct {
			Name string `json:"name"`
		} `json:"labels"`
	}
)

// status maps status and conclusion; reason is the conclusion where it says more.
func status(s, conclusion string) (is cimeter.JobStatus, reason string) {
	switch s {
	case "queued":
		return cimeter.JobWaiting, ""
	case "waiting", "pending", "requested": // for a person, a lock, or another job
		return cimeter.JobBlocked, ""
	case "in_progress":
		return cimeter.JobRunning, ""
	case "completed":
	default:
		return cimeter.JobUnknown, ""
	}
	switch conclusion {
	case "success", "neutral":
		return cimeter.JobSuccess, ""
	case "failure":
		return cimeter.JobFailed, ""
	case "timed_out", "action_required", "startup_failure":
		return cimeter.JobFailed, conclusion
	case "cancelled", "stale":
		return cimeter.JobCanceled, ""
	case "skipped":
		return cimeter.JobSkipped, ""
	}
	return cimeter.JobUnknown, ""
}

// jobs maps jobs of a run, in the order in which they began.
func (r *run) jobs(server, repo string, found []job) (all []cimeter.Job) {
	if r.Repository.FullName != "" {
		repo = r.Repository.FullName
	}
	slices.SortStableFunc(found, func(a, b job) int { return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID)) })
	for i := range found {
		all = append(all, found[i].job(server, repo, r.Event))
	}
	return all
}

// key is that of a job. Agents do not know its id: see [cimeter.Build.Place].
func (j *job) key(server, repo string) string {
	return cimeter.ToldKey(github.CI, server, repo, strconv.FormatInt(j.RunID, 10), strconv.FormatInt(j.ID, 10))
}

// job maps a job of a repository, OWNER/NAME, on a server.
func (j *job) job(server, repo, event string) (out cimeter.Job) {
	runID := strconv.FormatInt(j.RunID, 10)
	out.Build = cimeter.Build{
		Key: j.key(server, repo), CI: github.CI, Server: server,
		Project: repo, Number: strconv.FormatInt(j.ID, 10), Name: j.Name, Attempt: max(j.Attempt, 0), Pipeline: runID, Ref: j.HeadBranch,
		SHA: j.HeadSHA, Event: event, URL: ci.PageOf(j.HTMLURL), Runner: cimeter.Runner{Name: j.RunnerName},
	}
	out.Status, out.FailureReason = status(j.Status, j.Conclusion)
	out.Tags = j.Labels
	// GitHub makes a job when all that it needs has ended: so it waits for a runner
	// from its creation on. Until a runner has it, started_at repeats created_at.
	out.CreatedAt, out.EndedAt = ask.Known(j.CreatedAt), ask.Known(j.CompletedAt)
	if out.Status != cimeter.JobBlocked && out.Status != cimeter.JobSkipped {
		out.QueuedAt = out.CreatedAt
	}
	if j.RunnerID > 0 || j.RunnerName != "" {
		out.StartedAt = ask.Known(j.StartedAt)
	}
	if j.RunnerID > 0 {
		out.Worker = strconv.FormatInt(j.RunnerID, 10)
	}
	return out
}

// worker maps a runner; builds are the keys of those that it has.
func (r *runner) worker(server string, builds []string) cimeter.Worker {
	w := cimeter.Worker{
		CI: github.CI, Server: server, ID: strconv.FormatInt(r.ID, 10), Name: r.Name, Runner: cimeter.Runner{Name: r.Name},
		Platform: r.OS, Slots: cimeter.Some(1), Builds: builds,
	}
	for _, l := range r.Labels {
		w.Tags = append(w.Tags, l.Name)
	}
	switch {
	case r.Busy: // also one that says offline: a lost connection
		w.State, w.Running = cimeter.WorkerBusy, cimeter.Some(1)
	case r.Status == "offline":
		w.State, w.Running = cimeter.WorkerOffline, cimeter.Some(0)
	case r.Status == "online":
		w.State, w.Running = cimeter.WorkerIdle, cimeter.Some(0)
	}
	return w
}
