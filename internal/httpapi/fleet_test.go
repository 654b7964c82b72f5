package httpapi_test

import (
	"encoding/json"
	"testing"
)

// What an agent tells of its machine stands beside the machine's totals, and
// what a build does now beside what it did; of a machine that tells nothing
// nothing is said.
func TestFleet_figures(t *testing.T) {
	api, _ := newServer(t, 12)
	var machines struct {
		Groups []struct {
			Machine string
			Reports *struct {
				Away    bool
				Running int
				Host    *struct {
					Cores float64 `json:"cpu_cores"`
				}
				Now *struct {
					Cores *struct{ Builds, Other float64 } `json:"cpu_cores"`
				}
			}
		}
	}
	if err := json.Unmarshal(get(t, api, "/api/v1/machines").Body.Bytes(), &machines); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, g := range machines.Groups {
		switch r := g.Reports; g.Machine {
		case "ci-1":
			told++
			if r == nil || r.Away || r.Running != 1 || r.Host == nil || r.Host.Cores != 8 || r.Now == nil || r.Now.Cores == nil || r.Now.Cores.Builds != 1.5 {
				t.Errorf("ci-1: %+v", r)
			}
		case "ci-2":
			told++
			if r == nil || !r.Away || r.Host != nil || r.Now != nil {
				t.Errorf("ci-2: %+v: want it away, without figures", r)
			}
		default:
			if r != nil {
				t.Errorf("%s: %+v: want none, it has no agent", g.Machine, r)
			}
		}
	}
	if told != 2 {
		t.Errorf("%+v: want ci-1 and ci-2", machines.Groups)
	}
	var running struct {
		Builds []struct {
			Machine string
			Now     *struct {
				Cores *float64 `json:"cpu_cores"`
				Net   *float64 `json:"network_bytes_per_second"`
			}
		}
	}
	if err := json.Unmarshal(get(t, api, "/api/v1/running").Body.Bytes(), &running); err != nil {
		t.Fatal(err)
	}
	if b := running.Builds; len(b) != 1 || b[0].Now == nil || b[0].Now.Cores == nil || *b[0].Now.Cores != 1.25 || b[0].Now.Net != nil {
		t.Errorf("%+v: want the one of ci-1, 1.25 cores and no network", b)
	}
}
