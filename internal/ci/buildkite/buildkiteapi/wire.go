package buildkiteapi

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/buildkite"
)

// The JSON of Buildkite's REST API and webhooks, as far as it is read.
type (
	build struct {
		Number int64  `json:"number"`
		URL    string `json:"url"` // of the API: tells organisation and pipeline
		State  string `json:"state"`
		Branch string `json:"branch"`
		Commit string `json:"commit"`
		Source string `json:"source"`
		Jobs   []job  `json:"jobs"` // none in webhooks

		FinishedAt ask.Time `json:"finished_at"`
	}
	job struct {
		ID         string   `json:"id"`
		Type       string   `json:"type"` // script runs on an agent; waiter, manual, trigger do not
		Name       string   `json:"name"`
		State      string   `json:"state"`
		ExitStatus *int     `json:"exit_status"`
		WebURL     string   `json:"web_url"`
		CreatedAt  ask.Time `json:"created_at"`
		RunnableAt ask.Time `json:"runnable_at"`
		StartedAt  ask.Time `json:"started_at"`
		FinishedAt ask.Time `json:"finished_at"`
		Rules      []string `json:"agent_query_rules"`
		Agent      *agent   `json:"agent"`
		Retries    int      `json:"retries_count"`
	}
	agent struct {
		ID       string   `json:"id"`
		Name     string   `json:"name"`
		Hostname string   `json:"hostname"`
		State    string   `json:"connection_state"`
		Version  string   `json:"version"`
		MetaData []string `json:"meta_data"`
		Job      *struct {
			ID string `json:"id"`
		} `json:"job"`
	}
)

// maxJobs is the most that one build is believed to have.
const maxJobs = 5000

// status maps a job's state; reason is the state where it says more.
func status(j *job) (is cimeter.JobStatus, reason string) {
	switch j.State {
	case "scheduled":
		return cimeter.JobWaiting, ""
	case "pending", "waiting", "waiting_failed", "blocked", "blocked_failed", "unblocked", "unblocked_failed", "limiting", "limited", "platform_limiting", "platform_limited":
		return cimeter.JobBlocked, ""
	case "assigned", "accepted", "running", "canceling", "timing_out":
		return cimeter.JobRunning, ""
	case "passed":
		return cimeter.JobSuccess, ""
	case "failed":
		return cimeter.JobFailed, ""
	case "timed_out":
		return cimeter.JobFailed, j.State
	case "canceled":
		return cimeter.JobCanceled, ""
	case "expired": // no agent took it in time
		return cimeter.JobCanceled, j.State
	case "skipped", "broken":
		return cimeter.JobSkipped, ""
	case "finished":
		switch {
		case j.ExitStatus == nil:
			return cimeter.JobUnknown, ""
		case *j.ExitStatus == 0:
			return cimeter.JobSuccess, ""
		}
		return cimeter.JobFailed, ""
	}
	return cimeter.JobUnknown, ""
}

// place is where a build is: organisation and pipeline, by the API's address of it:
// .../v2/organizations/ORG/pipelines/PIPELINE/builds/1.
func place(address string) (project string) {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	_, rest, ok := strings.Cut(u.Path, "/organizations/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < 3 || parts[1] != "pipelines" || !slug(parts[0]) || !slug(parts[2]) {
		return ""
	}
	return parts[0] + "/" + parts[2]
}

// slug reports whether s can be a name of Buildkite's.
func slug(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// job maps a job of a build. ok is false for one that needs no agent.
func (j *job) job(server string, b *build) (out cimeter.Job, ok bool) {
	project := place(b.URL)
	if j.Type != "script" || j.ID == "" || len(j.ID) > 100 || project == "" || b.Number <= 0 {
		return out, false
	}
	number := strconv.FormatInt(b.Number, 10)
	out.Build = cimeter.Build{
		Key: buildkite.Key(server, project, number, j.ID), CI: buildkite.CI, Server: server, Project: project, Number: number, Name: j.Name,
		Ref: b.Branch, SHA: b.Commit, Event: b.Source, URL: ci.PageOf(j.WebURL), Attempt: max(j.Retries, 0) + 1,
	}
	out.Status, out.FailureReason = status(j)
	out.Tags = j.Rules
	out.CreatedAt, out.QueuedAt, out.StartedAt, out.EndedAt = ask.Known(j.CreatedAt.Time), ask.Known(j.RunnableAt.Time), ask.Known(j.StartedAt.Time), ask.Known(j.FinishedAt.Time)
	if j.Agent != nil {
		out.Worker = j.Agent.ID
		out.Runner = cimeter.Runner{Name: j.Agent.Name}
	}
	return out, true
}

// jobs are those of a whole build.
func (b *build) jobs(server string) (jobs []cimeter.Job) {
	seen := map[string]bool{}
	for i := range b.Jobs[:min(len(b.Jobs), maxJobs)] {
		if j, ok := b.Jobs[i].job(server, b); ok && !seen[j.Key] {
			seen[j.Key] = true
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// worker maps an agent; builds are the keys of those that it has.
func (a *agent) worker(server string, builds []string) cimeter.Worker {
	w := cimeter.Worker{
		CI: buildkite.CI, Server: server, ID: a.ID, Name: a.Name, Machine: a.Hostname, Runner: cimeter.Runner{Name: a.Name}, Slots: cimeter.Some(1),
		Tags: a.MetaData, Version: a.Version, Builds: builds,
	}
	switch {
	case a.State == "stopping":
		w.State = cimeter.WorkerDraining
	case a.State != "connected":
		w.State = cimeter.WorkerOffline
	case a.Job != nil || len(builds) > 0:
		w.State = cimeter.WorkerBusy
	default:
		w.State = cimeter.WorkerIdle
	}
	return w
}
