package otlp

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/series"
)

// rule says what a family, or the part of it with one label value, is called.
type rule struct {
	name   string
	unit   string
	help   string // "": the family's
	upDown bool   // a sum that falls too, where the family is a gauge
	when   series.Label
	add    series.Label      // attribute of every point
	rename map[string]string // label to attribute, before what holds for all families; "" leaves it out
}

// conventions are the metrics that the semantic conventions have (model/cicd and
// model/container of open-telemetry/semantic-conventions). A build is what they
// call a run of a pipeline, as far as the machine that ran it can tell; its
// project stands for the pipeline's name.
func conventions() map[string][]rule {
	direction := func(attribute string) map[string]string { return map[string]string{"direction": attribute} }
	state := func(v string) series.Label { return series.Label{Name: "cicd.pipeline.run.state", Value: v} }
	return map[string][]rule{
		catalog.BuildDuration: {{name: "cicd.pipeline.run.duration", unit: "s", add: state("executing"), help: "Duration of a pipeline run grouped by pipeline, state and result."}},
		catalog.BuildQueue:    {{name: "cicd.pipeline.run.duration", unit: "s", add: state("pending"), help: "Duration of a pipeline run grouped by pipeline, state and result."}},
		catalog.BuildsRunning: {{name: "cicd.pipeline.run.active", unit: "{run}", upDown: true, add: state("executing")}},

		catalog.StageCPU:              {{name: "container.cpu.time", unit: "s", rename: map[string]string{"mode": "cpu.mode"}}},
		catalog.StageMemoryWorkingSet: {{name: "container.memory.working_set", unit: "By", upDown: true}},
		catalog.StageMemory: {
			{name: "container.memory.rss", unit: "By", upDown: true, when: series.Label{Name: "kind", Value: "anon"}, rename: map[string]string{"kind": ""},
				help: "Anonymous memory, summed over the containers of this stage that run now."},
			{name: "cimeter.stage.memory", unit: "By", upDown: true},
		},
		catalog.StageIOBytes: {{name: "container.disk.io", unit: "By", rename: direction("disk.io.direction")}},
		catalog.StageNetwork: {{name: "container.network.io", unit: "By", rename: direction("network.io.direction")}},

		queueBuilds: {{name: "cicd.pipeline.run.active", unit: "{run}", upDown: true, rename: map[string]string{"status": "cicd.pipeline.run.state"}}},
		workers:     {{name: "cicd.worker.count", unit: "{worker}", upDown: true, rename: map[string]string{"state": "cicd.worker.state"}}},
	}
}

// The metrics of a CI server's queue.
const (
	queueBuilds = "cimeter_queue_builds"
	workers     = "cimeter_workers"
)

// attributeNames are the labels that the conventions have an attribute for, in
// whatever metric of ours they stand.
func attributeNames() map[string]string {
	return map[string]string{
		"project":      "cicd.pipeline.name",
		"machine":      "host.name",
		"runner":       "cicd.worker.id",
		"result":       "cicd.pipeline.result",
		"container_id": "container.id",
	}
}

// results are the conventions' words for ours; unknown has none.
var results = [...]series.Label{{Name: "success", Value: "success"}, {Name: "failed", Value: "failure"}, {Name: "canceled", Value: "cancellation"}}

func resultOf(ours string) string {
	for _, r := range results {
		if r.Name == ours {
			return r.Value
		}
	}
	return ""
}

// stateOf is the conventions' word for a status of a queue or a worker, or the
// status itself: their lists are open.
func stateOf(attribute, ours string) string {
	switch {
	case attribute == "cicd.pipeline.run.state" && ours == "running":
		return "executing"
	case attribute == "cicd.worker.state" && (ours == "idle" || ours == "waiting"):
		return "available"
	case attribute == "cicd.worker.state" && (ours == "running" || ours == "working"):
		return "busy"
	}
	return ours
}

// group is one metric to be sent: the families, or parts of them, that share a name.
type group struct {
	name, unit, help string
	kind             series.Kind
	upDown           bool
	parts            []part
}

// part is what one rule takes of one family.
type part struct {
	family *series.Family
	rules  []rule
	rule   int // of rules
	ours   bool
}

// is returns the rule that p is for.
func (t part) is(p *series.Point) int {
	for i := range t.rules {
		when := t.rules[i].when
		if when.Name == "" {
			return i
		}
		for _, l := range p.Labels {
			if l == when {
				return i
			}
		}
	}
	return -1
}

// sums reports whether the part's points count from a start.
func (t part) sums() bool {
	switch t.family.Kind {
	case series.Counter, series.Histogram, series.Summary:
		return true
	}
	return t.rules[t.rule].upDown
}

// namer finds names and keeps those that it made.
type namer struct {
	rules map[string][]rule
	attrs map[string]string
}

func newNamer() namer { return namer{rules: conventions(), attrs: attributeNames()} }

// maxNames bounds the names that are kept: programs that are scraped may have any.
const maxNames = 10000

// groups sorts what is to be sent by the name that it is sent by. Two families
// that come out at the same name and differ in kind stay apart.
func (n *namer) groups(families []series.Family) []group {
	var out []group
	at := map[string]int{}
	for i := range families {
		f := &families[i]
		rules := n.of(f)
		for j := range rules {
			r := &rules[j]
			id := r.name + "\x00" + f.Kind.String()
			k, ok := at[id]
			if !ok {
				k = len(out)
				at[id] = k
				help := r.help
				if help == "" {
					help = f.Help
				}
				out = append(out, group{name: r.name, unit: r.unit, help: help, kind: f.Kind, upDown: r.upDown})
			}
			out[k].parts = append(out[k].parts, part{family: f, rules: rules, rule: j, ours: own(f.Name)})
		}
	}
	return out
}

func own(family string) bool { return strings.HasPrefix(family, "cimeter_") }

func (n *namer) of(f *series.Family) []rule {
	if r, ok := n.rules[f.Name]; ok {
		return r
	}
	r := []rule{{name: f.Name, unit: unit(f.Unit)}}
	if own(f.Name) {
		r[0].name = ownName(f)
	}
	if len(n.rules) < maxNames {
		n.rules[f.Name] = r
	}
	return r
}

// ownName turns cimeter_agent_resident_memory_bytes into
// cimeter.agent.resident_memory: unit and kind are told beside the name, and
// Prometheus makes the same name as ours of it again.
func ownName(f *series.Family) string {
	name := f.Name
	if f.Kind == series.Counter {
		name = strings.TrimSuffix(name, "_total")
	}
	if unit(f.Unit) != "{cpu}" && f.Unit != "" { // braces are no part of a name that Prometheus makes
		name = strings.TrimSuffix(name, "_"+f.Unit)
	}
	return strings.Replace(name, "_", ".", 2)
}

// unit returns the UCUM symbol of a base unit.
func unit(u string) string {
	switch u {
	case "seconds":
		return "s"
	case "bytes":
		return "By"
	case "ratio":
		return "1"
	case "cores":
		return "{cpu}"
	}
	return ""
}

// attributes appends those of a point in field num.
func (n *namer) attributes(b []byte, num protowire.Number, part part, p *series.Point) []byte {
	r := &part.rules[part.rule]
	if r.add.Name != "" {
		b = appendAttribute(b, num, r.add.Name, r.add.Value)
	}
	for _, l := range p.Labels {
		name, value := l.Name, l.Value
		if to, ok := r.rename[name]; ok {
			if to == "" {
				continue
			}
			name, value = to, stateOf(to, value)
		} else if part.ours {
			name = n.attribute(name)
		}
		if name == "cicd.pipeline.result" && part.ours {
			if value = resultOf(value); value == "" {
				continue
			}
			if value == "failure" {
				b = appendAttribute(b, num, "error.type", "_OTHER") // nothing tells more
			}
		}
		b = appendAttribute(b, num, name, value)
	}
	return b
}

// attribute names a label of ours.
func (n *namer) attribute(label string) string {
	if a, ok := n.attrs[label]; ok {
		return a
	}
	a := "cimeter." + label
	if len(n.attrs) < maxNames {
		n.attrs[label] = a
	}
	return a
}
