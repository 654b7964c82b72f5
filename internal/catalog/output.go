package catalog

// The metrics of what is sent to other systems.
const (
	OutputPoints      = "cimeter_output_points_total"
	OutputRecords     = "cimeter_output_records_total"
	OutputDropped     = "cimeter_output_dropped_total"
	OutputFailures    = "cimeter_output_failures_total"
	OutputLastSuccess = "cimeter_output_last_success_time_seconds"
)

func outputMetrics() []Metric {
	m := []Metric{
		{
			Name: OutputPoints, Kind: Counter, Labels: []string{"output"},
			Help: "Points that an output's receiver has, or that were handed to the network where nothing answers.",
		},
		{
			Name: OutputRecords, Kind: Counter, Labels: []string{"output"},
			Help: "Records that an output's receiver has taken.",
		},
		{
			Name: OutputDropped, Kind: Counter, Labels: []string{"output", "reason"},
			Help: "Points and records that an output's receiver will never have, by reason.",
		},
		{
			Name: OutputFailures, Kind: Counter, Labels: []string{"output", "reason"},
			Help: "Tries of an output that failed: timeout, refused, unauthorized, unavailable, shutdown or error.",
		},
		{
			Name: OutputLastSuccess, Kind: Gauge, Unit: "seconds", Labels: []string{"output"},
			Help: "When an output last sent everything that it was given, in seconds since 1970.",
		},
	}
	for i := range m {
		m[i].Scope = Program
	}
	return m
}
