package prometheus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/tally"
)

// need returns the path of a program that a test cannot do without.
func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed: want Debian's package prometheus", program)
		}
		t.Skipf("%s is not installed: get it with apt-get install prometheus", program)
	}
	return path
}

// fullTable has a series of every metric.
func fullTable() *tally.Table {
	table := smallTable()
	for _, m := range catalog.Metrics() {
		switch values := make([]string, len(m.Labels)); {
		case m.Scope != catalog.Program || m.Kind == catalog.Info:
		case m.Kind == catalog.Histogram:
			table.Distribution(m.Name, values...).Observe(7, tally.Exemplar{})
		default:
			table.Value(m.Name, values...).Set(1.25)
		}
	}
	table.SetInfo(catalog.WorkerInfo, "w", "gitlab.example.com", "w", "docker-1", "s_a1b2", "18.5.0", "linux/amd64")
	s := table.Stage(tally.Labels{CI: "all"})
	var sample cimeter.Sample
	for c := range cimeter.NumCounters {
		s.Add(c, 1_000_000_007)
	}
	for g := range cimeter.NumGauges {
		sample.SetGauge(g, 4096)
	}
	s.Share().Set(&sample)
	return table
}

func TestPromtool(t *testing.T) {
	path := need(t, "promtool")
	text := encode(t, prometheus.New(fullTable()), prometheus.Text)
	for _, m := range catalog.Metrics() {
		if !bytes.Contains(text, []byte("# TYPE "+m.Name+" ")) {
			t.Errorf("%s: not in the text to check", m.Name)
		}
	}
	cmd := exec.CommandContext(t.Context(), path, "check", "metrics")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v: want no finding:\n%s", err, out)
	}
}

// A real Prometheus scrapes both formats and then holds what the tally holds,
// series by series, to the last digit; the format makes no difference to it.
func TestPrometheus(t *testing.T) {
	path := need(t, "prometheus")
	table := fullTable()
	for i, odd := range []string{
		`MacBook Pro 14" registry R/W`, "/has\nnewline", "\xff\xff\xff\xffC", "\\n", `\\"`, "\r", "\x00b", "\t", "# EOF", "é☃😀",
		"a\"} 1\nforged_total{x=\"y",
	} {
		s := table.Stage(tally.Labels{CI: "odd", Project: odd, Stage: odd + odd})
		s.Add(cimeter.CPUUser, uint64(i)*1_234_567_890_123+1)
	}
	e := prometheus.New(table)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/text" {
			r.Header.Set("Accept", "text/plain")
		} else if f, _ := prometheus.Negotiate(r.Header.Get("Accept")); f != prometheus.OpenMetrics {
			t.Errorf("Prometheus asks for %q: want OpenMetrics from it", r.Header.Get("Accept"))
		}
		e.ServeHTTP(w, r)
	}))
	t.Cleanup(target.Close)
	address := startPrometheus(t, path, target.Listener.Addr().String())
	// A target's series are stored in one step with its up.
	eventually(t, "both formats scraped", func() bool { return len(query(t, address, "up == 1")) == 2 })
	want := map[string]float64{}
	for name, f := range parse(t, encode(t, e, prometheus.Text)) {
		for _, m := range f.Metric {
			flatten(want, name, m)
		}
	}
	for _, job := range []string{"text", "openmetrics"} {
		got := query(t, address, `last_over_time({__name__=~"cimeter_.+",job="`+job+`"}[10m])`)
		for series, v := range want {
			if g, ok := got[series]; !ok || g != v {
				t.Errorf("%s: %s is %g (%t): want %g", job, series, g, ok, v)
			}
			delete(got, series)
		}
		for series := range got {
			t.Errorf("%s: %s is not in the tally", job, series)
		}
	}
}

// startPrometheus starts a Prometheus that scrapes /text and /openmetrics of the
// target, and returns its address. It ends with the test.
func startPrometheus(t *testing.T, path, target string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	config := "global: {scrape_interval: 1s}\nscrape_configs:\n"
	for _, job := range []string{"text", "openmetrics"} {
		config += fmt.Sprintf("  - {job_name: %s, metrics_path: /%[1]s, static_configs: [{targets: ['%s']}]}\n", job, target)
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Args = append(cmd.Args, flags...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus said:\n%s", &log)
		}
	})
	eventually(t, "prometheus ready on "+address, func() bool {
		res, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return address
}

// eventually waits until another process has come so far.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !done(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// query returns an instant vector as value by series.
func query(t *testing.T, address, expr string) map[string]float64 {
	t.Helper()
	res, err := http.Get("http://" + address + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Error != "" {
		t.Fatalf("query %s: %v %s", expr, err, answer.Error)
	}
	values := map[string]float64{}
	for _, r := range answer.Data.Result {
		name := r.Metric["__name__"]
		if name != "up" {
			delete(r.Metric, "job")
		}
		delete(r.Metric, "__name__")
		delete(r.Metric, "instance")
		v, err := strconv.ParseFloat(r.Value[1].(string), 64)
		if err != nil {
			t.Fatal(err)
		}
		values[seriesKey(name, r.Metric)] = v
	}
	return values
}

// flatten puts each series of m into values.
func flatten(values map[string]float64, name string, m *dto.Metric) {
	labels := labelsOf(m)
	switch {
	case m.Counter != nil:
		values[seriesKey(name, labels)] = m.Counter.GetValue()
	case m.Gauge != nil:
		values[seriesKey(name, labels)] = m.Gauge.GetValue()
	case m.Histogram != nil:
		values[seriesKey(name+"_sum", labels)] = m.Histogram.GetSampleSum()
		values[seriesKey(name+"_count", labels)] = float64(m.Histogram.GetSampleCount())
		for _, b := range m.Histogram.Bucket {
			le := strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)
			if !strings.ContainsAny(le, ".eI") {
				le += ".0"
			}
			labels["le"] = le
			values[seriesKey(name+"_bucket", labels)] = float64(b.GetCumulativeCount())
		}
	}
}

// seriesKey is a series as text; fmt prints maps in the order of their keys.
func seriesKey(name string, labels map[string]string) string {
	return fmt.Sprintf("%s%q", name, labels)
}
