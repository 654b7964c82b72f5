package config_test

import (
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/config"
)

func TestParse_outputs(t *testing.T) {
	c, err := config.Parse("c.yaml", []byte(`
outputs:
  statsd: {address: "[::1]:8125", name: "ci.${project}.${name}.${values}", max_packet: 512}
  dogstatsd: {address: "unixstream:///run/dsd.socket", tags: "env:ci, team:größe", max_packet: auto, container_id: in-42}
`))
	if err != nil {
		t.Fatal(err)
	}
	if s, d := c.Outputs.StatsD, c.Outputs.DogStatsD; s.MaxPacket != 512 || len(d.Tags) != 2 || d.MaxPacket != 0 || d.ContainerID != "in-42" || s.Histograms != "timers" {
		t.Errorf("%+v\n%+v", s, d)
	}
	_, err = config.Parse("c.yaml", []byte(`
outputs:
  statsd:
    address: statsd
    interval: 100ms
    name: "${project}"
    max_packet: 65508
    histograms: buckets
  dogstatsd:
    address: tcp://127.0.0.1:8125
    prefix: 1x
    tags: [":x", "a|b"]
    external_data: "a|b"
    cardinality: all
`))
	if err == nil {
		t.Fatal("no problem is found")
	}
	for _, want := range []string{
		"c.yaml:4: outputs.statsd.address: statsd: want HOST:PORT", "c.yaml:5: outputs.statsd.interval: 100ms: want 1s to 10m",
		"c.yaml:6: outputs.statsd.name: ", "c.yaml:7: outputs.statsd.max_packet: ", "c.yaml:8: outputs.statsd.histograms: buckets: want one of timers, counters",
		"c.yaml:10: outputs.dogstatsd.address: ", "c.yaml:11: outputs.dogstatsd.prefix: 1x: want ", "outputs.dogstatsd.tags[0]: ",
		"outputs.dogstatsd.tags[1]: ", "c.yaml:13: outputs.dogstatsd.external_data: ", "c.yaml:14: outputs.dogstatsd.cardinality: all: want one of",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}
