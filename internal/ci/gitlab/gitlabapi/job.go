package gitlabapi

import (
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
)

// restJob is a job as REST tells it (lib/api/entities/ci/job.rb), as far as it is of use.
type restJob struct {
	ID             int64                `json:"id"`
	Status         string               `json:"status"`
	Stage          string               `json:"stage"`
	Name           string               `json:"name"`
	Ref            string               `json:"ref"`
	CreatedAt      gitlab.Time          `json:"created_at"`
	StartedAt      gitlab.Time          `json:"started_at"`
	FinishedAt     gitlab.Time          `json:"finished_at"`
	QueuedDuration cimeter.Opt[float64] `json:"queued_duration"`
	WebURL         string               `json:"web_url"`
	TagList        []string             `json:"tag_list"`
	FailureReason  string               `json:"failure_reason"`
	Commit         *struct {
		ID string `json:"id"`
	} `json:"commit"`
	Pipeline struct {
		ID     int64  `json:"id"`
		Ref    string `json:"ref"`
		SHA    string `json:"sha"`
		Source string `json:"source"`
	} `json:"pipeline"`
	Runner *struct {
		ID          int64  `json:"id"`
		Description string `json:"description"`
	} `json:"runner"`
	RunnerManager *struct {
		SystemID string `json:"system_id"`
	} `json:"runner_manager"`
}

func (c *Client) fromREST(j *restJob, project string) cimeter.Job {
	job := cimeter.Job{
		Build: cimeter.Build{
			Key: gitlab.JobKey(c.server, j.ID), CI: gitlab.CI, Server: c.server, Project: project,
			Number: strconv.FormatInt(j.ID, 10), Name: j.Name, PipelineStage: j.Stage, Ref: j.Ref, SHA: j.Pipeline.SHA, Event: j.Pipeline.Source,
			URL: c.page(j.WebURL),
		},
		Status: gitlab.JobStatus(j.Status), Tags: j.TagList,
		CreatedAt: j.CreatedAt.Time, StartedAt: j.StartedAt.Time, EndedAt: j.FinishedAt.Time,
		QueueSeconds: notNegative(j.QueuedDuration), FailureReason: gitlab.FailureReason(j.FailureReason),
	}
	if job.SHA == "" && j.Commit != nil {
		job.SHA = j.Commit.ID
	}
	if j.Pipeline.ID > 0 {
		job.Pipeline = strconv.FormatInt(j.Pipeline.ID, 10)
	}
	if page, ok := gitlab.ParseJobURL(j.WebURL); ok && job.Project == "" {
		job.Project = c.projectOf(page.Project)
	}
	if j.Runner != nil {
		system := ""
		if j.RunnerManager != nil {
			system = j.RunnerManager.SystemID
		}
		c.setWorker(&job, j.Runner.ID, system, j.Runner.Description)
	}
	queuedAt(&job)
	return job
}

// graphJob is a job as GraphQL tells it: the fields of jobFields.
type graphJob struct {
	ID             string               `json:"id"` // gid://gitlab/Ci::Build/1
	Name           string               `json:"name"`
	Status         string               `json:"status"`
	Kind           string               `json:"kind"`
	Tags           []string             `json:"tags"`
	CreatedAt      gitlab.Time          `json:"createdAt"`
	QueuedAt       gitlab.Time          `json:"queuedAt"`
	StartedAt      gitlab.Time          `json:"startedAt"`
	FinishedAt     gitlab.Time          `json:"finishedAt"`
	QueuedDuration cimeter.Opt[float64] `json:"queuedDuration"`
	RefName        string               `json:"refName"`
	WebPath        string               `json:"webPath"`
	Stage          *struct {
		Name string `json:"name"`
	} `json:"stage"`
	Pipeline *struct {
		ID string `json:"id"`
	} `json:"pipeline"`
	Project *struct {
		FullPath string `json:"fullPath"`
	} `json:"project"`
	Runner *struct {
		ID          string `json:"id"`
		Description string `json:"description"`
	} `json:"runner"`
	RunnerManager *struct {
		SystemID string `json:"systemId"`
	} `json:"runnerManager"`
}

// jobFields are those that CiJob, and since 18 the interface of it, have. What only
// CiJob has stands in a fragment of it.
const jobFields = `id name status kind tags createdAt queuedAt startedAt finishedAt queuedDuration refName webPath
stage{name} pipeline{id} project{fullPath} runner{id description} ...on CiJob{runnerManager{systemId}}`

// fromGraph reports ok as false for what is no job that a runner runs.
func (c *Client) fromGraph(j *graphJob) (job cimeter.Job, ok bool) {
	id, ok := numberOf(j.ID)
	if !ok || j.Kind != "" && j.Kind != "BUILD" {
		return cimeter.Job{}, false
	}
	job = cimeter.Job{
		Build: cimeter.Build{
			Key: gitlab.JobKey(c.server, id), CI: gitlab.CI, Server: c.server, Number: strconv.FormatInt(id, 10), Name: j.Name, Ref: j.RefName,
		},
		Status: gitlab.JobStatus(j.Status), Tags: j.Tags,
		CreatedAt: j.CreatedAt.Time, QueuedAt: j.QueuedAt.Time, StartedAt: j.StartedAt.Time, EndedAt: j.FinishedAt.Time,
		QueueSeconds: notNegative(j.QueuedDuration),
	}
	if strings.HasPrefix(j.WebPath, "/") {
		job.URL = c.page(c.origin + j.WebPath)
	}
	if j.Stage != nil {
		job.PipelineStage = j.Stage.Name
	}
	if j.Pipeline != nil {
		if n, ok := numberOf(j.Pipeline.ID); ok {
			job.Pipeline = strconv.FormatInt(n, 10)
		}
	}
	if j.Project != nil {
		job.Project = j.Project.FullPath
	} else if page, ok := gitlab.ParseJobURL(job.URL); ok {
		job.Project = c.projectOf(page.Project)
	}
	if j.Runner != nil {
		runner, _ := numberOf(j.Runner.ID)
		system := ""
		if j.RunnerManager != nil {
			system = j.RunnerManager.SystemID
		}
		c.setWorker(&job, runner, system, j.Runner.Description)
	}
	queuedAt(&job)
	return job, true
}

// numberOf is the number at the end of a global id.
func numberOf(gid string) (int64, bool) {
	s := gid[strings.LastIndexByte(gid, '/')+1:]
	if !strings.HasPrefix(gid, "gid://gitlab/") || !ci.IsDecimal(s) {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n > 0
}

// page is a job's page, "" unless it is on this server.
func (c *Client) page(u string) string {
	page, ok := gitlab.ParseJobURL(u)
	if !ok || page.Server != c.server {
		return ""
	}
	return ci.PageOf(u)
}

// projectOf takes the path under which the instance is served off a project's.
func (c *Client) projectOf(path string) string {
	base := strings.Trim(strings.TrimPrefix(c.o.URL, c.origin), "/")
	return strings.TrimPrefix(strings.TrimPrefix(path, base), "/")
}

func (c *Client) setWorker(j *cimeter.Job, runner int64, system, name string) {
	if runner <= 0 {
		return
	}
	j.Worker = workerID(runner, system)
	j.Runner = cimeter.Runner{ID: system, Name: name}
}

// workerID is a runner's number and, where one configuration runs on several
// machines, the system id of the machine.
func workerID(runner int64, system string) string {
	if system == "" {
		return strconv.FormatInt(runner, 10)
	}
	return strconv.FormatInt(runner, 10) + "/" + system
}

// queuedAt tells since when a job waits, where the server tells how long.
func queuedAt(j *cimeter.Job) {
	if q, ok := j.QueueSeconds.Get(); ok && j.QueuedAt.IsZero() && !j.StartedAt.IsZero() {
		j.QueuedAt = j.StartedAt.Add(-time.Duration(q * float64(time.Second)))
	}
	if !j.QueuedAt.IsZero() && !j.CreatedAt.IsZero() && j.QueuedAt.Before(j.CreatedAt) {
		j.QueuedAt = j.CreatedAt
	}
}

// longestWait bounds what is believed of a wait: a year.
const longestWait = 365 * 24 * 3600.0

func notNegative(v cimeter.Opt[float64]) cimeter.Opt[float64] {
	if v.Known && (v.Value < 0 || v.Value > longestWait) {
		return cimeter.Opt[float64]{}
	}
	return v
}
