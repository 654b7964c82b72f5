package otlp_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metricsservice "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/testtools"
)

// The OpenTelemetry collector's own receiver takes every point and span, and has
// the values that were sent.
func TestOutput_realReceiver(t *testing.T) {
	p := testtools.Start(t, testtools.OTLPReceiver, "127.0.0.1:0", "127.0.0.1:0")
	ports := p.Ports(t, "tcp", 2)
	base, show := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])

	if says, err := output(t, base).Check(t.Context()); err != nil || says != "takes metrics" {
		t.Errorf("check metrics: %q, %v", says, err)
	}
	if says, err := traces(t, base).Check(t.Context()); err != nil || says != "takes traces" {
		t.Errorf("check traces: %q, %v", says, err)
	}
	if _, err := output(t, show).Check(t.Context()); err == nil { // where there is no v1/metrics
		t.Error("check of another program: want an error")
	}

	fake := newReceiver(t)
	families := append(series.NewWalker(table(), start).Families(), many(6000)...)
	var points int
	for _, to := range []string{base, fake.URL} {
		sent, err := output(t, to).Send(t.Context(), at, families)
		if err != nil || len(sent.Dropped) > 0 {
			t.Fatalf("%+v, %v", sent, err)
		}
		points = sent.Points
	}
	var requests []*metricsservice.ExportMetricsServiceRequest
	for line := range bytes.Lines(get(t, show+"/metrics")) {
		r := &metricsservice.ExportMetricsServiceRequest{}
		if err := protojson.Unmarshal(line, r); err != nil {
			t.Fatal(err)
		}
		requests = append(requests, r)
	}
	got, want := flatten(t, requests), flatten(t, fake.metrics)
	if len(got) != points || !maps.Equal(got, want) {
		t.Errorf("%d points arrived, want %d, or others than were sent", len(got), points)
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if got[k] != want[k] {
				t.Logf("%s is %q, want %q", k, got[k], want[k])
			}
		}
	}

	if err := traces(t, base).SendRecord(t.Context(), record()); err != nil {
		t.Fatal(err)
	}
	spans := string(get(t, show+"/traces"))
	for _, want := range []string{
		`"name":"RUN group/app","kind":2`, `"name":"unit","kind":1`, `"name":"get_sources"`, `"cicd.pipeline.task.run.result"`, `"cimeter.verdict.oom"`,
	} {
		if !strings.Contains(spans, want) {
			t.Errorf("traces have no %s:\n%s", want, spans)
		}
	}
	if n := strings.Count(spans, `"spanId"`); n != 5 {
		t.Errorf("%d spans, want 5", n)
	}
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	client := &http.Client{Timeout: time.Minute}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("get %s: %s %v %s", url, resp.Status, err, b)
	}
	return b
}

// ready waits until a program says that it is.
func ready(t *testing.T, url string) {
	t.Helper()
	client := &http.Client{Timeout: time.Minute}
	for end := time.Now().Add(time.Minute); ; {
		resp, err := client.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v: want 200 within a minute", url, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
