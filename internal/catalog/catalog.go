package catalog

import (
	"slices"
	"strings"

	"github.com/cimeter/cimeter"
)

// Kind is what a metric's values mean.
type Kind uint8

// The kinds.
const (
	Counter   Kind = iota // only rises; its name ends in _total
	Gauge                 // a level that goes up and down
	Histogram             // observations counted in buckets
	Info                  // always 1, its labels are what it says; its name ends in _info
)

// String returns the kind in lower case.
func (k Kind) String() string {
	switch k {
	case Counter:
		return "counter"
	case Gauge:
		return "gauge"
	case Histogram:
		return "histogram"
	case Info:
		return "info"
	}
	return "unknown"
}

// Scope says what a metric is kept for. A metric's labels begin with those of
// its scope.
type Scope uint8

// The scopes.
const (
	Stage   Scope = iota // one stage of a project on a machine's runner: ci, project, machine, runner, stage
	Build                // the builds of a project on a machine's runner: ci, project, machine, runner
	Program              // the machine and cimeter itself: no labels of its own
)

// Labels returns the labels that every metric of the scope has, in order.
func (s Scope) Labels() []string {
	switch s {
	case Stage:
		return []string{"ci", "project", "machine", "runner", "stage"}
	case Build:
		return []string{"ci", "project", "machine", "runner"}
	}
	return nil
}

// Metric is one row of the table.
type Metric struct {
	Name    string
	Kind    Kind
	Scope   Scope
	Unit    string    // base unit in the plural as it stands in the name: seconds, bytes, cores, ratio; "" has none
	Help    string    // one sentence
	Labels  []string  // names in order: the scope's, then the metric's own
	Series  []Series  // of Stage counters and gauges, and of Build metrics by result; else nil
	Buckets []float64 // of a histogram: upper bounds in Unit, rising, without +Inf
	OptIn   bool      // shown only when the operator asks for it
}

// Series is one of the series that a metric has in each label set of its scope.
type Series struct {
	Values   []string          // of the metric's own labels, in order
	Counters []cimeter.Counter // Stage counters: the series is their sum
	Gauge    cimeter.Gauge     // Stage gauges
	Decimals int               // a counter's reading is in units of 10 to the -Decimals
}

// Own returns the labels that the metric has beside its scope's.
func (m *Metric) Own() []string { return m.Labels[len(m.Scope.Labels()):] }

// Lookup returns the metric of that name.
func Lookup(name string) (Metric, bool) {
	all := Metrics()
	i, ok := slices.BinarySearchFunc(all, name, func(m Metric, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return Metric{}, false
	}
	return all[i], true
}

// Metrics returns all metrics, sorted by name.
func Metrics() []Metric {
	all := slices.Concat(stageMetrics(), buildMetrics(), machineMetrics(), agentMetrics(), processMetrics(), pushMetrics(), serverMetrics(), discoveryMetrics(), outputMetrics(), queueMetrics(), sourceMetrics())
	slices.SortFunc(all, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	for i := range all {
		all[i].Labels = append(all[i].Scope.Labels(), all[i].Labels...)
	}
	return all
}
