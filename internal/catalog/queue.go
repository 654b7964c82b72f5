package catalog

// The metrics of a CI server's queue, whoever tells them.
const (
	QueueBuilds = "cimeter_queue_builds"
	Workers     = "cimeter_workers"
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
	})
}
