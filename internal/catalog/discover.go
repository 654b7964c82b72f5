package catalog

// The metrics of being found, of an agent and of a server.
const (
	DiscoveryTargets  = "cimeter_discovery_targets"
	DiscoveryFailures = "cimeter_discovery_failures_total"
)

func discoveryMetrics() []Metric {
	return inProgram([]Metric{
		{
			Name: DiscoveryTargets, Kind: Gauge, Labels: []string{"registry"},
			Help: "Targets that are told to a registry now: consul, or file for file_sd.",
		},
		{
			Name: DiscoveryFailures, Kind: Counter, Labels: []string{"registry"},
			Help: "Tries to tell a registry of targets that failed; they are tried again.",
		},
	})
}
