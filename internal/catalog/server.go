package catalog

// The metrics of an agent about what it sends to its server.
const (
	AgentSpoolRecords = "cimeter_agent_spool_records"
	AgentSpoolBytes   = "cimeter_agent_spool_bytes"
	AgentPushed       = "cimeter_agent_pushed_total"
	AgentPushFailures = "cimeter_agent_push_failures_total"
)

// The metrics of the server about itself.
const (
	ServerRecords       = "cimeter_server_records_total"
	ServerCommits       = "cimeter_server_commits_total"
	ServerCommitSeconds = "cimeter_server_commit_seconds_total"
	ServerStoreFailures = "cimeter_server_store_failures_total"
	ServerQueue         = "cimeter_server_queue_records"
	ServerRejected      = "cimeter_server_rejected_total"
	ServerRequests      = "cimeter_server_requests_total"
	ServerHeartbeats    = "cimeter_server_heartbeats_total"
	ServerAgents        = "cimeter_server_agents"
	ServerRunning       = "cimeter_server_builds_running"
	ServerAgentsDropped = "cimeter_server_agents_dropped_total"
	ServerCPU           = "cimeter_server_cpu_seconds_total"
	ServerMemory        = "cimeter_server_resident_memory_bytes"
	ServerStoreBytes    = "cimeter_server_store_bytes"
	ServerStoreBuilds   = "cimeter_server_store_builds"
	ServerUnjoined      = "cimeter_server_builds_unjoined_total"
)

func pushMetrics() []Metric {
	return inProgram([]Metric{
		{
			Name: AgentSpoolRecords, Kind: Gauge,
			Help: "Records that wait for the server to take them.",
		},
		{
			Name: AgentSpoolBytes, Kind: Gauge, Unit: "bytes",
			Help: "Disk space of the records that wait for the server.",
		},
		{
			Name: AgentPushed, Kind: Counter, Labels: []string{"status"},
			Help: "Records that the server answered for: stored, duplicate (it had them), or refused (set aside).",
		},
		{
			Name: AgentPushFailures, Kind: Counter, Labels: []string{"reason"},
			Help: "Tries to send that failed: unavailable (tried again), refused (token or address is wrong), or heartbeat.",
		},
	})
}

func serverMetrics() []Metric {
	return inProgram([]Metric{
		{
			Name: ServerRecords, Kind: Counter, Labels: []string{"status"},
			Help: "Records that agents sent, by what became of them: stored, duplicate, refused, or expired (older than what is kept).",
		},
		{
			Name: ServerCommits, Kind: Counter,
			Help: "Commits of records to the store.",
		},
		{
			Name: ServerCommitSeconds, Kind: Counter, Unit: "seconds",
			Help: "Time that commits of records took.",
		},
		{
			Name: ServerStoreFailures, Kind: Counter,
			Help: "Commits of records that the store refused; agents send them again.",
		},
		{
			Name: ServerQueue, Kind: Gauge,
			Help: "Records that wait to be committed.",
		},
		{
			Name: ServerRejected, Kind: Counter, Labels: []string{"reason"},
			Help: "Requests that were turned away: busy, unauthorized, forbidden, or throttled (too many wrong tokens); and connections that were closed because there were too many.",
		},
		{
			Name: ServerRequests, Kind: Counter, Labels: []string{"route", "code"},
			Help: "Requests by route and by the status of the answer.",
		},
		{
			Name: ServerHeartbeats, Kind: Counter,
			Help: "Heartbeats of agents.",
		},
		{
			Name: ServerAgents, Kind: Gauge,
			Help: "Agents that were heard of lately.",
		},
		{
			Name: ServerRunning, Kind: Gauge,
			Help: "Builds that run now, as the agents tell.",
		},
		{
			Name: ServerCPU, Kind: Counter, Unit: "seconds",
			Help: "CPU time that the server itself used.",
		},
		{
			Name: ServerMemory, Kind: Gauge, Unit: "bytes",
			Help: "Resident memory of the server itself.",
		},
		{
			Name: ServerStoreBytes, Kind: Gauge, Unit: "bytes",
			Help: "Disk space that the store uses.",
		},
		{
			Name: ServerStoreBuilds, Kind: Gauge,
			Help: "Builds in the store.",
		},
		{
			Name: ServerUnjoined, Kind: Counter,
			Help: "Accounts of GitHub's jobs, of an agent or of GitHub, that fitted several of the other side's and were joined with none.",
		},
		{
			Name: ServerAgentsDropped, Kind: Counter,
			Help: "Agents that were forgotten because there were too many.",
		},
	})
}

func inProgram(m []Metric) []Metric {
	for i := range m {
		m[i].Scope = Program
	}
	return m
}
