package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/config"
)

func TestParse_discover(t *testing.T) {
	c, err := config.Parse("c.yaml", []byte(`
discover:
  advertise: '[fd00::7]:9808'
  scheme: https
  runner: docker-large
  node_exporter: ''
  cadvisor: 127.0.0.1:8080
  file: /srv/targets.json
  consul: {address: 'https://consul:8501', tags: [linux, large], ttl: 5s, deregister_after: 2m, cert_file: /c.pem, key_file: /k.pem}
`))
	if err != nil {
		t.Fatal(err)
	}
	d := c.Discover
	if d.Advertise != "[fd00::7]:9808" || d.Scheme != "https" || d.NodeExporter != "" || d.Cadvisor != "127.0.0.1:8080" || d.Consul.Service != "cimeter" ||
		len(d.Consul.Tags) != 2 || d.Consul.TTL != 5*time.Second || d.Consul.DeregisterAfter != 2*time.Minute {
		t.Errorf("%+v", d)
	}
	for setting, wrong := range map[string]string{
		"advertise: ci-7":                                     "discover.advertise: ci-7: want HOST:PORT",
		"advertise: 'http://ci-7:9808'":                       "discover.advertise",
		"advertise: 'ci-7:0'":                                 "discover.advertise",
		"scheme: ftp":                                         "discover.scheme",
		"node_exporter: 9100":                                 "discover.node_exporter",
		"file: /srv/targets.yaml":                             "ends in .json",
		"file: targets.json":                                  "discover.file",
		"consul: {address: 'http://u:hunter2@consul:8500'}":   "discover.consul.address",
		"consul: {service: 'a b'}":                            "discover.consul.service",
		"consul: {service: ''}":                               "discover.consul.service",
		"consul: {tags: ['a,b']}":                             "discover.consul.tags[0]",
		"consul: {ttl: 1s}":                                   "discover.consul.ttl: 1s: want 3s to 10m",
		"consul: {deregister_after: 30s}":                     "discover.consul.deregister_after: 30s: want 1m to 72h",
		"consul: {address: 'http://consul', cert_file: /c.p}": "want cert_file and key_file, or neither",
	} {
		_, err := config.Parse("c.yaml", []byte("discover: {"+setting+"}\n"))
		if err == nil || !strings.Contains(err.Error(), wrong) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v: want %q, and no password", setting, err, wrong)
		}
	}
}
