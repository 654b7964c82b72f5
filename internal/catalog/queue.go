package catalog

// The metrics of a CI server's queue, whoever tells them.
const (
	QueueBuilds = "cimeter_queue_builds"
	Workers     = "cimeter_workers"
	WorkerInfo  = "cimeter_worker_info"
	QueueWaited = "cimeter_queue_waited_seconds_total"
	JobQueue    = "cimeter_job_queue_seconds"
	JobDuration = "cimeter_job_duration_seconds"
)

// The metrics of how CI servers are heard of.
const (
	ServerSourceSuccess  = "cimeter_server_source_last_success_time_seconds"
	ServerSourceFailures = "cimeter_server_source_failures_total"
	ServerSourceRequests = "cimeter_server_source_requests_total"
	ServerSourceDropped  = "cimeter_server_source_dropped_total"
	ServerHooks          = "cimeter_server_hooks_total"
	ServerLogsRead       = "cimeter_server_logs_read_total"
)

func queueMetrics() []Metric {
	return inProgram([]Metric{
		{
			Name: QueueBuilds, Kind: Gauge, Labels: []string{"server", "status"},
			Help: "Builds of a CI server by status: waiting (for a worker), blocked (by something else), or running.",
		},
		{
			Name: Workers, Kind: Gauge, Labels: []string{"server", "state"},
			Help: "Workers of a CI server by state, such as idle and busy.",
		},
		{
			Name: QueueWaited, Kind: Counter, Unit: "seconds", Labels: []string{"server", "reason"},
			Help: "Time that builds which ended had waited until their own first command, by what they waited for: no_worker, no_slot, starting, pull, preparing, or unknown.",
		},
		{
			Name: WorkerInfo, Kind: Info, Labels: []string{"server", "worker", "name", "runner", "version", "platform"},
			Help: "A worker of a CI server; runner is what agents call it.",
		},
		{
			Name: JobQueue, Kind: Histogram, Unit: "seconds", Labels: []string{"server", "project", "result"}, Buckets: durations(),
			Help: "How long builds waited for a worker, metered or not, as their CI server tells when they have ended.",
		},
		{
			Name: JobDuration, Kind: Histogram, Unit: "seconds", Labels: []string{"server", "project", "result"}, Buckets: durations(),
			Help: "How long builds took from their start to their end, metered or not, as their CI server tells.",
		},
		{
			Name: ServerSourceSuccess, Kind: Gauge, Unit: "seconds", Labels: []string{"server"},
			Help: "When a CI server last answered a poll in full, in seconds since 1970.",
		},
		{
			Name: ServerSourceFailures, Kind: Counter, Labels: []string{"server", "reason"},
			Help: "Polls of a CI server that failed: timeout, unauthorized, limited, unavailable, garbage, refused or error.",
		},
		{
			Name: ServerSourceRequests, Kind: Counter, Labels: []string{"server"},
			Help: "Requests that were made to a CI server.",
		},
		{
			Name: ServerSourceDropped, Kind: Counter, Labels: []string{"reason"},
			Help: "What CI servers told that was not taken: builds and workers (too many), unusable (without a key), store (changes that could not be stored in time), or history (minutes of queues, likewise).",
		},
		{
			Name: ServerLogsRead, Kind: Counter, Labels: []string{"server", "result"},
			Help: "Logs of finished builds that were read for the names and times of their sections: kept, gone, or failed (tried again, five times at most).",
		},
		{
			Name: ServerHooks, Kind: Counter, Labels: []string{"ci", "result"},
			Help: "Webhooks by what became of them: taken, duplicate, ignored (tells nothing of builds), unverified, unreadable, or busy.",
		},
	})
}
