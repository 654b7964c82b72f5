// Package targets turns what agents say of their exporters into the list that
// Prometheus' http_sd and file_sd read.
//
// It owns the names of the __meta_cimeter_ labels and the JSON. It does no
// input or output. Start with [Of] and [Encode]; both may be called from
// anywhere at any time.
package targets

import (
	"encoding/json"
	"fmt"

	"github.com/cimeter/cimeter/internal/wire"
)

// Group is one entry of the list. Each has one target, as each has labels of
// its own.
type Group struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// The labels of a target. All but __scheme__ are for relabelling alone:
// Prometheus drops them before it scrapes. What is not known is left out.
const (
	LabelJob     = "__meta_cimeter_job"     // cimeter, node_exporter, cadvisor
	LabelMachine = "__meta_cimeter_machine" // as in cimeter's own labels
	LabelPool    = "__meta_cimeter_pool"
	LabelRunner  = "__meta_cimeter_runner"
	LabelVersion = "__meta_cimeter_version" // of the agent
	LabelAgent   = "__meta_cimeter_agent"   // tells one agent from all others
	LabelScheme  = "__scheme__"             // where it is not http
)

// Of returns the targets on one agent's machine. An address without a host gets
// the machine's name. Nil and an agent that tells no targets have none.
func Of(h wire.Heartbeat) []Group {
	if h.Scrape == nil {
		return nil
	}
	pool := ""
	if h.Host != nil {
		pool = h.Host.Pool
	}
	groups := make([]Group, 0, len(h.Scrape.Targets))
	for _, t := range h.Scrape.Targets {
		address := t.Address
		if host, port, ok := wire.SplitTarget(address); ok && host == "" {
			address = wire.JoinTarget(h.Machine, port)
		}
		if !wire.ValidTarget(address) { // a machine's name need not be one of a host
			continue
		}
		labels := map[string]string{}
		for name, value := range map[string]string{
			LabelJob: t.Job, LabelMachine: h.Machine, LabelPool: pool, LabelRunner: h.Scrape.Runner,
			LabelVersion: h.Version, LabelAgent: h.Agent,
		} {
			if value != "" {
				labels[name] = value
			}
		}
		if t.Scheme == "https" {
			labels[LabelScheme] = t.Scheme
		}
		groups = append(groups, Group{Targets: []string{address}, Labels: labels})
	}
	return groups
}

// Encode returns the list as JSON; no groups are [] and not null, which
// Prometheus takes for a broken file.
func Encode(groups []Group) ([]byte, error) {
	if groups == nil {
		groups = []Group{}
	}
	b, err := json.MarshalIndent(groups, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode targets: %w", err)
	}
	return append(b, '\n'), nil
}
