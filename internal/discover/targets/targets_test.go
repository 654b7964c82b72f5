package targets_test

import (
	"reflect"
	"testing"

	"github.com/cimeter/cimeter/internal/discover/targets"
	"github.com/cimeter/cimeter/internal/wire"
)

func TestOf(t *testing.T) {
	got := targets.Of(wire.Heartbeat{
		Agent: "a1", Machine: "ci-7", Version: "0.2.0",
		Host: &wire.Host{Pool: "large"}, Scrape: &wire.Scrape{Targets: []wire.Target{
			{Job: "cimeter", Address: "10.0.0.7:9808", Scheme: "https"}, {Job: "node_exporter", Address: ":9100"},
		}},
	})
	want := []targets.Group{
		{Targets: []string{"10.0.0.7:9808"}, Labels: map[string]string{
			"__meta_cimeter_job": "cimeter", "__meta_cimeter_machine": "ci-7", "__meta_cimeter_pool": "large",
			"__meta_cimeter_version": "0.2.0", "__meta_cimeter_agent": "a1", "__scheme__": "https",
		}},
		{Targets: []string{"ci-7:9100"}, Labels: map[string]string{
			"__meta_cimeter_job": "node_exporter", "__meta_cimeter_machine": "ci-7", "__meta_cimeter_pool": "large",
			"__meta_cimeter_version": "0.2.0", "__meta_cimeter_agent": "a1",
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	for name, h := range map[string]wire.Heartbeat{
		"nothing said":   {Machine: "m"},
		"no targets":     {Machine: "m", Scrape: &wire.Scrape{}},
		"no name of DNS": {Machine: "the build box", Scrape: &wire.Scrape{Targets: []wire.Target{{Job: "cimeter", Address: ":1"}}}},
	} {
		if got := targets.Of(h); len(got) != 0 {
			t.Errorf("%s: %v, want none", name, got)
		}
	}
}

func TestEncode(t *testing.T) {
	for want, groups := range map[string][]targets.Group{
		"[]\n": nil,
		"[\n  {\n    \"targets\": [\n      \"a:1\"\n    ],\n    \"labels\": {\n      \"k\": \"\\\"\\n\"\n    }\n  }\n]\n": {{Targets: []string{"a:1"}, Labels: map[string]string{"k": "\"\n"}}},
	} {
		if got, err := targets.Encode(groups); err != nil || string(got) != want {
			t.Errorf("got %s, %v: want %s", got, err, want)
		}
	}
}
