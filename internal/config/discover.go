package config

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Discover says how Prometheus finds a machine, or a server's fleet.
type Discover struct {
	Advertise    string `yaml:"advertise" check:"target" doc:"Address at which Prometheus reaches this agent, HOST:PORT or :PORT. Default: the port of listen, at the address that the server or Consul sees this machine at."`
	Scheme       string `yaml:"scheme" oneof:"http https" doc:"How this agent is scraped: https where web_config_file sets TLS."`
	Runner       string `yaml:"runner" check:"label" doc:"Runner on this machine, told with its targets."`
	NodeExporter string `yaml:"node_exporter" check:"target" doc:"Address to look for a node_exporter at. Where one answers over plain HTTP, it is told along with the agent. Empty: none is looked for."`
	Cadvisor     string `yaml:"cadvisor" check:"target" doc:"The same for a cAdvisor, such as 127.0.0.1:8080."`
	File         string `yaml:"file" check:"optionalpath" doc:"File that lists the targets for Prometheus' file_sd, replaced in one step; its name ends in .json. An agent's lists its own machine, a server's the machines of all agents that it hears from."`
	Consul       Consul `yaml:"consul" doc:"The Consul agent that this agent registers its machine with."`
}

// Consul says how an agent is registered.
type Consul struct {
	Address         string        `yaml:"address" check:"address" doc:"Address of the Consul agent, such as http://127.0.0.1:8500. Without one the machine is not registered."`
	TokenFile       string        `yaml:"token_file" check:"optionalpath" doc:"File of the ACL token, which needs service:write for the services; $CONSUL_HTTP_TOKEN wins over it. It is read before each request. Must not be readable by everybody."`
	CAFile          string        `yaml:"ca_file" check:"optionalpath" doc:"PEM file of the authorities that may sign Consul's certificate. Default: the system's."`
	CertFile        string        `yaml:"cert_file" check:"optionalpath" doc:"PEM file of the certificate that is shown to Consul."`
	KeyFile         string        `yaml:"key_file" check:"optionalpath" doc:"PEM file of the key of that certificate."`
	Service         string        `yaml:"service" check:"service" doc:"Name of the service that the agent is registered as. Neighbours are node-exporter and cadvisor."`
	Tags            []string      `yaml:"tags" check:"service" max:"32" doc:"Tags of the services besides cimeter."`
	TTL             time.Duration `yaml:"ttl" min:"3s" max:"10m" doc:"How long Consul waits for a sign of life before it calls the machine critical. It gets three in that time."`
	DeregisterAfter time.Duration `yaml:"deregister_after" min:"1m" max:"72h" doc:"How long after that Consul forgets a machine that is still critical. It looks every half a minute or so."`
}

func defaultDiscover() Discover {
	return Discover{
		Scheme:       "http",
		NodeExporter: "127.0.0.1:9100",
		Consul:       Consul{Service: "cimeter", TTL: 30 * time.Second, DeregisterAfter: time.Minute},
	}
}

var serviceName = lazily(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// validTarget reports whether s is HOST:PORT or :PORT as Prometheus takes it.
func validTarget(s string) bool {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || len(s) > 300 {
		return false
	}
	host, port := s[:i], s[i+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return false
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		return ok && err == nil && a.Is6() && a.Zone() == ""
	}
	return strings.Trim(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz0123456789.-_") == ""
}

// discover checks what no tag can say.
func (d *decoder) discover(c *Discover) {
	if c.File != "" && !strings.HasSuffix(c.File, ".json") {
		d.problem("discover.file", shown(c.File), "want a name that ends in .json: Prometheus reads no other")
	}
	if (c.Consul.CertFile == "") != (c.Consul.KeyFile == "") {
		d.problem("discover.consul", "", "want cert_file and key_file, or neither")
	}
}
