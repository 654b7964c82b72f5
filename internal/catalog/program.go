package catalog

// The metrics of builds.
const (
	BuildsRunning = "cimeter_builds_running"
	Builds        = "cimeter_builds_total"
	BuildDuration = "cimeter_build_duration_seconds"
	BuildQueue    = "cimeter_build_queue_seconds"
)

// The metrics of the machine and its containers.
const (
	ContainerInfo = "cimeter_container_info"
	MachineCPU    = "cimeter_machine_cpu_seconds_total"
)

// The metrics of the agent about itself.
const (
	BuildInfo                = "cimeter_build_info"
	AgentCPU                 = "cimeter_agent_cpu_seconds_total"
	AgentMemory              = "cimeter_agent_resident_memory_bytes"
	AgentContainers          = "cimeter_agent_containers"
	AgentSegments            = "cimeter_agent_segments_total"
	AgentReads               = "cimeter_agent_reads_total"
	AgentRounds              = "cimeter_agent_rounds_total"
	AgentRoundCPU            = "cimeter_agent_round_cpu_seconds_total"
	AgentGaps                = "cimeter_agent_gaps_total"
	AgentDropped             = "cimeter_agent_dropped_total"
	AgentRecords             = "cimeter_agent_records_total"
	AgentRecordWriteFailures = "cimeter_agent_record_write_failures_total"
	AgentRecordsPending      = "cimeter_agent_records_pending"
	AgentWatchOverflows      = "cimeter_agent_watch_overflows_total"
	AgentEngineUp            = "cimeter_agent_engine_up"
	AgentEngineEvents        = "cimeter_agent_engine_events_total"
	AgentDisputed            = "cimeter_agent_disputed_total"
	AgentJobQuestions        = "cimeter_agent_job_questions_total"
	AgentSeries              = "cimeter_agent_series"
	AgentSeriesBudget        = "cimeter_agent_series_budget"
	AgentSeriesFolded        = "cimeter_agent_series_folded_total"
	AgentUncapturedCPU       = "cimeter_agent_uncaptured_cpu_seconds_total"
	AgentCoverage            = "cimeter_agent_coverage_ratio"
	AgentBesideCPU           = "cimeter_agent_beside_cpu_seconds_total"
)

// results are the values of the label result; the last one is for what nothing told.
func results() []Series {
	return []Series{
		{Values: []string{"success"}}, {Values: []string{"failed"}}, {Values: []string{"canceled"}}, {Values: []string{"unknown"}},
	}
}

func buildMetrics() []Metric {
	return []Metric{
		{
			Name: BuildsRunning, Kind: Gauge, Scope: Build,
			Help: "Builds that run now.",
		},
		{
			Name: Builds, Kind: Counter, Scope: Build, Labels: []string{"result"}, Series: results(),
			Help: "Builds that ended, by result: success, failed, canceled, or unknown when nothing told it.",
		},
		{
			Name: BuildDuration, Kind: Histogram, Scope: Build, Unit: "seconds", Labels: []string{"result"}, Series: results(),
			Help: "How long builds took from their first container's start to their last one's end.", Buckets: durations(),
		},
		{
			Name: BuildQueue, Kind: Histogram, Scope: Build, Unit: "seconds",
			Help: "How long builds waited for a runner, where the CI server told it.", Buckets: durations(),
		},
	}
}

func machineMetrics() []Metric {
	return []Metric{
		{
			// No stage: one container may run several.
			Name: ContainerInfo, Kind: Info, Scope: Build, Labels: []string{"container_id", "build"}, OptIn: true,
			Help: "Joins a running container's series of other exporters to its build.",
		},
		{
			Name: MachineCPU, Kind: Counter, Scope: Program, Unit: "seconds", Labels: []string{"machine", "owner"},
			Help: "CPU time of the machine by who used it: builds, other, or cimeter itself.",
		},
	}
}

func agentMetrics() []Metric {
	m := []Metric{
		{
			Name: BuildInfo, Kind: Info, Labels: []string{"version", "revision", "goversion"},
			Help: "The cimeter that runs here.",
		},
		{
			Name: AgentCPU, Kind: Counter, Unit: "seconds",
			Help: "CPU time that the agent itself used.",
		},
		{
			Name: AgentMemory, Kind: Gauge, Unit: "bytes",
			Help: "Resident memory of the agent itself.",
		},
		{
			Name: AgentContainers, Kind: Gauge,
			Help: "Containers that the agent meters now.",
		},
		{
			Name: AgentSegments, Kind: Counter, Labels: []string{"seen"},
			Help: "Lives of containers by how they were seen: from birth, late (already running), or missed.",
		},
		{
			Name: AgentReads, Kind: Counter, Labels: []string{"result"},
			Help: "Readings of containers: ok, gone (ended before it), error, or degraded (something could not be read).",
		},
		{
			Name: AgentRounds, Kind: Counter,
			Help: "Sampling rounds over all containers.",
		},
		{
			Name: AgentRoundCPU, Kind: Counter, Unit: "seconds",
			Help: "CPU time that the sampling rounds used.",
		},
		{
			Name: AgentGaps, Kind: Counter, Labels: []string{"reason"},
			Help: "Times in the life of builds that were not seen.",
		},
		{
			Name: AgentDropped, Kind: Counter, Labels: []string{"reason"},
			Help: "Things that the agent let go because a bound was reached.",
		},
		{
			Name: AgentRecords, Kind: Counter,
			Help: "Records of finished builds that were written.",
		},
		{
			Name: AgentRecordWriteFailures, Kind: Counter,
			Help: "Attempts to write a record that failed.",
		},
		{
			Name: AgentRecordsPending, Kind: Gauge,
			Help: "Records that wait to be written.",
		},
		{
			Name: AgentWatchOverflows, Kind: Counter,
			Help: "Times that the kernel dropped cgroup events because its queue was full.",
		},
		{
			Name: AgentEngineUp, Kind: Gauge, Labels: []string{"engine"},
			Help: "1 while a container engine (docker, cri, podman) tells what happens to its containers, else 0.",
		},
		{
			Name: AgentEngineEvents, Kind: Counter, Labels: []string{"engine", "by"},
			Help: "What happened to containers, by how a container engine made it known: told (by its stream of events), asked (it has no stream, or that was late).",
		},
		{
			Name: AgentDisputed, Kind: Counter,
			Help: "Containers that claimed a build which is not theirs.",
		},
		{
			Name: AgentJobQuestions, Kind: Counter, Labels: []string{"result"},
			Help: "Connections to the socket for jobs: answered, unknown (the process is part of no build), refused (too many at once, or not the process that it seemed to be), failed.",
		},
		{
			Name: AgentSeries, Kind: Gauge,
			Help: "Series that are reserved out of the budget.",
		},
		{
			Name: AgentSeriesBudget, Kind: Gauge,
			Help: "Series that this process may have at most.",
		},
		{
			Name: AgentSeriesFolded, Kind: Counter,
			Help: "Times that a label set found no room in the budget and was counted as #other#.",
		},
		{
			Name: AgentUncapturedCPU, Kind: Counter, Unit: "seconds",
			Help: "CPU time of the containers' parent cgroups that no container showed.",
		},
		{
			Name: AgentCoverage, Kind: Gauge, Unit: "ratio",
			Help: "Share of the machine's CPU time, while builds run, that was attributed to builds, 0 to 1.",
		},
		{
			Name: AgentBesideCPU, Kind: Counter, Unit: "seconds", Labels: []string{"attribution"},
			Help: "CPU time of containers and build steps that are no build's own, made while a build had an engine's socket or a client running, by what attributes them to that build: cgroup_parent, network, volume, client, sole_candidate; unattributed when several may have made them, it was over, or an engine that builds share did it itself.",
		},
	}
	for i := range m {
		m[i].Scope = Program
	}
	return m
}
