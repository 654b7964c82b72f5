package config

import (
	"fmt"
	"time"
)

// Source is a program whose metrics are read and given to the outputs.
type Source struct {
	Name         string            `yaml:"name" check:"label" doc:"What the source is called in messages, and in the label source of its points. Names are unique."`
	URL          string            `yaml:"url" check:"address" doc:"Its page of metrics, such as http://127.0.0.1:9100/metrics."`
	Expvar       bool              `yaml:"expvar" doc:"It is JSON of Go's expvar; else text or OpenMetrics of Prometheus."`
	Interval     time.Duration     `yaml:"interval" auto:"true" min:"1s" max:"1h" doc:"Time between two reads. auto: 15 s. One read takes at most that, and 10 s."`
	MaxBytes     Bytes             `yaml:"max_bytes" auto:"true" min:"1KiB" max:"256MiB" doc:"Most bytes of the page. auto: 16 MiB."`
	MaxSeries    int               `yaml:"max_series" auto:"true" min:"1" max:"1000000" doc:"Most series that are taken of it. auto: 20,000."`
	TokenFile    string            `yaml:"token_file" check:"optionalpath" doc:"File of the bearer token that it asks for, read each time. Must not be readable by everybody."`
	Prefix       string            `yaml:"prefix" check:"label" doc:"Text before each name."`
	Keep         Pattern           `yaml:"keep" doc:"Pattern of the names that are kept, anchored at neither end. Default: all."`
	Drop         Pattern           `yaml:"drop" doc:"Pattern of the names that are dropped, after keep."`
	Labels       map[string]string `yaml:"labels" doc:"Labels that are added to points that do not have them."`
	RenameLabels map[string]string `yaml:"rename_labels" doc:"Label to its new name. Points that are then the same as another are left out and counted."`
	DropLabels   []string          `yaml:"drop_labels" max:"64" doc:"Labels that are taken away. Points that are then the same as another are left out and counted."`
	Serve        bool              `yaml:"serve" doc:"Show its metrics at /metrics of cimeter, too."`
}

// source checks what a tag cannot say.
func (d *decoder) source(path string, s *Source, others []Source) {
	if s.Name == "" {
		d.problem(path+".name", "", "nothing given: want a name")
	}
	if s.URL == "" {
		d.problem(path+".url", "", "nothing given: want an http or https URL")
	}
	for i := range others {
		if others[i].Name == s.Name && s.Name != "" {
			d.problem(path+".name", shown(s.Name), fmt.Sprintf("sources[%d] has it too: want names once", i))
		}
	}
	for from, to := range s.RenameLabels {
		if !variableName().MatchString(to) {
			d.problem(path+".rename_labels."+from, shown(to), "want "+wanted("variable"))
		}
	}
	for name := range s.Labels {
		if !variableName().MatchString(name) {
			d.problem(path+".labels."+name, "", "want "+wanted("variable"))
		}
	}
}
