package drone

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/ask"
)

// The JSON of drone/drone core/build.go and stage.go, as far as it is read; the
// columns of the database hold the same. Times are Unix seconds; 0 is not yet.
type (
	// BuildRow is a build of Drone, of one repository, with its stages.
	BuildRow struct {
		ID       int64      `json:"id"`
		Number   int64      `json:"number"`
		Status   string     `json:"status"`
		Event    string     `json:"event"`
		After    string     `json:"after"`
		Ref      string     `json:"ref"`
		Target   string     `json:"target"`
		Created  int64      `json:"created"`
		Finished int64      `json:"finished"`
		Version  int64      `json:"version"`
		Stages   []StageRow `json:"stages"`
	}
	// StageRow is a stage: what cimeter calls a build.
	StageRow struct {
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

// Host is the server's host with its port, in lower case, as it stands in keys; ""
// where the address is none.
func (s Server) Host() string { return s.host }

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

// Server is the address of a Drone server, as builds know it. Make it with
// NewServer; its zero value is that of a server that no key can be made for.
type Server struct {
	host string // with port, in lower case: stands in keys
	page string // the address, for links
}

// NewServer reads an address.
func NewServer(address string) Server {
	return Server{host: ci.ServerOf(address), page: strings.TrimRight(ci.PageOf(address), "/")}
}

// Job joins a stage to its build. ok is false for one that has no number, or that
// of no repository.
func (s Server) Job(slug string, b *BuildRow, st *StageRow) (j cimeter.Job, ok bool) {
	if slug == "" || b == nil || b.Number <= 0 || st.Number <= 0 {
		return j, false
	}
	number := strconv.FormatInt(b.Number, 10)
	j.Build = cimeter.Build{
		Key: Key(s.host, slug, number, strconv.FormatInt(st.Number, 10)), CI: CI, Server: s.host,
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
func queuedAt(st *StageRow) time.Time {
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

// Jobs are those of a whole build.
func (s Server) Jobs(slug string, b *BuildRow) (jobs []cimeter.Job) {
	seen := make(map[int64]bool)
	for i := range b.Stages[:min(len(b.Stages), maxStages)] {
		st := &b.Stages[i]
		if seen[st.Number] {
			continue
		}
		if j, ok := s.Job(slug, b, st); ok {
			seen[st.Number] = true
			jobs = append(jobs, j)
		}
	}
	return jobs
}
