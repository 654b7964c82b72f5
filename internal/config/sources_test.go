package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/config"
)

func TestParse_Sources(t *testing.T) {
	c, err := config.Parse("c.yaml", []byte(`
sources:
  - name: cadvisor
    url: http://127.0.0.1:8080/metrics
    interval: 30s
    keep: ^container_
    drop_labels: id, image
    rename_labels: {name: container}
    labels: {env: ci}
  - {name: drone, url: "http://drone/debug/vars", expvar: true, interval: auto}
`))
	if err != nil {
		t.Fatal(err)
	}
	s := c.Sources[0]
	if len(c.Sources) != 2 || s.Interval != 30*time.Second || s.Keep.String() != "^container_" || len(s.DropLabels) != 2 || s.RenameLabels["name"] != "container" ||
		s.Labels["env"] != "ci" || !c.Sources[1].Expvar || c.Sources[1].Interval != 0 {
		t.Errorf("sources: %+v", c.Sources)
	}
	_, err = config.Parse("c.yaml", []byte(`
sources:
  - {name: a, url: "http://user:seeded-secret-7@x/", interval: 1ms, keep: "("}
  - {name: a}
  - {url: "http://x/", rename_labels: {a: "b-c"}, labels: {"a b": c}}
`))
	for _, want := range []string{
		"sources[0].url", "sources[0].interval", "sources[0].keep", "sources[1].name: a: sources[0] has it too", "sources[1].url: nothing given",
		"sources[2].name: nothing given", "sources[2].rename_labels.a", "sources[2].labels.a b",
	} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "seeded") {
			t.Errorf("no problem %s, or a secret, in:\n%v", want, err)
		}
	}
}
