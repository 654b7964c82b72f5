package otlp_test

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metricsservice "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	traceservice "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/output/otlp"
	"github.com/cimeter/cimeter/internal/output/post"
	"github.com/cimeter/cimeter/internal/refusal"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

var (
	start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at    = start.Add(90 * time.Second)
)

// receiver keeps what it is sent, read by the OpenTelemetry project's own types.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	metrics []*metricsservice.ExportMetricsServiceRequest
	traces  []*traceservice.ExportTraceServiceRequest
	answer  http.HandlerFunc // instead of an empty message
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if got := req.Header.Get("Content-Type") + " " + req.Header.Get("Content-Encoding"); got != "application/x-protobuf gzip" || req.Method != http.MethodPost {
			t.Errorf("%s of %s", req.Method, got)
		}
		zip, err := gzip.NewReader(req.Body)
		if err != nil {
			t.Errorf("request is no gzip: %v", err)
			return
		}
		body, err := io.ReadAll(zip)
		if err != nil {
			t.Errorf("request is no gzip: %v", err)
		}
		switch req.URL.Path {
		case "/v1/metrics":
			m := &metricsservice.ExportMetricsServiceRequest{}
			if err := proto.Unmarshal(body, m); err != nil || len(m.ProtoReflect().GetUnknown()) > 0 {
				t.Errorf("request cannot be read: %v", err)
			}
			r.metrics = append(r.metrics, m)
		case "/v1/traces":
			m := &traceservice.ExportTraceServiceRequest{}
			if err := proto.Unmarshal(body, m); err != nil {
				t.Errorf("request cannot be read: %v", err)
			}
			r.traces = append(r.traces, m)
		default:
			t.Errorf("path %s", req.URL.Path)
		}
		if r.answer != nil {
			r.answer(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

func options(t *testing.T, url string) otlp.Options {
	t.Helper()
	to, err := post.New(post.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(to.Close)
	return otlp.Options{To: to, Version: "1.2.3", Resource: []series.Label{{Name: "service.name", Value: "cimeter"}, {Name: "host.name", Value: "ci-7"}}}
}

func output(t *testing.T, url string) *otlp.Output { return otlp.New(options(t, url)) }

func traces(t *testing.T, url string) *otlp.Traces { return otlp.NewTraces(options(t, url)) }

func table() *tally.Table {
	t := tally.New(tally.Options{})
	t.Info(catalog.BuildInfo, "1.0.0", "7e4d", "go1.26")
	s := t.Stage(tally.Labels{CI: "gitlab", Project: "group/app", Machine: "ci-7", Runner: "s_a1b2", Stage: "step_script"})
	s.Add(cimeter.CPUUser, 12_345_678_901)
	s.Add(cimeter.CPUSystem, 1_000_000_000)
	s.Add(cimeter.IOWriteBytes, 1<<53)
	s.Add(cimeter.NetworkReceiveBytes, 77)
	s.Add(cimeter.IOWriteOperations, 41)
	s.Add(cimeter.OOMKills, 1)
	var sample cimeter.Sample
	sample.SetGauge(cimeter.MemoryWorkingSet, 64<<20)
	sample.SetGauge(cimeter.MemoryAnon, 32<<20)
	sample.SetGauge(cimeter.MemorySwap, 0)
	s.Share().Set(&sample)
	s.Ended(5.8, cimeter.Some(uint64(100<<20)), cimeter.Some(0.4))
	b := t.Build(tally.BuildLabels{CI: "gitlab", Project: "group/app", Machine: "ci-7", Runner: "s_a1b2"})
	for range 4 {
		b.Started()
	}
	b.Ended("success", 42.5, cimeter.Some(0.25))
	b.Ended("failed", 2, cimeter.Opt[float64]{})
	b.Ended("", 3, cimeter.Opt[float64]{})
	t.Value(catalog.MachineCPU, "ci-7", "builds").Set(1234.5)
	t.Value(catalog.AgentMemory).Set(20 << 20)
	t.Value(catalog.AgentCoverage).Set(0.998)
	return t
}

func attributes(kvs []*common.KeyValue) string {
	var out []string
	for _, kv := range kvs {
		v := kv.Value.GetStringValue()
		switch kv.Value.Value.(type) {
		case *common.AnyValue_IntValue:
			v = fmt.Sprint(kv.Value.GetIntValue())
		case *common.AnyValue_DoubleValue:
			v = fmt.Sprint(kv.Value.GetDoubleValue())
		}
		out = append(out, kv.Key+"="+v)
	}
	slices.Sort(out)
	return "{" + strings.Join(out, ",") + "}"
}

// flatten returns every point by metric, unit, kind and attributes.
func flatten(t *testing.T, requests []*metricsservice.ExportMetricsServiceRequest) map[string]string {
	t.Helper()
	out := map[string]string{}
	put := func(key, value string, times ...uint64) {
		if _, ok := out[key]; ok {
			t.Errorf("%s is there twice", key)
		}
		if times[1] != uint64(at.UnixNano()) || times[0] != 0 && times[0] != uint64(start.UnixNano()) {
			t.Errorf("%s: from %d to %d", key, times[0], times[1])
		}
		if times[0] != 0 {
			value += " since start"
		}
		out[key] = value
	}
	for _, req := range requests {
		for _, rm := range req.ResourceMetrics {
			if got, want := attributes(rm.Resource.Attributes), "{host.name=ci-7,service.name=cimeter}"; got != want {
				t.Errorf("resource %s, want %s", got, want)
			}
			for _, sm := range rm.ScopeMetrics {
				if sm.Scope.Version != "1.2.3" || !strings.Contains(rm.SchemaUrl, "schemas/") {
					t.Errorf("scope %v, schema %s", sm.Scope, rm.SchemaUrl)
				}
				for _, m := range sm.Metrics {
					flattenMetric(m, put)
				}
			}
		}
	}
	return out
}

func flattenMetric(m *metrics.Metric, put func(string, string, ...uint64)) {
	name := m.Name + " " + m.Unit
	numbers := func(kind string, points []*metrics.NumberDataPoint) {
		for _, p := range points {
			put(name+" "+kind+" "+attributes(p.Attributes), fmt.Sprint(p.GetAsDouble()), p.StartTimeUnixNano, p.TimeUnixNano)
		}
	}
	switch d := m.Data.(type) {
	case *metrics.Metric_Gauge:
		numbers("gauge", d.Gauge.DataPoints)
	case *metrics.Metric_Sum:
		kind := "updown"
		if d.Sum.IsMonotonic {
			kind = "counter"
		}
		numbers(kind+" "+d.Sum.AggregationTemporality.String()[len("AGGREGATION_TEMPORALITY_"):], d.Sum.DataPoints)
	case *metrics.Metric_Histogram:
		for _, p := range d.Histogram.DataPoints {
			sum := uint64(0)
			for _, n := range p.BucketCounts {
				sum += n
			}
			put(fmt.Sprint(name, " histogram ", d.Histogram.AggregationTemporality.String()[len("AGGREGATION_TEMPORALITY_"):], " ", attributes(p.Attributes)),
				fmt.Sprint(p.Count == sum && len(p.BucketCounts) == len(p.ExplicitBounds)+1, " ", p.Count, " ", p.GetSum(), " ", p.BucketCounts), p.StartTimeUnixNano, p.TimeUnixNano)
		}
	case *metrics.Metric_Summary:
		for _, p := range d.Summary.DataPoints {
			put(name+" summary "+attributes(p.Attributes), fmt.Sprint(p.Count, " ", p.Sum, " ", len(p.QuantileValues), p.QuantileValues[0].Quantile, p.QuantileValues[0].Value), p.StartTimeUnixNano, p.TimeUnixNano)
		}
	}
}

// Names, units, kinds and attributes are what the semantic conventions say, and
// cimeter.* where they say nothing.
func TestOutput_Send_names(t *testing.T) {
	r := newReceiver(t)
	sent, err := output(t, r.URL).Send(t.Context(), at, series.NewWalker(table(), start).Families())
	if err != nil || len(sent.Dropped) > 0 {
		t.Fatalf("%+v, %v", sent, err)
	}
	got := flatten(t, r.metrics)
	if len(got) != sent.Points {
		t.Errorf("%d points arrived, %d were said to", len(got), sent.Points)
	}
	const (
		build = "cicd.pipeline.name=group/app"
		where = "cicd.worker.id=s_a1b2,cimeter.ci=gitlab"
		stage = where + ",cimeter.stage=step_script"
	)
	want := map[string]string{
		"cicd.pipeline.run.active {run} updown CUMULATIVE {" + build + ",cicd.pipeline.run.state=executing," + where + ",host.name=ci-7}":                                                 "1 since start",
		"cicd.pipeline.run.duration s histogram CUMULATIVE {" + build + ",cicd.pipeline.result=success,cicd.pipeline.run.state=executing," + where + ",host.name=ci-7}":                   "true 1 42.5 [0 0 0 0 1 0 0 0 0 0 0 0 0] since start",
		"cicd.pipeline.run.duration s histogram CUMULATIVE {" + build + ",cicd.pipeline.result=failure,cicd.pipeline.run.state=executing," + where + ",error.type=_OTHER,host.name=ci-7}": "true 1 2 [0 1 0 0 0 0 0 0 0 0 0 0 0] since start",
		"cicd.pipeline.run.duration s histogram CUMULATIVE {" + build + ",cicd.pipeline.run.state=executing," + where + ",host.name=ci-7}":                                                "true 1 3 [0 1 0 0 0 0 0 0 0 0 0 0 0] since start",
		"cicd.pipeline.run.duration s histogram CUMULATIVE {" + build + ",cicd.pipeline.run.state=pending," + where + ",host.name=ci-7}":                                                  "true 1 0.25 [1 0 0 0 0 0 0 0 0 0 0 0 0] since start",
		"container.cpu.time s counter CUMULATIVE {" + build + "," + stage + ",cpu.mode=user,host.name=ci-7}":                                                                              "12.345678901 since start",
		"container.memory.working_set By updown CUMULATIVE {" + build + "," + stage + ",host.name=ci-7}":                                                                                  "6.7108864e+07 since start",
		"container.memory.rss By updown CUMULATIVE {" + build + "," + stage + ",host.name=ci-7}":                                                                                          "3.3554432e+07 since start",
		"cimeter.stage.memory By updown CUMULATIVE {" + build + ",cicd.worker.id=s_a1b2,cimeter.ci=gitlab,cimeter.kind=swap,cimeter.stage=step_script,host.name=ci-7}":                    "0 since start",
		"container.disk.io By counter CUMULATIVE {" + build + "," + stage + ",disk.io.direction=write,host.name=ci-7}":                                                                    "9.007199254740992e+15 since start",
		"container.network.io By counter CUMULATIVE {" + build + "," + stage + ",host.name=ci-7,network.io.direction=receive}":                                                            "77 since start",
		"cimeter.stage.io_operations  counter CUMULATIVE {" + build + ",cicd.worker.id=s_a1b2,cimeter.ci=gitlab,cimeter.direction=write,cimeter.stage=step_script,host.name=ci-7}":        "41 since start",
		"cimeter.machine.cpu s counter CUMULATIVE {cimeter.owner=builds,host.name=ci-7}":                                                                                                  "1234.5 since start",
		"cimeter.agent.resident_memory By gauge {}": "2.097152e+07",
		"cimeter.agent.coverage 1 gauge {}":         "0.998",
		"cimeter.build.info  gauge {cimeter.goversion=go1.26,cimeter.revision=7e4d,cimeter.version=1.0.0}":             "1",
		"cimeter.stage.duration s histogram CUMULATIVE {" + build + "," + stage + ",host.name=ci-7}":                   "true 1 5.8 [0 0 1 0 0 0 0 0 0 0 0 0 0] since start",
		"cimeter.stage.cpu_cores {cpu} histogram CUMULATIVE {" + build + "," + stage + ",host.name=ci-7}":              "true 1 0.4 [0 0 1 0 0 0 0 0 0 0 0 0] since start",
		"cimeter.builds  counter CUMULATIVE {" + build + ",cicd.pipeline.result=success," + where + ",host.name=ci-7}": "1 since start",
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] != want[key] {
			t.Errorf("%s\n is %q\nwant %q", key, got[key], want[key])
		}
	}
	if t.Failed() {
		for _, key := range slices.Sorted(maps.Keys(got)) {
			t.Logf("%s %s", key, got[key])
		}
	}
}

// What another program says keeps its names, and what no protocol buffer can
// carry arrives mended.
func TestOutput_Send_foreign(t *testing.T) {
	r := newReceiver(t)
	families := []series.Family{
		{Name: "up", Kind: series.Unknown, Points: []series.Point{{Labels: []series.Label{{Name: "project", Value: "a\xffb\n\"c"}}, Value: math.Inf(1)}}},
		{Name: "go_gc_seconds", Kind: series.Summary, Unit: "seconds", Points: []series.Point{{Quantiles: &series.Quantile{Ranks: []float64{0.5}, Values: []float64{2}, Sum: 9, Count: 3}}}},
		{Name: "foo_bytes_total", Kind: series.Counter, Unit: "bytes", Points: []series.Point{{Value: 1, Start: at.Add(time.Hour)}}},
	}
	sent, err := output(t, r.URL).Send(t.Context(), at, families)
	if err != nil || sent.Points != 3 {
		t.Fatalf("%+v, %v", sent, err)
	}
	want := map[string]string{
		"up  gauge {project=a\uFFFDb\n\"c}":        "+Inf",
		"go_gc_seconds s summary {}":               "3 9 1 0.5 2",
		"foo_bytes_total By counter CUMULATIVE {}": "1", // a start after the point is none
	}
	if got := flatten(t, r.metrics); !maps.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

func many(n int) []series.Family {
	f := series.Family{Name: catalog.StageCPU, Kind: series.Counter, Unit: "seconds"}
	for i := range n {
		f.Points = append(f.Points, series.Point{Value: float64(i), Start: start, Labels: []series.Label{
			{Name: "ci", Value: "gitlab"}, {Name: "project", Value: fmt.Sprint("group/app-", i/10)}, {Name: "machine", Value: "ci-7"},
			{Name: "runner", Value: "s_a1b2c3d4"}, {Name: "stage", Value: fmt.Sprint("stage-", i%10)}, {Name: "mode", Value: "user"},
		}})
	}
	return []series.Family{f}
}

// A request is bounded; many of them say all, and the buffers do not stay.
func TestOutput_Send_manyRequests(t *testing.T) {
	r := newReceiver(t)
	o := output(t, r.URL)
	for round := range 2 {
		r.metrics = nil
		sent, err := o.Send(t.Context(), at, many(12345))
		if err != nil || sent.Points != 12345 {
			t.Fatalf("%+v, %v", sent, err)
		}
		if got := flatten(t, r.metrics); len(got) != 12345 || len(r.metrics) != 7 {
			t.Errorf("round %d: %d points in %d requests, want 12345 in 7", round, len(got), len(r.metrics))
		}
	}
}

// Only what the specification names is worth another try; what is not sent is
// counted when it will not be.
func TestOutput_Send_refused(t *testing.T) {
	for _, c := range []struct {
		status  int
		again   bool
		dropped string
	}{
		{status: 400, dropped: "[{refused 3}]"}, {status: 401, dropped: "[{refused 3}]"}, {status: 404, dropped: "[{refused 3}]"},
		{status: 413, dropped: "[{refused 3}]"}, {status: 500, dropped: "[{refused 3}]"}, {status: 501, dropped: "[{refused 3}]"},
		{status: 307, again: true, dropped: "[]"}, {status: 429, again: true, dropped: "[]"}, {status: 502, again: true, dropped: "[]"},
		{status: 503, again: true, dropped: "[]"}, {status: 504, again: true, dropped: "[]"},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			r := newReceiver(t)
			r.answer = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.Header().Set("Location", "http://192.0.2.1/")
				w.Header().Set("Content-Type", "text/plain")
				w.WriteHeader(c.status)
				io.WriteString(w, "no\x1b[31m today")
			}
			sent, err := output(t, r.URL).Send(t.Context(), at, many(3))
			if err == nil || errors.Is(err, cimeter.ErrUnavailable) != c.again || fmt.Sprint(sent.Dropped) != c.dropped || sent.Points != 0 {
				t.Errorf("%+v, %v", sent, err)
			}
			var asks interface{ RetryAfter() time.Duration }
			if c.again && (!errors.As(err, &asks) || asks.RetryAfter() != 7*time.Second) {
				t.Errorf("%v does not tell when to come back", err)
			}
			if strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%q would reach a terminal", err)
			}
		})
	}
}

func TestOutput_Send_partialSuccess(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"protobuf": func(w http.ResponseWriter, _ *http.Request) {
			b, _ := proto.Marshal(&metricsservice.ExportMetricsServiceResponse{PartialSuccess: &metricsservice.ExportMetricsPartialSuccess{RejectedDataPoints: 2, ErrorMessage: "too old"}})
			w.Header().Set("Content-Type", "application/x-protobuf")
			w.Write(b)
		},
		"JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"partialSuccess":{"rejectedDataPoints":"2","errorMessage":"too old"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t)
			r.answer = answer
			sent, err := output(t, r.URL).Send(t.Context(), at, many(3))
			if sent.Points != 1 || fmt.Sprint(sent.Dropped) != "[{rejected 2}]" || err == nil || !strings.Contains(err.Error(), "too old") || errors.Is(err, cimeter.ErrUnavailable) {
				t.Errorf("%+v, %v", sent, err)
			}
		})
	}
}

func record() *cimeter.Record {
	return &cimeter.Record{
		Build: cimeter.Build{
			Key: "gitlab/gitlab.example.com/4242", CI: "gitlab", Server: "gitlab.example.com", Project: "group/app", Number: "4242", Name: "unit",
			Pipeline: "991", PipelineStage: "test", Ref: "main", SHA: "7e4d", URL: "https://gitlab.example.com/group/app/-/jobs/4242", Machine: "ci-7",
			Runner: cimeter.Runner{ID: "s_a1b2", Name: "docker-1"},
		},
		QueuedAt: start, StartedAt: start.Add(2 * time.Second), EndedAt: start.Add(9 * time.Second), Result: "failed",
		Usage: cimeter.Usage{CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(2.5)}, OOMKills: cimeter.Some(uint64(1))},
		Stages: []cimeter.Stage{
			{Name: "get_sources", Attempt: 1, Boundary: cimeter.BoundaryContainer, StartedAt: start.Add(2 * time.Second), EndedAt: start.Add(3 * time.Second), ExitCode: cimeter.Some(0)},
			{Name: "step_script", Attempt: 1, StartedAt: start.Add(3 * time.Second), EndedAt: start.Add(9 * time.Second), ExitCode: cimeter.Some(137)},
			{Name: "step_script", Attempt: 1, StartedAt: start.Add(8 * time.Second), EndedAt: start.Add(7 * time.Second)},
		},
		Verdicts: []cimeter.Verdict{{Kind: "oom", Stage: "step_script", Evidence: "killed at 4.0 of 4.0 GiB"}},
	}
}

// A build is a pipeline run, in it a task run, in that its stages; sent again it
// is the same spans.
func TestOutput_SendRecord(t *testing.T) {
	r := newReceiver(t)
	for range 2 { // another process, say, after a crash
		if err := traces(t, r.URL).SendRecord(t.Context(), record()); err != nil {
			t.Fatal(err)
		}
	}
	if !proto.Equal(r.traces[0], r.traces[1]) {
		t.Error("the same record is another trace")
	}
	other := record()
	other.Key += "1"
	if err := traces(t, r.URL).SendRecord(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	spans := r.traces[0].ResourceSpans[0].ScopeSpans[0].Spans
	if len(spans) != 5 {
		t.Fatalf("%d spans, want 5", len(spans))
	}
	if string(spans[0].TraceId) == string(r.traces[2].ResourceSpans[0].ScopeSpans[0].Spans[0].TraceId) {
		t.Error("two builds are one trace")
	}
	seen := map[string]bool{}
	var got []string
	for _, s := range spans {
		if seen[string(s.SpanId)] || len(s.SpanId) != 8 || len(s.TraceId) != 16 || string(s.TraceId) != string(spans[0].TraceId) {
			t.Errorf("span %s of trace %x", hex.EncodeToString(s.SpanId), s.TraceId)
		}
		seen[string(s.SpanId)] = true
		parent := "-"
		for _, p := range spans {
			if string(p.SpanId) == string(s.ParentSpanId) {
				parent = p.Name
			}
		}
		got = append(got, fmt.Sprintf("%s in %s %v %v %v-%v %s", s.Name, parent, s.Kind, s.GetStatus().GetCode(),
			(int64(s.StartTimeUnixNano)-start.UnixNano())/1e9, (int64(s.EndTimeUnixNano)-start.UnixNano())/1e9, attributes(s.Attributes)))
	}
	const known = "cimeter.build=gitlab/gitlab.example.com/4242,cimeter.ci=gitlab"
	want := []string{
		"RUN group/app in - SPAN_KIND_SERVER STATUS_CODE_ERROR 0-9 {cicd.pipeline.action.name=RUN,cicd.pipeline.name=group/app,cicd.pipeline.result=failure,cicd.pipeline.run.id=991," + known +
			",error.type=_OTHER,server.address=gitlab.example.com,vcs.provider.name=gitlab,vcs.ref.head.name=main,vcs.ref.head.revision=7e4d}",
		"unit in RUN group/app SPAN_KIND_INTERNAL STATUS_CODE_ERROR 2-9 {cicd.pipeline.task.name=unit,cicd.pipeline.task.run.id=4242,cicd.pipeline.task.run.result=failure," +
			"cicd.pipeline.task.run.url.full=https://gitlab.example.com/group/app/-/jobs/4242,cicd.worker.id=s_a1b2,cicd.worker.name=docker-1," + known +
			",cimeter.cpu.time=2.5,cimeter.oom_kills=1,cimeter.pipeline_stage=test,error.type=_OTHER,host.name=ci-7,server.address=gitlab.example.com,vcs.provider.name=gitlab,vcs.ref.head.name=main,vcs.ref.head.revision=7e4d}",
		"get_sources in unit SPAN_KIND_INTERNAL STATUS_CODE_UNSET 2-3 {cimeter.attempt=1,cimeter.boundary=container,cimeter.stage=get_sources,process.exit.code=0}",
		"step_script in unit SPAN_KIND_INTERNAL STATUS_CODE_ERROR 3-9 {cimeter.attempt=1,cimeter.stage=step_script,process.exit.code=137}",
		"step_script in unit SPAN_KIND_INTERNAL STATUS_CODE_UNSET 8-8 {cimeter.attempt=1,cimeter.stage=step_script}",
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("span %d\n is %s\nwant %s", i, got[i], want[i])
		}
	}
	if e := spans[1].Events; len(e) != 1 || e[0].Name != "cimeter.verdict.oom" || !strings.Contains(attributes(e[0].Attributes), "killed at 4.0") {
		t.Errorf("events %v", e)
	}
}

func TestOutput_SendRecord_rejected(t *testing.T) {
	r := newReceiver(t)
	r.answer = func(w http.ResponseWriter, _ *http.Request) {
		b, _ := proto.Marshal(&traceservice.ExportTraceServiceResponse{PartialSuccess: &traceservice.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "no"}})
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.Write(b)
	}
	if err := traces(t, r.URL).SendRecord(t.Context(), record()); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("%v, want what no other try mends", err)
	}
}

// discard takes everything.
type discard struct{ n int }

func (d *discard) Post(_ context.Context, _ string, _ http.Header, body []byte) (http.Header, []byte, error) {
	d.n += len(body)
	return http.Header{}, nil, nil
}

// What a send of ten thousand points allocates does not depend on their number.
func TestOutput_Send_allocations(t *testing.T) {
	families := many(4000)
	o := otlp.New(otlp.Options{To: &discard{}})
	send := func() {
		if _, err := o.Send(t.Context(), at, families); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if n := testing.AllocsPerRun(5, send); n > 60 {
		t.Errorf("%v allocations for 4000 points, want at most 60", n)
	}
}

func BenchmarkOutput_Send10k(b *testing.B) {
	families := many(10000)
	to := &discard{}
	o := otlp.New(otlp.Options{To: to})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := o.Send(b.Context(), at, families); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(to.n)/float64(b.N), "sent-B/op")
}

// failing answers every request with an error.
type failing struct{ err error }

func (f failing) Post(context.Context, string, http.Header, []byte) (http.Header, []byte, error) {
	return nil, nil, f.err
}

func TestOutput_Send_keepsWhatTheReceiverSaid(t *testing.T) {
	_, err := otlp.New(otlp.Options{To: failing{refusal.New(503, "9", "", "busy")}}).Send(t.Context(), at, many(1))
	var r *refusal.Error
	if !errors.As(err, &r) || r.After != 9*time.Second {
		t.Errorf("%v: want the receiver's answer in it", err)
	}
}
