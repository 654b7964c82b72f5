package prometheus_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// messages decodes a page with the parser that Prometheus' own programs use.
func messages(t *testing.T, page []byte) map[string]*dto.MetricFamily {
	t.Helper()
	d := expfmt.NewDecoder(bytes.NewReader(page), expfmt.FmtProtoDelim)
	out := map[string]*dto.MetricFamily{}
	for {
		f := &dto.MetricFamily{}
		if err := d.Decode(f); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if out[f.GetName()] != nil {
			t.Errorf("%s is there twice", f.GetName())
		}
		out[f.GetName()] = f
	}
}

// withBuilds is a table whose histograms know the builds.
func withBuilds() *tally.Table {
	table := fullTable()
	of := tally.Exemplar{Build: "gitlab/gitlab.example.com/4242", At: time.Unix(1_700_000_000, 123e6)}
	b := table.Build(tally.BuildLabels{CI: "gitlab", Project: "group/app"})
	for _, seconds := range []float64{0, 0.001, 1, 5, 5.5, 90000, 1e9} {
		b.Started()
		b.EndedOf(of, "success", seconds, cimeter.Some(seconds/2))
	}
	table.Stage(tally.Labels{CI: "gitlab", Stage: "s"}).EndedOf(of, 42, cimeter.Some(uint64(1<<30)), cimeter.Some(1.5))
	return table
}

// The same numbers as in text, and the unit.
func TestProtobuf_saysWhatTextSays(t *testing.T) {
	more := func() []series.Family {
		return []series.Family{
			{Name: "other_total", Kind: series.Counter, Points: []series.Point{{Labels: []series.Label{{Name: "a", Value: "\xff"}}, Value: 7}}},
			{Name: "rpc", Kind: series.Summary, Points: []series.Point{{Quantiles: &series.Quantile{Ranks: []float64{0.5}, Values: []float64{2}, Sum: 3, Count: 1}}}},
			{Name: catalog.BuildsRunning, Kind: series.Gauge, Points: []series.Point{{Value: 1}}},
		}
	}
	e := prometheus.New(withBuilds(), more)
	got := messages(t, encode(t, e, prometheus.Protobuf))
	want := parse(t, encode(t, e, prometheus.Text))
	if len(got) != len(want) {
		t.Errorf("%d families: want %d", len(got), len(want))
	}
	for name, w := range want {
		g := got[name]
		if g.GetType() != w.GetType() || g.GetHelp() != w.GetHelp() {
			t.Errorf("%s is %v %q: want %v %q", name, g.GetType(), g.GetHelp(), w.GetType(), w.GetHelp())
			continue
		}
		if m, ok := catalog.Lookup(name); ok && g.GetUnit() != m.Unit {
			t.Errorf("%s: unit %q: want %q", name, g.GetUnit(), m.Unit)
		}
		a, b := map[string]float64{}, map[string]float64{}
		for _, m := range g.Metric {
			if h := m.Histogram; h != nil { // its last bucket is its count
				h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: new(math.Inf(1)), CumulativeCount: h.SampleCount})
			}
			flatten(a, name, m)
		}
		for _, m := range w.Metric {
			flatten(b, name, m)
		}
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%s:\n%v\nwant\n%v", name, a, b)
		}
	}
}

// A native histogram's buckets hold each observation where it belongs.
func TestProtobuf_native(t *testing.T) {
	f := messages(t, encode(t, prometheus.New(withBuilds()), prometheus.Protobuf))[catalog.BuildDuration]
	var h *dto.Histogram
	for _, m := range f.Metric {
		if l := labelsOf(m); l["result"] == "success" && l["project"] == "group/app" && l["machine"] == "" {
			h = m.Histogram
		}
	}
	if h.GetSchema() != 3 || h.GetZeroThreshold() != 1.0/64 || h.GetZeroCount() != 2 || len(h.PositiveSpan) != 1 || h.GetSampleCount() != 7 {
		t.Fatalf("%v", h)
	}
	at, n, held := h.PositiveSpan[0].GetOffset(), int64(0), map[float64]int64{}
	for _, d := range h.PositiveDelta {
		if n += d; n > 0 {
			held[math.Exp2(float64(at)/8)] = n
		}
		at++
	}
	// 1e9 is over the last bucket, which begins at 2^(23-1/8), and is counted there.
	want := map[float64]int64{1: 1, math.Exp2(19.0 / 8): 1, math.Exp2(20.0 / 8): 1, math.Exp2(132.0 / 8): 1, math.Exp2(23): 1}
	if fmt.Sprint(held) != fmt.Sprint(want) {
		t.Errorf("%v: want %v", held, want)
	}
	if len(h.Exemplars) != 1 || h.Exemplars[0].Label[0].GetValue() != "gitlab/gitlab.example.com/4242" || h.Exemplars[0].GetValue() != 1e9 ||
		!h.Exemplars[0].Timestamp.AsTime().Equal(time.Unix(1_700_000_000, 123e6)) {
		t.Errorf("exemplars %v", h.Exemplars)
	}
}

// OpenMetrics has the exemplar behind the bucket that it is in; text has none.
func TestExemplars(t *testing.T) {
	table := tally.New(tally.Options{})
	b := table.Build(tally.BuildLabels{CI: "x"})
	end := func(build string) {
		b.Started()
		b.EndedOf(tally.Exemplar{Build: build, At: time.Unix(1_700_000_000, 7e6)}, "failed", 42.5, cimeter.Opt[float64]{})
	}
	end(`a"b`)
	end(strings.Repeat("é", 124)) // with its name one too many: left out
	end("")
	e := prometheus.New(table)
	const want = `cimeter_build_duration_seconds_bucket{ci="x",result="failed",le="60.0"} 3 # {build="a\"b"} 42.5 1700000000.007` + "\n"
	om := string(encode(t, e, prometheus.OpenMetrics))
	if !strings.Contains(om, want) || strings.Count(om, " # {") != 1 {
		t.Errorf("want once %s in\n%s", want, om)
	}
	if text := string(encode(t, e, prometheus.Text)); strings.Contains(text, " # {") {
		t.Errorf("text has exemplars:\n%s", text)
	}
	end(strings.Repeat("é", 123))
	if om := string(encode(t, e, prometheus.OpenMetrics)); strings.Count(om, "é") != 123 {
		t.Errorf("no exemplar of 128 runes in\n%s", om)
	}
}

// A real Prometheus with native histograms on takes them and the exemplars.
func TestPrometheus_native(t *testing.T) {
	path := need(t, "prometheus")
	e := prometheus.New(withBuilds())
	asked := make(chan string, 100)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.Header.Get("Accept"):
		default:
		}
		e.ServeHTTP(w, r)
	}))
	t.Cleanup(target.Close)
	address := startPrometheus(t, path, target.Listener.Addr().String(), "--enable-feature=native-histograms,exemplar-storage")
	eventually(t, "scraped", func() bool { return len(query(t, address, "up == 1")) == 2 })
	if f, _ := prometheus.Negotiate(<-asked); f != prometheus.Protobuf {
		t.Error("it did not ask for protobuf")
	}
	for expr, want := range map[string]float64{
		`histogram_count(cimeter_build_duration_seconds{job="text",result="success",project="group/app",machine=""})`:                    7,
		`histogram_fraction(0.5, 1.1, cimeter_build_duration_seconds{job="text",result="success",project="group/app",machine=""}) > 0.1`: 1.0 / 7,
		`histogram_quantile(0.5, cimeter_stage_duration_seconds{job="text",ci="gitlab",stage="s",machine=""}) > 38 < 46`:                 0,
	} {
		got := query(t, address, expr)
		if len(got) != 1 {
			t.Errorf("%s: %v: want one", expr, got)
		}
		for _, v := range got {
			if want != 0 && math.Abs(v-want) > 0.05 {
				t.Errorf("%s is %g: want %g", expr, v, want)
			}
		}
	}
	res, err := http.Get("http://" + address + "/api/v1/query_exemplars?query=cimeter_stage_duration_seconds&start=1699999999&end=1700000001")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(body), `"build":"gitlab/gitlab.example.com/4242"`) {
		t.Errorf("exemplars: %v %s", err, body)
	}
}

// A scrape makes objects for a family and a histogram, none for other series.
func TestProtobuf_allocations(t *testing.T) {
	e := prometheus.New(largeTable(10_000))
	encode(t, e, prometheus.Protobuf)
	n := testing.AllocsPerRun(3, func() {
		if err := e.Encode(io.Discard, prometheus.Protobuf); err != nil {
			t.Fatal(err)
		}
	})
	if n > 2500 {
		t.Errorf("%v allocations for 10,000 series, want at most 2,500", n)
	}
}

func BenchmarkProtobuf10k(b *testing.B) {
	e := prometheus.New(largeTable(10_000))
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Encode(io.Discard, prometheus.Protobuf); err != nil {
			b.Fatal(err)
		}
	}
}
