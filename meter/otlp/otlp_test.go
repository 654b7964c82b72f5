package otlp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metricsservice "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/cimeter/cimeter/internal/testtools"
	"github.com/cimeter/cimeter/meter"
	"github.com/cimeter/cimeter/meter/otlp"
)

// What a CI server counts with the library is in the OpenTelemetry collector's own
// receiver with the values that were counted, under the conventions' names.
func TestNew_realReceiver(t *testing.T) {
	p := testtools.Start(t, testtools.OTLPReceiver, "127.0.0.1:0", "127.0.0.1:0")
	ports := p.Ports(t, "tcp", 2)
	m := meter.New(meter.Options{CI: "toy", Server: "s", Outputs: []meter.Output{otlp.New(otlp.Options{
		URL: fmt.Sprintf("http://127.0.0.1:%d", ports[0]), Interval: time.Hour, Resource: map[string]string{"deployment": "test"},
	})}})
	m.Queue().SetLength(3)
	m.Workers().Set(5, 2)
	b := m.Builds(meter.Labels{Project: "group/app"})
	b.Started()
	b.Started()
	b.Queued(2 * time.Second)
	b.Finished(meter.Failed, 40*time.Second)
	m.Counter("cache_hits", "Hits.").With("cache", "a").Add(1<<53 - 1)
	m.Gauge("disk_free", "Free.").Set(-0.1)
	m.Histogram("checkout_seconds", "Checkouts.", 1, 2).Observe(7.25)
	run(t, m)

	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", ports[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got, resource := read(t, page)
	if want := "deployment=test,service.instance.id=s,service.name=toy"; resource != want {
		t.Errorf("resource %s, want %s", resource, want)
	}
	for name, want := range map[string]string{
		"cicd.pipeline.run.active{cicd.pipeline.run.state=waiting,cimeter.server=s}":                                 "3",
		"cicd.worker.count{cicd.worker.state=busy,cimeter.server=s}":                                                 "2",
		"cicd.worker.count{cicd.worker.state=available,cimeter.server=s}":                                            "3",
		"cicd.pipeline.run.active{cicd.pipeline.name=group/app,cicd.pipeline.run.state=executing,cimeter.ci=toy}":    "1",
		"cimeter.builds{cicd.pipeline.name=group/app,cicd.pipeline.result=failure,cimeter.ci=toy,error.type=_OTHER}": "1",
		"cicd.pipeline.run.duration{cicd.pipeline.name=group/app,cicd.pipeline.run.state=pending,cimeter.ci=toy}":    "1 2 [0 1 0 0 0 0 0 0 0 0 0 0 0]",
		"cache_hits_total{cache=a}": "9.007199254740991e+15",
		"disk_free{}":               "-0.1",
		"checkout_seconds{}":        "1 7.25 [0 0 1]",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if t.Failed() {
		for _, name := range slices.Sorted(maps.Keys(got)) {
			t.Log(name, got[name])
		}
	}
}

// run sends once.
func run(t *testing.T, m *meter.Meter) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Run(ctx, nil); err != nil {
		t.Fatal(err)
	}
}

// read returns the values of a page of requests, and their resource.
func read(t *testing.T, page []byte) (values map[string]string, resource string) {
	t.Helper()
	values = map[string]string{}
	for line := range bytes.Lines(page) {
		var r metricsservice.ExportMetricsServiceRequest
		if err := protojson.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		for _, rm := range r.ResourceMetrics {
			resource = attributes(rm.Resource.Attributes)
			for _, m := range rm.ScopeMetrics[0].Metrics {
				for _, p := range append(m.GetSum().GetDataPoints(), m.GetGauge().GetDataPoints()...) {
					values[m.Name+"{"+attributes(p.Attributes)+"}"] = fmt.Sprint(p.GetAsDouble())
				}
				for _, p := range m.GetHistogram().GetDataPoints() {
					values[m.Name+"{"+attributes(p.Attributes)+"}"] = fmt.Sprint(p.Count, p.GetSum(), p.BucketCounts)
				}
			}
		}
	}
	return values, resource
}

func attributes(kvs []*common.KeyValue) string {
	var out []string
	for _, kv := range kvs {
		out = append(out, kv.Key+"="+kv.Value.GetStringValue())
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// An address that is none is told by Run, without what it may hold.
func TestNew_badAddress(t *testing.T) {
	m := meter.New(meter.Options{Outputs: []meter.Output{otlp.New(otlp.Options{URL: "http://user:hidden@h"})}})
	if err := m.Run(t.Context(), nil); err == nil || strings.Contains(err.Error(), "hidden") || !strings.HasPrefix(err.Error(), "output otlp: ") {
		t.Errorf("%v", err)
	}
}
