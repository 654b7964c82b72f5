package otlp_test

import (
	"bytes"
	"fmt"
	"testing"

	metricsservice "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	traceservice "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/output/otlp"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/testtools"
)

// In the collector's own receiver a histogram's exemplar has the ids of the trace
// and of the task run that the same build's record becomes, its value and time.
// Without traces it has none.
func TestOutput_Send_exemplars(t *testing.T) {
	p := testtools.Start(t, testtools.OTLPReceiver, "127.0.0.1:0", "127.0.0.1:0")
	ports := p.Ports(t, "tcp", 2)
	base, show := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	r := record()
	tb := tally.New(tally.Options{})
	of := tally.Exemplar{Build: r.Key, At: r.EndedAt}
	b := tb.Build(tally.BuildLabels{CI: "gitlab", Project: "group/app"})
	b.Started()
	b.EndedOf(of, "failed", 7, cimeter.Opt[float64]{})
	tb.Stage(tally.Labels{CI: "gitlab", Project: "group/app", Stage: "step_script"}).EndedOf(of, 6, cimeter.Opt[uint64]{}, cimeter.Some(0.5))
	w := series.NewWalker(tb, start)
	w.Exemplars()

	exemplars := func(traced bool) (found map[string]*metrics.Exemplar) {
		o := options(t, base)
		o.Traced = traced
		if sent, err := otlp.New(o).Send(t.Context(), at, w.Families()); err != nil || len(sent.Dropped) > 0 {
			t.Fatalf("%+v, %v", sent, err)
		}
		lines := bytes.Split(bytes.TrimSpace(get(t, show+"/metrics")), []byte("\n"))
		var req metricsservice.ExportMetricsServiceRequest
		if err := protojson.Unmarshal(lines[len(lines)-1], &req); err != nil {
			t.Fatal(err)
		}
		found = map[string]*metrics.Exemplar{}
		for _, m := range req.ResourceMetrics[0].ScopeMetrics[0].Metrics {
			for _, p := range m.GetHistogram().GetDataPoints() {
				for _, x := range p.Exemplars {
					found[m.Name] = x
				}
			}
		}
		return found
	}
	if got := exemplars(false); len(got) > 0 {
		t.Errorf("without traces there are exemplars: %v", got)
	}
	if err := traces(t, base).SendRecord(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	var req traceservice.ExportTraceServiceRequest
	if err := protojson.Unmarshal(bytes.TrimSpace(get(t, show+"/traces")), &req); err != nil {
		t.Fatal(err)
	}
	// Both pages write ids in hexadecimal, which protojson takes for base64: what is
	// equal stays equal.
	task := req.ResourceSpans[0].ScopeSpans[0].Spans[1]
	if task.Name != "unit" {
		t.Fatalf("the second span is %q, want the task run", task.Name)
	}
	got := exemplars(true)
	for name, value := range map[string]float64{"cicd.pipeline.run.duration": 7, "cimeter.stage.duration": 6, "cimeter.stage.cpu_cores": 0.5} {
		x := got[name]
		if !bytes.Equal(x.GetTraceId(), task.TraceId) || !bytes.Equal(x.GetSpanId(), task.SpanId) || x.GetAsDouble() != value ||
			x.GetTimeUnixNano() != uint64(r.EndedAt.UnixNano()) || attributes(x.GetFilteredAttributes()) != "{cimeter.build="+r.Key+"}" {
			t.Errorf("%s: exemplar %v, want %v in span %x of trace %x", name, x, value, task.SpanId, task.TraceId)
		}
	}
	if len(got) != 3 {
		t.Errorf("exemplars of %d metrics, want of 3: %v", len(got), got)
	}
}
