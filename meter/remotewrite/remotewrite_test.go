package remotewrite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/testtools"
	"github.com/cimeter/cimeter/meter"
	"github.com/cimeter/cimeter/meter/remotewrite"
)

// What a CI server counts with the library is in a real VictoriaMetrics with the
// values that were counted.
func TestNew_realVictoriaMetrics(t *testing.T) {
	p := testtools.Start(t, testtools.VictoriaMetrics, "-storageDataPath=data", "-httpListenAddr=127.0.0.1:0", "-search.latencyOffset=0")
	base := fmt.Sprintf("http://127.0.0.1:%d", p.Ports(t, "tcp", 1)[0])
	m := meter.New(meter.Options{CI: "toy", Server: "s", Outputs: []meter.Output{remotewrite.New(remotewrite.Options{
		URL: base + "/api/v1/write", Interval: time.Hour, Labels: map[string]string{"deployment": "test"},
	})}})
	m.Queue().SetLength(3)
	m.Workers().Set(5, 2)
	b := m.Builds(meter.Labels{Project: "group/app"})
	b.Started()
	b.Started()
	b.Finished(meter.Failed, 40*time.Second)
	m.Counter("cache_hits", "Hits.").With("cache", "a").Add(1<<53 - 1)
	m.Gauge("disk_free", "Free.").Set(-0.1)
	m.Histogram("checkout_seconds", "Checkouts.", 1, 2).Observe(7.25)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Run(ctx, nil); err != nil {
		t.Fatal(err)
	}

	get(t, base+"/internal/force_flush")
	got := map[string]float64{}
	query := url.Values{
		"match[]": {`{job="toy",instance="s",deployment="test"}`}, "reduce_mem_usage": {"1"},
		"end": {fmt.Sprint(time.Now().Add(time.Hour).Unix())}, // without it, what is of this moment is left out
	}
	d := json.NewDecoder(strings.NewReader(get(t, base+"/api/v1/export?"+query.Encode())))
	for d.More() {
		var line struct {
			Metric map[string]string
			Values []*float64
		}
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		for _, v := range line.Values {
			if v != nil { // a stale marker is null; the sample after a counter's 0 is the last
				got[key(line.Metric)] = *v
			}
		}
	}
	for name, want := range map[string]float64{
		`cimeter_queue_builds{server=s,status=waiting}`:                              3,
		`cimeter_workers{server=s,state=busy}`:                                       2,
		`cimeter_workers{server=s,state=idle}`:                                       3,
		`cimeter_builds_running{ci=toy,project=group/app}`:                           1,
		`cimeter_builds_total{ci=toy,project=group/app,result=failed}`:               1,
		`cimeter_build_duration_seconds_sum{ci=toy,project=group/app,result=failed}`: 40,
		`cache_hits_total{cache=a}`:                                                  1<<53 - 1,
		`disk_free{}`:                                                                -0.1,
		`checkout_seconds_bucket{le=2}`:                                              0,
		`checkout_seconds_bucket{le=+Inf}`:                                           1,
		`checkout_seconds_sum{}`:                                                     7.25,
		`checkout_seconds_count{}`:                                                   1,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (there: %t), want %v", name, v, ok, want)
		}
	}
	if t.Failed() {
		for _, name := range slices.Sorted(maps.Keys(got)) {
			t.Log(name, got[name])
		}
	}
}

func key(labels map[string]string) string {
	var out []string
	for _, n := range slices.Sorted(maps.Keys(labels)) {
		if n != "__name__" && n != "job" && n != "instance" && n != "deployment" {
			out = append(out, n+"="+labels[n])
		}
	}
	return labels["__name__"] + "{" + strings.Join(out, ",") + "}"
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("get %s: %s %v %s", url, resp.Status, err, b)
	}
	return string(b)
}

// Requests carry who sends; a receiver that refuses them holds up nobody, and what
// it did not take is counted.
func TestNew_refused(t *testing.T) {
	var said http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said = r.Header
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer s.Close()
	m := meter.New(meter.Options{Outputs: []meter.Output{remotewrite.New(remotewrite.Options{
		URL: s.URL, Interval: time.Hour, Headers: map[string]string{"X-Scope-OrgID": "t"}, Secret: func() (string, error) { return "token", nil },
	})}})
	m.Counter("hits", "").Add(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Run(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if said.Get("X-Scope-OrgID") != "t" || said.Get("Authorization") != "Bearer token" {
		t.Errorf("headers %v", said)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if page := w.Body.String(); !strings.Contains(page, `cimeter_output_dropped_total{output="remote_write",reason="refused"}`) {
		t.Errorf("no drop is told:\n%s", page)
	}
}
