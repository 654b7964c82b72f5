package cimeter

import "time"

// JobStatus is where a build stands, as its CI server tells. The servers' own
// words are mapped to these; what is none of them is JobUnknown.
type JobStatus string

// The statuses.
const (
	JobUnknown  JobStatus = ""
	JobBlocked  JobStatus = "blocked"  // waits for something other than a worker: an earlier build, a person, a time, a lock
	JobWaiting  JobStatus = "waiting"  // waits for a worker: what a queue's length counts
	JobRunning  JobStatus = "running"  // a worker has it
	JobSuccess  JobStatus = "success"  // ended well
	JobFailed   JobStatus = "failed"   // ended badly, whosever fault it was
	JobCanceled JobStatus = "canceled" // was ended by somebody
	JobSkipped  JobStatus = "skipped"  // will never run
)

// Ended reports whether a build of this status will not change any more.
func (s JobStatus) Ended() bool {
	switch s {
	case JobSuccess, JobFailed, JobCanceled, JobSkipped:
		return true
	}
	return false
}

// Job is a build as its CI server tells of it, metered or not. Its key is that of
// the agent's record of the same build: see [BuildKey]. Times are by the server's
// clock; a zero one is not known.
type Job struct {
	Build
	Status        JobStatus    `json:"status,omitempty"`
	Tags          []string     `json:"tags,omitempty"` // that a worker must have: GitLab's tags, others' labels as name=value
	CreatedAt     time.Time    `json:"created_at,omitzero"`
	QueuedAt      time.Time    `json:"queued_at,omitzero"` // since when a worker could have taken it
	StartedAt     time.Time    `json:"started_at,omitzero"`
	EndedAt       time.Time    `json:"ended_at,omitzero"`
	QueueSeconds  Opt[float64] `json:"queue_seconds,omitzero"`   // as the server counts it
	FailureReason string       `json:"failure_reason,omitempty"` // one word of the server's list: runner_system_failure
	Worker        string       `json:"worker,omitempty"`         // WorkerID of the one that has it
}

// WorkerState is what a worker does.
type WorkerState string

// The states.
const (
	WorkerUnknown  WorkerState = ""
	WorkerIdle     WorkerState = "idle"
	WorkerBusy     WorkerState = "busy"     // has at least one build
	WorkerOffline  WorkerState = "offline"  // not heard from for as long as its server waits
	WorkerDraining WorkerState = "draining" // paused: finishes what it has and takes no more
)

// Worker is what takes builds from a CI server: a runner (or one of its
// machines), an agent, a node.
type Worker struct {
	CI          string      `json:"ci"`
	Server      string      `json:"server,omitempty"`
	ID          string      `json:"id"` // unique on its server
	Name        string      `json:"name,omitempty"`
	Machine     string      `json:"machine,omitempty"`
	Runner      Runner      `json:"runner,omitzero"` // joins it to what agents tell
	State       WorkerState `json:"state,omitempty"`
	Tags        []string    `json:"tags,omitempty"`
	Slots       Opt[int]    `json:"slots,omitzero"`   // builds that it can run at once
	Running     Opt[int]    `json:"running,omitzero"` // builds that it runs now
	Builds      []string    `json:"builds,omitempty"` // keys of those, as far as they are known
	ContactedAt time.Time   `json:"contacted_at,omitzero"`
	Version     string      `json:"version,omitempty"`
	Platform    string      `json:"platform,omitempty"` // linux/amd64
}
