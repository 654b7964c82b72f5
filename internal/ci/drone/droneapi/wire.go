package droneapi

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/drone"
)

// The JSON of drone/drone core/repo.go, build.go and stage.go, as far as it is
// read. Times are Unix seconds; 0 is not yet.
type (
	repo struct {
		Slug  string `json:"slug"`
		Build *build `json:"build"`
	}
	build struct {
		ID       int64   `json:"id"`
		Number   int64   `json:"number"`
		Status   string  `json:"status"`
		Event    string  `json:"event"`
		After    string  `json:"after"`
		Ref      string  `json:"ref"`
		Target   string  `json:"target"`
		Created  int64   `json:"created"`
		Finished int64   `json:"finished"`
		Version  int64   `json:"version"`
		Stages   []stage `json:"stages"`
	}
	stage struct {
		ID        int64             `json:"id"`
		BuildID   int64             `json:"build_id"`
		Number    int64             `json:"number"`
		Name      string            `json:"name"`
		Status    string            `json:"status"`
		Machine   string            `json:"machine"`
		OS        string            `json:"os"`
		Arch      string            `json:"arch"`
		Started   int64             `json:"started"`
		Stopped   int64             `json:"stopped"`
		Created   int64             `json:"created"`
		Updated   int64             `json:"updated"`
		Version   int64             `json:"version"`
		DependsOn []string          `json:"depends_on"`
		Labels    map[string]string `json:"labels"`
	}
)

// maxStages is the most that one build is believed to have.
const maxStages = 1000

// status maps a stage's.
func status(s string) cimeter.JobStatus {
	switch s {
	case "pending":
		return cimeter.JobWaiting
	case "waiting_on_dependencies", "blocked":
		return cimeter.JobBlocked
	case "running":
		return cimeter.JobRunning
	case "success":
		return cimeter.JobSuccess
	case "failure", "error":
		return cimeter.JobFailed
	case "killed", "declined":
		return cimeter.JobCanceled
	case "skipped":
		return cimeter.JobSkipped
	}
	return cimeter.JobUnknown
}

// server is the address of the Drone server, as builds know it.
type server struct {
	host string // with port, in lower case: stands in keys
	page string // the address, for links
}

func newServer(address string) server {
	return server{host: ci.ServerOf(address), page: strings.TrimRight(ci.PageOf(address), "/")}
}

// job joins a stage to its build. ok is false for one that has no number, or that
// of no repository.
func (s server) job(slug string, b *build, st *stage) (j cimeter.Job, ok bool) {
	if slug == "" || b == nil || b.Number <= 0 || st.Number <= 0 {
		return j, false
	}
	number := strconv.FormatInt(b.Number, 10)
	j.Build = cimeter.Build{
		Key: drone.Key(s.host, slug, number, strconv.FormatInt(st.Number, 10)), CI: drone.CI, Server: s.host,
		Project: slug, Number: number, Name: st.Name, Ref: b.Target, SHA: b.After, Event: b.Event,
		Runner: cimeter.Runner{Name: st.Machine},
	}
	if s.page != "" {
		j.URL = s.page + "/" + strings.ReplaceAll(url.PathEscape(slug), "%2F", "/") + "/" + number
	}
	if tag, ok := strings.CutPrefix(b.Ref, "refs/tags/"); ok {
		j.Ref = tag
	}
	j.Status = status(st.Status)
	if st.Status == "error" {
		j.FailureReason = st.Status
	}
	if st.OS != "" && st.Arch != "" {
		j.Tags = append(j.Tags, "platform="+st.OS+"/"+st.Arch)
	}
	for name, value := range st.Labels {
		j.Tags = append(j.Tags, name+"="+value)
	}
	slices.Sort(j.Tags)
	j.Worker = st.Machine
	j.CreatedAt, j.StartedAt, j.EndedAt = ask.Unix(st.Created), ask.Unix(st.Started), ask.Unix(st.Stopped)
	j.QueuedAt = queuedAt(st)
	return j, true
}

// queuedAt is when a runner could have taken the stage: at once when it waits for
// no other; else when it became pending, which is told as long as it is.
func queuedAt(st *stage) time.Time {
	switch {
	case st.Status == "waiting_on_dependencies", st.Status == "blocked", st.Status == "declined", st.Status == "skipped":
		return time.Time{}
	case len(st.DependsOn) == 0:
		return ask.Unix(st.Created)
	case st.Status == "pending":
		return ask.Unix(st.Updated)
	}
	return time.Time{}
}

// jobs are those of a whole build.
func (s server) jobs(slug string, b *build) (jobs []cimeter.Job) {
	seen := make(map[int64]bool)
	for i := range b.Stages[:min(len(b.Stages), maxStages)] {
		st := &b.Stages[i]
		if seen[st.Number] {
			continue
		}
		if j, ok := s.job(slug, b, st); ok {
			seen[st.Number] = true
			jobs = append(jobs, j)
		}
	}
	return jobs
}
