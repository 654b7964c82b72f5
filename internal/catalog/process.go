package catalog

// The metrics of the agent about builds that run in no container.
const (
	AgentProcesses        = "cimeter_agent_processes"
	AgentProcessRunners   = "cimeter_agent_process_runners"
	AgentProcessEventsUp  = "cimeter_agent_process_events_up"
	AgentProcessEvents    = "cimeter_agent_process_events_total"
	AgentProcessOverruns  = "cimeter_agent_process_overruns_total"
	AgentProcessEnds      = "cimeter_agent_process_ends_total"
	AgentProcessMissedCPU = "cimeter_agent_process_missed_cpu_seconds_total"
)

func processMetrics() []Metric {
	m := []Metric{
		{
			Name: AgentProcesses, Kind: Gauge,
			Help: "Processes outside of containers that the agent follows now: runners and what they started.",
		},
		{
			Name: AgentProcessRunners, Kind: Gauge,
			Help: "Processes of CI runners outside of containers that run now.",
		},
		{
			Name: AgentProcessEventsUp, Kind: Gauge,
			Help: "1 while the kernel tells of forks, execs and exits, 0 while processes are found by looking. Without a runner it is 0.",
		},
		{
			Name: AgentProcessEvents, Kind: Counter,
			Help: "Forks, execs and exits that the kernel told of.",
		},
		{
			Name: AgentProcessOverruns, Kind: Counter,
			Help: "Times that the kernel dropped process events because the queue was full: all processes were looked at then.",
		},
		{
			Name: AgentProcessEnds, Kind: Counter, Labels: []string{"seen"},
			Help: "Ends of processes by how what they used became known: read before their parent waited for them, or gone and known from the parent only.",
		},
		{
			Name: AgentProcessMissedCPU, Kind: Counter, Unit: "seconds", Labels: []string{"reason"},
			Help: "CPU time of processes below runners that no build has: unseen (the runner waited for them, and nothing else showed it) or unidentified (nothing told their build).",
		},
	}
	for i := range m {
		m[i].Scope = Program
	}
	return m
}
