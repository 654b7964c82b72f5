package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/config"
)

func TestParse_outputsOverHTTP(t *testing.T) {
	c, err := config.Parse("c.yaml", []byte(`
outputs:
  otlp: {url: "http://h:4318", traces: true, resource: {deployment.environment.name: ci}, headers: {X-A: b}}
  remote_write: {url: "https://h/api/v1/write?x=1", protocol: "1.0", labels: {pool: large}, max_bytes: 1MiB, max_age: 30m}
`))
	if err != nil {
		t.Fatal(err)
	}
	o, w := c.Outputs.OTLP, c.Outputs.RemoteWrite
	if !o.Traces || !o.Metrics || o.Resource["deployment.environment.name"] != "ci" || o.Headers["X-A"] != "b" || o.Interval != 30*time.Second {
		t.Errorf("%+v", o)
	}
	if w.Protocol != "1.0" || w.Labels["pool"] != "large" || w.MaxBytes != 1<<20 || w.MaxAge != 30*time.Minute || w.Interval != 15*time.Second {
		t.Errorf("%+v", w)
	}
	_, err = config.Parse("c.yaml", []byte(`
outputs:
  otlp:
    url: http://u:pa55@h:4318
    interval: 0s
  remote_write:
    url: h:9090
    protocol: "3"
    max_age: 1s
    token_file: token
`))
	if err == nil {
		t.Fatal("no problem is found")
	}
	for _, want := range []string{
		"c.yaml:4: outputs.otlp.url: ", "c.yaml:5: outputs.otlp.interval: 0s: want 1s to 10m", "c.yaml:7: outputs.remote_write.url: ",
		"c.yaml:8: outputs.remote_write.protocol: 3: want one of auto, 1.0, 2.0", "c.yaml:9: outputs.remote_write.max_age: 1s: want 1m to 24h",
		"c.yaml:10: outputs.remote_write.token_file: ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "pa55") {
		t.Errorf("a password is told: %v", err)
	}
}
