package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/wire"
)

// memory is a store of the API in memory, newest first.
type memory []*cimeter.Record

func (m memory) Get(key string) (*cimeter.Record, error) {
	if i := slices.IndexFunc(m, func(r *cimeter.Record) bool { return r.Key == key }); i >= 0 {
		return m[i], nil
	}
	return nil, fmt.Errorf("build %s: %w", key, cimeter.ErrNotFound)
}

func (m memory) List(cursor string, limit int, wanted func(*cimeter.Record) bool) (page []*cimeter.Record, next string, err error) {
	from := 0
	if cursor != "" {
		if from, err = strconv.Atoi(cursor); err != nil {
			return nil, "", fmt.Errorf("cursor %q: %w", cursor, cimeter.ErrInvalid)
		}
	}
	for i := from; i < len(m); i++ {
		if len(page) == limit {
			return page, strconv.Itoa(i), nil
		}
		if wanted == nil || wanted(m[i]) {
			page = append(page, m[i])
		}
	}
	return page, "", nil
}

// fakeAgent starts the real API over the given records for one script.
func fakeAgent(e *testscript.Env, m memory, wrap func(http.Handler) http.Handler) string {
	s := httptest.NewServer(wrap(httpapi.New(httpapi.Options{Store: m, Running: runs})))
	e.Defer(s.Close)
	return s.URL
}

// runs is what the fake agent meters: each time it is asked, half a second of
// CPU time a second more.
func runs() []*cimeter.Record {
	now := time.Now()
	since := now.Sub(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).Seconds()
	r := &cimeter.Record{
		Schema: 1, Build: cimeter.Build{Key: "gitlab/gitlab.example.com/4243", CI: "gitlab", Project: "group/app", Number: "4243", Name: "build\x1b[2J", Machine: "ci-7", Runner: cimeter.Runner{Name: "docker-1"}},
		StartedAt: now.Add(-252 * time.Second), EndedAt: now, Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{{Name: "step_script", Attempt: 1}},
	}
	r.Usage.CPUSeconds.Total = cimeter.Some(since / 2)
	r.Usage.MemoryBytes = &cimeter.MemoryStat{Peak: cimeter.Some[uint64](100 << 20)}
	r.Limits = &cimeter.Limits{MemoryBytes: cimeter.Some[uint64](100 << 20)}
	return []*cimeter.Record{r}
}

// fakeFleet starts the API of a server to which two machines report, one of
// them no more.
func fakeFleet(e *testscript.Env) string {
	agents := func() []httpapi.Agent {
		now := time.Now()
		beat := func(machine string, away bool) httpapi.Agent {
			return httpapi.Agent{SeenAt: now, Away: away, Heartbeat: wire.Heartbeat{Agent: machine, Machine: machine, IntervalSeconds: 5, Running: []wire.Running{
				{Key: "gitlab/gitlab.example.com/" + machine, Project: "group/app", Name: "job-" + machine, Stage: "step_script", StartedAt: now.Add(-time.Minute), CPUSeconds: cimeter.Some(1.5), MemoryBytes: cimeter.Some[uint64](64 << 20)},
			}}}
		}
		return []httpapi.Agent{beat("ci-7", false), beat("ci-8", true)}
	}
	s := httptest.NewServer(httpapi.New(httpapi.Options{Agents: agents}))
	e.Defer(s.Close)
	return s.URL
}

func asIs(h http.Handler) http.Handler { return h }

func basicAuth(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "reader" || password != "hunter2" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func fakeRecords() memory {
	end := time.Date(2026, 5, 4, 14, 2, 0, 0, time.UTC)
	stat := func(avg, max float64) *cimeter.Stat { return &cimeter.Stat{Avg: avg, Max: max} }
	usage := cimeter.Usage{
		WallSeconds: 253.5,
		CPUSeconds:  cimeter.CPUSeconds{Total: cimeter.Some(392.2), User: cimeter.Some(370.1), System: cimeter.Some(22.1)},
		CPUCores:    stat(1.55, 2),
		MemoryBytes: &cimeter.MemoryStat{Stat: cimeter.Stat{Avg: 1 << 30, Max: 3 << 30}, Peak: cimeter.Some[uint64](3 << 30)},
		IOBytes:     &cimeter.ReadWrite[uint64]{Read: 1000, Write: 2000},
	}
	step := cimeter.Usage{WallSeconds: 214.6, CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(343.4)}, CPUCores: stat(1.6, 2)}
	return memory{
		{
			Schema: 1, Build: cimeter.Build{
				Key: "gitlab/gitlab.example.com/4242", CI: "gitlab", Server: "gitlab.example.com", Project: "group/app", Number: "4242",
				Name: "build-and-test", Ref: "=HYPERLINK(\"http://evil\")", Machine: "ci-7",
			},
			StartedAt: end.Add(-253500 * time.Millisecond), EndedAt: end, Result: "success", Complete: true, Gaps: []cimeter.Gap{}, Usage: usage,
			Stages: []cimeter.Stage{
				{Name: "get_sources", Attempt: 1, Boundary: cimeter.BoundaryContainer, Usage: cimeter.Usage{WallSeconds: 4.2}},
				{Name: "step_script", Attempt: 1, Boundary: cimeter.BoundaryContainer, Usage: step},
			},
		},
		{
			Schema: 1, Build: cimeter.Build{Key: "drone/drone.example.com/group/app/7", CI: "drone", Project: "group/app", Number: "7", Name: "e2e\x1b[2J", Machine: "ci-8"},
			StartedAt: end.Add(-time.Hour), EndedAt: end.Add(-time.Hour), Gaps: []cimeter.Gap{{Reason: cimeter.GapBeforeAgent}}, Stages: []cimeter.Stage{},
		},
		{
			Schema: 1, Build: cimeter.Build{Key: "gitlab/other.example.com/4242", CI: "gitlab", Project: "else/where", Number: "4242", Name: "lint", Machine: "ci-7"},
			// No agent metered it: a CI server told.
			StartedAt: end.Add(-3 * time.Hour), EndedAt: end.Add(-2 * time.Hour), Result: "failed", Metered: cimeter.Some(false), Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{},
		},
	}
}

// manyRecords need several pages.
func manyRecords() memory {
	var m memory
	for i := range 250 {
		m = append(m, &cimeter.Record{
			Schema: 1, Build: cimeter.Build{Key: cimeter.BuildKey("run", fmt.Sprint(i)), CI: "run", Number: fmt.Sprint(i)},
			Gaps: []cimeter.Gap{}, Stages: []cimeter.Stage{},
		})
	}
	return m
}

// historyRecords are 25 builds of one job, the last of them dearer, and one of
// another job.
func historyRecords() memory {
	var m memory
	end := time.Date(2026, 5, 4, 14, 0, 0, 0, time.UTC)
	for i := range 25 {
		at := end.Add(-time.Duration(i) * time.Hour)
		cpu, peak := 100+float64(i%3), uint64(1<<30)
		if i == 0 {
			cpu, peak = 150, 2<<30
		}
		usage := func(cpu, wall float64) cimeter.Usage {
			return cimeter.Usage{WallSeconds: wall, CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(cpu)}, MemoryBytes: &cimeter.MemoryStat{Peak: cimeter.Some(peak)}}
		}
		r := &cimeter.Record{
			Schema: 1, Build: cimeter.Build{Key: fmt.Sprintf("gitlab/gitlab.example.com/%d", 525-i), CI: "gitlab", Project: "group/app", Number: fmt.Sprint(525 - i), Name: "build", Ref: "feature/x", Machine: "ci-7"},
			StartedAt: at.Add(-time.Minute), EndedAt: at, Result: "success", Complete: true, Gaps: []cimeter.Gap{}, Usage: usage(cpu+1, 60),
			Stages: []cimeter.Stage{{Name: "get_sources", Attempt: 1, Usage: usage(1, 5)}, {Name: "step_script", Attempt: 1, Usage: usage(cpu, 55)}},
		}
		switch i {
		case 1:
			r.Result = "failed"
		case 2:
			r.Result = "canceled"
		case 3:
			r.Ref, r.Machine = "main", "ci-8"
		}
		m = append(m, r)
	}
	other := *m[0]
	other.Key, other.Name, other.EndedAt, other.Stages = "gitlab/gitlab.example.com/1", "e2e", end.Add(-100*time.Hour), []cimeter.Stage{{Name: "e2e", Attempt: 1}}
	return append(m, &other)
}
