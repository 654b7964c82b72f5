package catalog

// The metrics of the sources that are read for others.
const (
	SourceScrapes = "cimeter_source_scrapes_total"
	SourceUp      = "cimeter_source_up"
	SourceSeries  = "cimeter_source_series"
	SourceSkipped = "cimeter_source_skipped_total"
)

func sourceMetrics() []Metric {
	return inProgram([]Metric{
		{
			Name: SourceScrapes, Kind: Counter, Labels: []string{"source", "result"},
			Help: "Times that a source was read: ok or failed.",
		},
		{
			Name: SourceUp, Kind: Gauge, Labels: []string{"source"},
			Help: "1 while a source can be read, else 0.",
		},
		{
			Name: SourceSeries, Kind: Gauge, Labels: []string{"source"},
			Help: "Series that a source had when it was read last.",
		},
		{
			Name: SourceSkipped, Kind: Counter, Labels: []string{"source", "reason"},
			Help: "What was left out of a source: families by syntax or type, series by value, duplicate, or series (too many).",
		},
	})
}
