package httpapi

import (
	"net"
	"net/http"

	"github.com/cimeter/cimeter/internal/discover/targets"
)

// prometheusTargets is GET /api/v1/sd/prometheus: the exporters on the machines
// of all agents that are heard of, in the form of Prometheus' http_sd. It is the
// whole list each time, as Prometheus asks for it. A machine leaves it with the
// heartbeats that it misses.
func (a *API) prometheusTargets(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r.URL.RawQuery, func(string) bool { return false }); err != nil {
		return err
	}
	if a.o.Settled != nil && !a.o.Settled() {
		// Prometheus keeps the list that it has, in place of dropping the fleet.
		w.Header().Set("Retry-After", "5")
		return &problem{Status: http.StatusServiceUnavailable, Detail: "server has just begun and has not heard of all agents yet"}
	}
	return writeTagged(w, r, Targets(a.o.Agents()))
}

// Targets are the exporters on the machines of the agents that are not away; no
// nil.
func Targets(agents []Agent) []targets.Group {
	groups := []targets.Group{}
	for _, agent := range agents {
		if !agent.Away {
			groups = append(groups, targets.Of(agent.Heartbeat)...)
		}
	}
	return groups
}

// remoteHost is the address that a request comes from, without its port.
func remoteHost(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return host
}
