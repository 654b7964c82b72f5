package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/discover/targets"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/wire"
)

func TestPrometheusTargets(t *testing.T) {
	agent := func(machine string, away bool) httpapi.Agent {
		return httpapi.Agent{Away: away, Heartbeat: wire.Heartbeat{Agent: "id-" + machine, Machine: machine, IntervalSeconds: 5, Scrape: &wire.Scrape{
			Targets: []wire.Target{{Job: "cimeter", Address: machine + ":9808"}, {Job: "node_exporter", Address: machine + ":9100"}},
		}}}
	}
	for name, c := range map[string]struct {
		agents []httpapi.Agent
		want   []string
	}{
		"nobody":           {nil, nil},
		"all away":         {[]httpapi.Agent{agent("ci-1", true)}, nil},
		"one of an old":    {[]httpapi.Agent{{Heartbeat: wire.Heartbeat{Agent: "a", Machine: "ci-0"}}, agent("ci-1", false)}, []string{"ci-1:9808", "ci-1:9100"}},
		"one away of many": {[]httpapi.Agent{agent("ci-1", false), agent("ci-2", true), agent("ci-3", false)}, []string{"ci-1:9808", "ci-1:9100", "ci-3:9808", "ci-3:9100"}},
	} {
		t.Run(name, func(t *testing.T) {
			api, _ := newServer(t, 0, func(o *httpapi.Options) { o.Agents = func() []httpapi.Agent { return c.agents } })
			w := get(t, api, "/api/v1/sd/prometheus")
			if kind := w.Header().Get("Content-Type"); w.Code != http.StatusOK || kind != "application/json" {
				t.Fatalf("%d %s: want application/json, nothing else is taken", w.Code, kind)
			}
			if c.want == nil && w.Body.String() != "[]\n" {
				t.Errorf("%q: want an empty list and not null", w.Body)
			}
			var groups []targets.Group
			if err := json.Unmarshal(w.Body.Bytes(), &groups); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, g := range groups {
				got = append(got, g.Targets...)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
	// A list that is not whole yet would make Prometheus drop the fleet.
	settled := false
	api, _ := newServer(t, 0, func(o *httpapi.Options) { o.Settled = func() bool { return settled } })
	if w := get(t, api, "/api/v1/sd/prometheus"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s: want 503 while agents may not have been heard of", w.Code, w.Body)
	}
	settled = true
	if w := get(t, api, "/api/v1/sd/prometheus"); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := get(t, api, "/api/v1/sd/prometheus?pool=large"); w.Code != http.StatusBadRequest {
		t.Errorf("%d: a parameter that does nothing must not look as if it did", w.Code)
	}
}

// An address without a host is where the heartbeat came from.
func TestHeartbeat_hostOfTargets(t *testing.T) {
	api, in := newServer(t, 0)
	r := httptest.NewRequest(http.MethodPost, wire.HeartbeatPath, strings.NewReader(
		`{"agent":"a","machine":"ci-7","interval_seconds":5,"running":[],"scrape":{"targets":[{"job":"cimeter","address":":9808"},{"job":"cadvisor","address":"127.0.0.1:8080"}]}}`))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "[fd00::7]:4711"
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	if w.Code != http.StatusNoContent || len(in.beats) != 1 {
		t.Fatalf("%d %s, %d heartbeats", w.Code, w.Body, len(in.beats))
	}
	if got, want := in.beats[0].Scrape.Targets, []wire.Target{{Job: "cimeter", Address: "[fd00::7]:9808"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v: another machine's loopback is not ours", got, want)
	}
}
