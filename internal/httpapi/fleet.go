package httpapi

import (
	"net/http"
	"time"

	"github.com/cimeter/cimeter/internal/wire"
)

// Agent is what the server knows of one agent.
type Agent struct {
	wire.Heartbeat
	SeenAt time.Time `json:"seen_at"`
	Away   bool      `json:"away"` // it missed three heartbeats: what it said last is old

	Now     *HostRates   `json:"now,omitempty"` // nil: it does not tell
	Builds  []BuildRates `json:"-"`             // of Running, in its order
	History []HostPoint  `json:"-"`             // of the last ten minutes, oldest first
}

func (a *API) fleetRoutes() []route {
	if a.o.Agents == nil {
		return nil
	}
	return []route{
		{path: "/api/v1/agents", handle: a.agents, role: Read},
		{path: "/api/v1/running", handle: newFleetRunning(a.o.Agents).serve, role: Read},
		{path: "/api/v1/sd/prometheus", handle: a.prometheusTargets, role: Read},
	}
}

// agents is GET /api/v1/agents.
func (a *API) agents(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r.URL.RawQuery, func(string) bool { return false }); err != nil {
		return err
	}
	agents := a.o.Agents()
	if agents == nil {
		agents = []Agent{}
	}
	return writeTagged(w, r, map[string]any{"agents": agents})
}
