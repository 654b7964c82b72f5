package jenkinsapi

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/jenkins"
	"github.com/cimeter/cimeter/internal/queue"
)

// The JSON of Jenkins' remote API, as far as it is read: each question names these
// fields and no others. Times are milliseconds since 1970. Why an item waits is a
// sentence in the server's language and is not read.
type (
	queueAnswer struct {
		Items *[]item `json:"items"`
	}
	item struct {
		ID        int64 `json:"id"`
		Since     int64 `json:"inQueueSince"`
		Buildable bool  `json:"buildable"`
		Pending   bool  `json:"pending"`
		Start     int64 `json:"buildableStartMilliseconds"`
		Task      struct {
			URL string `json:"url"`
		} `json:"task"`
	}
	computers struct {
		Computers *[]computer `json:"computer"`
	}
	computer struct {
		Name      string     `json:"displayName"`
		Offline   bool       `json:"offline"`
		Draining  bool       `json:"temporarilyOffline"`
		Executors int        `json:"numExecutors"`
		Labels    []named    `json:"assignedLabels"`
		Slots     []executor `json:"executors"`
		OneOff    []executor `json:"oneOffExecutors"` // of pipelines, which wait for their steps there
	}
	named struct {
		Name string `json:"name"`
	}
	executor struct {
		Build *build `json:"currentExecutable"`
	}
	build struct {
		URL       string `json:"url"`
		Number    int64  `json:"number"`
		Timestamp int64  `json:"timestamp"`
		Building  *bool  `json:"building"`
		Result    string `json:"result"`
		Duration  int64  `json:"duration"` // ms; 0 while it runs
		QueueID   int64  `json:"queueId"`
		BuiltOn   string `json:"builtOn"`
		Actions   []struct {
			Waited *int64 `json:"buildableDurationMillis"` // of the plugin Metrics
		} `json:"actions"`
	}
	// item of a list of jobs: a folder, which has jobs, or a job.
	listed struct {
		URL  string   `json:"url"`
		Next int64    `json:"nextBuildNumber"` // 0: it is no job
		Jobs []listed `json:"jobs"`
	}
	// folder is what has jobs, or a job, which has builds.
	folder struct {
		Jobs []struct {
			URL string `json:"url"`
		} `json:"jobs"`
		Builds []build `json:"allBuilds"` // newest first
	}
)

// The fields that are asked for.
const (
	queueTree    = "items[id,inQueueSince,buildable,pending,buildableStartMilliseconds,task[url]]"
	buildTree    = "url,number,timestamp,building,result,duration,queueId,builtOn"
	endTree      = buildTree + ",actions[buildableDurationMillis]"
	computerTree = "computer[displayName,offline,temporarilyOffline,numExecutors,assignedLabels[name],executors[currentExecutable[" + buildTree + "]],oneOffExecutors[currentExecutable[" + buildTree + "]]]"
)

// jobPath is the path of a job, folder/name, by its address: /job/folder/job/name/. Of
// a build's address the number is left out. "" is what has none.
func jobPath(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	var names []string
	parts := strings.Split(strings.Trim(u.EscapedPath(), "/"), "/")
	for i := 0; i+1 < len(parts); {
		if parts[i] != "job" {
			if len(names) > 0 {
				break
			}
			i++ // what is before is the server's own path
			continue
		}
		name, err := url.PathUnescape(parts[i+1])
		if err != nil || name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
			return ""
		}
		names = append(names, name)
		i += 2
	}
	return strings.Join(names, "/")
}

// apiPath is where a job or a build of it is asked for.
func apiPath(job string, more ...string) string {
	var b strings.Builder
	for _, name := range strings.Split(job, "/") {
		if name != "" { // the server's own folder
			b.WriteString(ask.Path("job", name))
		}
	}
	b.WriteString(ask.Path(more...))
	return b.String()
}

// result maps how a build ended.
func result(s string) cimeter.JobStatus {
	switch s {
	case "SUCCESS":
		return cimeter.JobSuccess
	case "FAILURE", "UNSTABLE":
		return cimeter.JobFailed
	case "ABORTED":
		return cimeter.JobCanceled
	case "NOT_BUILT":
		return cimeter.JobSkipped
	}
	return cimeter.JobUnknown
}

// itemKey is the key of an item of the queue.
func (c *Client) itemKey(id int64) string {
	return cimeter.BuildKey(jenkins.CI, c.server, "queue", strconv.FormatInt(id, 10))
}

// moved is what an item of the queue became; none where its number is not told.
func (c *Client) moved(item int64, build string) []queue.Moved {
	if item <= 0 {
		return nil
	}
	return []queue.Moved{{From: c.itemKey(item), To: build}}
}

// queued maps an item of the queue. ok is false for one of no job: a step of a
// pipeline that waits for a node.
func (c *Client) queued(it *item) (j cimeter.Job, ok bool) {
	job := jobPath(it.Task.URL)
	if it.ID <= 0 || job == "" {
		return j, false
	}
	j.Build = cimeter.Build{Key: c.itemKey(it.ID), CI: jenkins.CI, Server: c.server, Project: job, Name: job, URL: ci.PageOf(it.Task.URL)}
	j.Status = cimeter.JobBlocked // by another build of it, or its quiet period
	if it.Buildable || it.Pending {
		j.Status = cimeter.JobWaiting
		j.QueuedAt = ask.Milli(it.Start)
	}
	j.CreatedAt = ask.Milli(it.Since)
	return j, true
}

// ran maps a build.
func (c *Client) ran(b *build, worker string) (j cimeter.Job, ok bool) {
	job := jobPath(b.URL)
	if b.Number <= 0 || job == "" {
		return j, false
	}
	number := strconv.FormatInt(b.Number, 10)
	j.Build = cimeter.Build{
		Key: jenkins.Key(c.server, job, number), CI: jenkins.CI, Server: c.server, Project: job, Number: number, Name: job,
		URL: ci.PageOf(b.URL), Runner: cimeter.Runner{Name: worker},
	}
	j.Worker = worker
	j.StartedAt = ask.Milli(b.Timestamp)
	j.Status = cimeter.JobRunning
	if b.Building != nil && !*b.Building {
		j.Status = result(b.Result)
		if b.Timestamp > 0 && b.Duration > 0 {
			j.EndedAt = ask.Milli(b.Timestamp + b.Duration)
		}
		if b.Result == "UNSTABLE" {
			j.FailureReason = "unstable"
		}
		for _, a := range b.Actions {
			if a.Waited != nil && *a.Waited >= 0 {
				j.QueueSeconds = cimeter.Some(float64(*a.Waited) / 1000)
			}
		}
	}
	return j, true
}

// worker maps a node.
func (c *Client) worker(n *computer, builds []string) cimeter.Worker {
	busy := 0
	for _, e := range n.Slots {
		if e.Build != nil {
			busy++
		}
	}
	w := cimeter.Worker{
		CI: jenkins.CI, Server: c.server, ID: n.Name, Name: n.Name, Runner: cimeter.Runner{Name: n.Name}, Slots: cimeter.Some(n.Executors), Running: cimeter.Some(busy), Builds: builds,
	}
	for _, l := range n.Labels {
		w.Tags = append(w.Tags, l.Name)
	}
	switch {
	case n.Draining && busy > 0, n.Draining && !n.Offline:
		w.State = cimeter.WorkerDraining
	case n.Offline:
		w.State = cimeter.WorkerOffline
	case busy > 0:
		w.State = cimeter.WorkerBusy
	default:
		w.State = cimeter.WorkerIdle
	}
	return w
}
