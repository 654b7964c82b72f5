package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	rows "github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
	"github.com/cimeter/cimeter/internal/wire"
)

// now is the clock of the servers under test.
func now() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

// intake is an Ingest on a store.
type intake struct {
	store   *sqlite.Store
	err     error
	hold    chan struct{}
	started chan struct{}

	mu      sync.Mutex
	refused int
	beats   []wire.Heartbeat
	agents  []string

	canceled, hooks []string
	refuse          error // of Receive and Cancel
}

func (in *intake) Put(ctx context.Context, agent string, records []*cimeter.Record) (results []wire.Result, err error) {
	if in.hold != nil {
		in.started <- struct{}{}
		<-in.hold
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err != nil {
		return nil, in.err
	}
	in.agents = append(in.agents, agent)
	for _, r := range records {
		res, err := in.store.Put(ctx, []rows.Put{{Record: r, ReceivedAt: now()}})
		if err != nil {
			return nil, err
		}
		status := wire.Stored
		if res.Duplicates > 0 {
			status = wire.Duplicate
		}
		results = append(results, wire.Result{Key: r.Key, Status: status})
	}
	return results, nil
}

func (in *intake) Refused(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.refused += n
}

func (in *intake) Heartbeat(h wire.Heartbeat) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.beats = append(in.beats, h)
}

func openStore(t testing.TB) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "cimeter.db"), Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// newServer is a server with n builds, the newest first, and one agent.
func newServer(t testing.TB, n int, change ...func(*httpapi.Options)) (*httpapi.API, *intake) {
	t.Helper()
	kept := openStore(t)
	batch := make([]rows.Put, 0, n)
	for i := range n {
		r := build(i)
		r.Ref, r.Verdicts, r.Usage = "main", []cimeter.Verdict{{Kind: "oom", Evidence: "killed"}}, usage(float64(i))
		r.Parts = []cimeter.Part{{Kind: cimeter.PartContainer, ID: "0123", Within: "4567", Stage: "step_script", Counted: true, Attribution: cimeter.AttributedNested,
			Confidence: cimeter.Certain, CPUSeconds: cimeter.Some(1.5), MemoryPeakBytes: cimeter.Some(uint64(4096)), OOMKills: cimeter.Some(uint64(0))},
			{Kind: cimeter.PartBuildStep, Count: 3, Attribution: cimeter.AttributedClient, Confidence: cimeter.Likely}}
		r.Stages = []cimeter.Stage{{Name: "get_sources", Usage: usage(1)}, {Name: "step_script", Usage: usage(float64(i))}}
		r.Trace = &cimeter.Trace{StepSeconds: 1, CPUMillicores: []cimeter.Opt[int64]{cimeter.Some[int64](5), {}}}
		batch = append(batch, rows.Put{Record: r, ReceivedAt: r.EndedAt})
	}
	if n > 0 {
		if _, err := kept.Put(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	in := &intake{store: kept}
	o := httpapi.Options{Query: kept, Ingest: in, Now: now, Hooks: in, Cancel: in.cancel, Queue: work, Sections: new(sections), Version: httpapi.Version{Version: "test"},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Write([]byte("up 1\n"))
		}),
		Agents: func() []httpapi.Agent {
			running := []wire.Running{{Key: "gitlab/x/1", Project: "group/app", StartedAt: now(), CPUSeconds: cimeter.Some(1.5), MemoryBytes: cimeter.Some[uint64](7)}}
			return []httpapi.Agent{
				{Heartbeat: wire.Heartbeat{Agent: "a", Machine: "ci-1", IntervalSeconds: 5, Running: running, Spool: &wire.Spool{}, Host: host()}, SeenAt: now(),
					Now: &httpapi.HostRates{
						CPUCores: &httpapi.CoresByOwner{Builds: 1.5, Other: 0.25}, MemoryUsedBytes: cimeter.Some[uint64](5), IOBytesPerSecond: cimeter.Some(0.5),
						NetworkBytesPerSecond: cimeter.Some(0.0), Pressure: &httpapi.Pressure{CPU: cimeter.Some(0.5)}, AgentCPUCores: cimeter.Some(0.01),
					},
					Builds: []httpapi.BuildRates{{CPUCores: cimeter.Some(1.25), IOBytesPerSecond: cimeter.Some(3.0)}}},
				{Heartbeat: wire.Heartbeat{Agent: "b", Machine: "ci-2", IntervalSeconds: 5, Running: running}, SeenAt: now(), Away: true},
			}
		}}
	for _, f := range change {
		f(&o)
	}
	return httpapi.New(o), in
}

// host is a machine that tells everything.
func host() *wire.Host {
	return &wire.Host{
		OS: "Debian", Kernel: "6.1.0", Cgroup: "v2", Pool: "spot", BootedAt: now(), StartedAt: now(), ReadAt: now(),
		CPUCores: cimeter.Some(8.0), CPUSeconds: &wire.HostCPU{Builds: 1}, MemoryBytes: &wire.HostMemory{Total: 9, Available: cimeter.Some[uint64](4)},
		IOBytes: &cimeter.ReadWrite[uint64]{Read: 1}, NetworkBytes: &cimeter.ReceiveTransmit[uint64]{Receive: 1},
		PressureSeconds: &cimeter.PressureSeconds{CPUSome: cimeter.Some(0.5)}, Coverage: cimeter.Some(0.97), Containers: cimeter.Some[uint64](2),
		Agent: &wire.HostAgent{CPUSeconds: cimeter.Some(0.5), MemoryBytes: cimeter.Some[uint64](3)},
	}
}

func usage(cpu float64) cimeter.Usage {
	u := cimeter.Usage{WallSeconds: 60, MemoryBytes: &cimeter.MemoryStat{Peak: cimeter.Some[uint64](1 << 20)}, IOBytes: &cimeter.ReadWrite[uint64]{Read: 1, Write: 2},
		NetworkBytes: &cimeter.ReceiveTransmit[uint64]{Receive: 3, Transmit: 4}, OOMKills: cimeter.Some[uint64](0)}
	u.CPUSeconds.Total = cimeter.Some(cpu)
	return u
}

func keysOf(p page) (ks []string) {
	for _, r := range p.Builds {
		ks = append(ks, r.Number)
	}
	return ks
}

func TestQuery_builds(t *testing.T) {
	api, _ := newServer(t, 12)
	for target, want := range map[string]string{
		"/api/v1/builds?limit=3":                                  "0 1 2",
		"/api/v1/builds?sort=cpu&limit=2":                         "11 10",
		"/api/v1/builds?sort=cpu&order=asc&limit=2":               "0 1",
		"/api/v1/builds?result=failed&limit=3":                    "1 3 5",
		"/api/v1/builds?machine=ci-2":                             "2 5 8 11",
		"/api/v1/builds?runner=tok&limit=1":                       "0",
		"/api/v1/builds?runner=docker-1&limit=1":                  "0",
		"/api/v1/builds?stage=get_sources&limit=1":                "0",
		"/api/v1/builds?q=cpu%3E9s":                               "10 11",
		"/api/v1/builds?q=cpu%3E9s&machine=ci-2":                  "11",
		"/api/v1/builds?project=group":                            "",
		"/api/v1/builds?since=3m":                                 "0 1 2 3",
		"/api/v1/builds?since=2026-11-30T11:58:00Z&before=1m":     "2",
		"/api/v1/builds?verdict=oom&ref=main&name=test&limit=1":   "0",
		"/api/v1/builds?ci=gitlab&event=push":                     "",
		"/api/v1/builds?project=group%2Fapp%27%20OR%201%3D1%20--": "",
	} {
		if got := strings.Join(keysOf(decode(t, get(t, api, target))), " "); got != want {
			t.Errorf("%s: got %q: want %q", target, got, want)
		}
	}
	var all []string
	for next := ""; ; {
		p := decode(t, get(t, api, "/api/v1/builds?sort=cpu&limit=5&cursor="+next))
		all = append(all, keysOf(p)...)
		if next = p.Next; next == "" {
			break
		}
	}
	if got := strings.Join(all, " "); got != "11 10 9 8 7 6 5 4 3 2 1 0" {
		t.Errorf("pages hold %q: want each once, by CPU time", got)
	}
	if p := decode(t, get(t, api, "/api/v1/builds?limit=1")); p.Builds[0].Trace != nil {
		t.Error("a trace that was not asked for")
	}
	if p := decode(t, get(t, api, "/api/v1/builds?limit=1&trace=true")); p.Builds[0].Trace == nil {
		t.Error("no trace")
	}
}

func TestQuery_refusals(t *testing.T) {
	api, _ := newServer(t, 1)
	for target, parameter := range map[string]string{
		"/api/v1/builds?colour=red":                      "colour",
		"/api/v1/builds?limit=0":                         "limit",
		"/api/v1/builds?limit=501":                       "limit",
		"/api/v1/builds?sort=key%3B%20DROP":              "sort",
		"/api/v1/builds?order=up":                        "order",
		"/api/v1/builds?trace=1":                         "trace",
		"/api/v1/builds?q=cpu%3Emany":                    "q",
		"/api/v1/builds?since=yesterday":                 "since",
		"/api/v1/builds?since=%22":                       "since",
		"/api/v1/builds?since=1d%20result%3Afailed":      "since",
		"/api/v1/projects?from=2026-12-01&to=2026-11-01": "from",
		"/api/v1/projects?limit=1001":                    "limit",
		"/api/v1/stages?name=test":                       "name",
		"/api/v1/totals?bucket=90m":                      "bucket",
		"/api/v1/totals?from=2000-01-01&bucket=1h":       "bucket",
		"/api/v1/compare?a=x":                            "b",
		"/api/v1/names?kind=secret":                      "kind",
		"/api/v1/openapi.json?x=1":                       "x",
		"/api/v1/running?x=1":                            "x",
		"/api/v1/builds/gitlab/gitlab.example.com/0?x=1": "x",
		"/api/v1/builds?machine=a&machine=b":             "machine",
	} {
		w := get(t, api, target)
		if p := problemOf(t, w); p.Status != http.StatusBadRequest || p.Parameter != parameter || !strings.Contains(p.Detail, parameter) {
			t.Errorf("%s: %+v: want %s to be named", target, p, parameter)
		}
	}
	for target, want := range map[string]int{
		"/api/v1/builds?cursor=nonsense": http.StatusBadRequest,
		"/api/v1/builds/gitlab/none":     http.StatusNotFound,
		"/api/v1/traces/gitlab/none":     http.StatusNotFound,
		"/api/v1/compare?a=none&b=none":  http.StatusNotFound,
		"/api/v1/none":                   http.StatusNotFound,
		"/api/v1/records":                http.StatusMethodNotAllowed,
	} {
		if p := problemOf(t, get(t, api, target)); p.Status != want {
			t.Errorf("%s: %+v: want %d", target, p, want)
		}
	}
}

func TestQuery_totals(t *testing.T) {
	api, _ := newServer(t, 12)
	for target, want := range map[string]string{
		"/api/v1/projects?from=1d&to=2026-12-01":               `"project":"group/app","builds":12,"failed":6`,
		"/api/v1/machines?from=1d&limit=1":                     `"more":true`,
		"/api/v1/runners?from=1d":                              `"runner_name":"docker-1"`,
		"/api/v1/jobs?from=1d&to=2026-12-01&project=group/app": `"name":"test","builds":12`,
		"/api/v1/stages?from=7d&project=group/app&name=test":   `"stage":"get_sources","builds":12`,
		"/api/v1/totals?from=2026-11-29&to=2026-12-01":         `"bucket_seconds":86400`,
		"/api/v1/summary?q=cpu%3E9s":                           `"builds":2`,
		"/api/v1/names?kind=machine":                           `["ci-0","ci-1","ci-2"]`,
		"/api/v1/names?kind=machine&part=2":                    `["ci-2"]`,
		"/api/v1/traces/gitlab/gitlab.example.com/0":           `"cpu_millicores":[5,null]`,
		"/api/v1/agents":                                       `"away":true`,
	} {
		w := get(t, api, target)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s: want %s", target, w.Code, w.Body, want)
		}
	}
	if body := get(t, api, "/api/v1/running").Body.String(); strings.Count(body, `"key"`) != 1 || !strings.Contains(body, `"machine":"ci-1"`) {
		t.Errorf("%s: want what runs on the agent that is not away", body)
	}
}

func TestQuery_compare(t *testing.T) {
	api, _ := newServer(t, 3)
	w := get(t, api, "/api/v1/compare?a=gitlab/gitlab.example.com/1&b=gitlab/gitlab.example.com/2")
	var c struct {
		A, B    cimeter.Build
		Figures []struct {
			Name               string
			A, B, Delta, Ratio *float64
		}
		Stages []struct {
			Name string
			InA  bool `json:"in_a"`
			InB  bool `json:"in_b"`
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s %v", w.Code, w.Body, err)
	}
	if c.A.Number != "1" || c.B.Number != "2" || len(c.Stages) != 2 || !c.Stages[0].InA || !c.Stages[0].InB {
		t.Errorf("%+v", c)
	}
	i := slices.IndexFunc(c.Figures, func(f struct {
		Name               string
		A, B, Delta, Ratio *float64
	}) bool {
		return f.Name == "cpu_seconds.total"
	})
	if f := c.Figures[i]; *f.A != 1 || *f.B != 2 || *f.Delta != 1 || *f.Ratio != 2 {
		t.Errorf("%+v: want 1, 2, 1 more, twice as much", f)
	}
}

func TestQuery_etag(t *testing.T) {
	api, in := newServer(t, 2)
	for _, target := range []string{"/api/v1/builds", "/api/v1/builds/gitlab/gitlab.example.com/0", "/api/v1/openapi.json", "/api/v1/agents"} {
		first := get(t, api, target)
		tag := first.Header().Get("ETag")
		if first.Code != http.StatusOK || tag == "" {
			t.Fatalf("%s: %d, ETag %q", target, first.Code, tag)
		}
		for _, header := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			if w := get(t, api, target, "If-None-Match", header); w.Code != http.StatusNotModified || w.Body.Len() > 0 || w.Header().Get("ETag") != tag {
				t.Errorf("%s with %s: %d, %d bytes: want 304", target, header, w.Code, w.Body.Len())
			}
		}
		if w := get(t, api, target, "If-None-Match", `"other"`); w.Code != http.StatusOK {
			t.Errorf("%s: %d: want 200", target, w.Code)
		}
	}
	tag := get(t, api, "/api/v1/builds").Header().Get("ETag")
	if _, err := in.Put(t.Context(), "", []*cimeter.Record{build(5)}); err != nil {
		t.Fatal(err)
	}
	if w := get(t, api, "/api/v1/builds", "If-None-Match", tag); w.Code != http.StatusOK {
		t.Errorf("%d after a new build: want 200", w.Code)
	}
}

func post(t testing.TB, h http.Handler, path string, body []byte, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func batch(t testing.TB, records ...*cimeter.Record) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.Bytes()
}

// No query makes the store fail or an answer break (T22).
func FuzzServerQuery(f *testing.F) {
	for _, seed := range []string{
		"q=cpu%3E9s", "q=%27%20OR%201%3D1", "q=a*%20-b%20%22c%20d%22", "sort=cpu&order=asc&cursor=x", "project=%25&name=_", "since=1d&before=-1d",
		"machine=%00", "q=mem%3E90%25%20since%3A2026-01-01", "cursor=AAAA", "runner=%ff", "q=key:gitlab/*", "limit=500&trace=true",
	} {
		f.Add(seed)
	}
	api, _ := newServer(f, 20)
	f.Fuzz(func(t *testing.T, query string) {
		for _, path := range []string{"/api/v1/builds", "/api/v1/summary", "/api/v1/totals", "/api/v1/stages", "/api/v1/names", "/api/v1/compare"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			r.URL.RawQuery = query
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			switch w.Code {
			case http.StatusOK, http.StatusBadRequest, http.StatusNotFound:
			default:
				t.Errorf("%s?%s: %d %s", path, query, w.Code, w.Body)
			}
			if !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s?%s: %s: want JSON", path, query, w.Body)
			}
		}
	})
}
