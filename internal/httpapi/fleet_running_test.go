package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/wire"
)

// What is kept of the answer before is told only while it is true: the list is
// at each step what encoding/json makes of the agents.
func TestFleetRunning_changes(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	build := func(n int, cpu float64) wire.Running {
		return wire.Running{Key: fmt.Sprint("gitlab/x/", n), Name: "te\u202est <b>", Project: "group/app", StartedAt: at, CPUSeconds: cimeter.Some(cpu)}
	}
	agent := func(name string, running ...wire.Running) httpapi.Agent {
		a := httpapi.Agent{Heartbeat: wire.Heartbeat{Agent: name, Machine: "m-" + name, Running: running}, SeenAt: at}
		for range running {
			a.Builds = append(a.Builds, httpapi.BuildRates{CPUCores: cimeter.Some(1.25)})
		}
		return a
	}
	agents := []httpapi.Agent{agent("a", build(1, 1), build(2, 1)), agent("b"), agent("c", build(3, 1))}
	api := httpapi.New(httpapi.Options{Agents: func() []httpapi.Agent { return agents }})
	for step, change := range []func(){
		func() {},
		func() {},
		func() { agents[0] = agent("a", build(1, 2), build(2, 3)) },
		func() { agents[2].Away = true },
		func() { agents[2].Away = false },
		func() { agents[0].Running = agents[0].Running[:1] },
		func() { agents[1] = agent("b", build(4, 1)); agents[1].Builds = nil },
		func() { agents[2].Machine = "moved" },
		func() { agents = agents[1:] },
		func() { agents = nil },
	} {
		change()
		type running struct {
			wire.Running
			Machine string              `json:"machine"`
			Now     *httpapi.BuildRates `json:"now,omitempty"`
		}
		want := []running{}
		for i := range agents {
			a := &agents[i]
			for j := range a.Running {
				one := running{a.Running[j], a.Machine, nil}
				if j < len(a.Builds) {
					one.Now = &a.Builds[j]
				}
				if !a.Away {
					want = append(want, one)
				}
			}
		}
		b, err := json.Marshal(map[string]any{"builds": want})
		if err != nil {
			t.Fatal(err)
		}
		if got := get(t, api, "/api/v1/running").Body.String(); strings.TrimSpace(got) != string(display.JSON(b)) {
			t.Errorf("step %d:\n%s; want\n%s", step, got, display.JSON(b))
		}
	}
}
