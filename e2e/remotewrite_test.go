package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A machine lives for one build and is scraped by nobody. What its counters said
// last is in a real Prometheus, every number of it: soon after the build's end,
// though the interval is ten minutes, and once it is gone.
func TestRemoteWrite_machineOfOneBuild(t *testing.T) {
	t.Parallel() // beside TestInGuest
	m := newMachine(t)
	receiver := startReceiver(t, m)
	a := startAgent(t, m, `
agent: {grace: 1s, processes: "off"} # other tests play runners on this machine
outputs:
  remote_write: {url: "http://`+receiver.address+`/api/v1/write", interval: 10m}
`)
	j := sampleJob(m, 1)
	if err := j.playOld(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	a.await(j.Key())
	a.eventually("the build is in the receiver", func() error {
		got, err := receiver.query(`cimeter_builds_total{result="success"} == 1 or cimeter_builds_total{result="unknown"} == 1`)
		if err == nil && len(got) != 1 {
			err = fmt.Errorf("%d series of builds: want 1", len(got))
		}
		return err
	})
	page, err := a.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	a.terminate()

	got, err := receiver.query(`last_over_time({job="cimeter"}[10m])`)
	if err != nil {
		t.Fatal(err)
	}
	want := numbers(t, page)
	if len(want) < 200 {
		t.Fatalf("%d series on the page: want those of a build's stages", len(want))
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: the receiver has %q, the page had %q", name, got[name], want[name])
		}
	}
	if rest, err := receiver.query(`{job="cimeter"}`); err != nil || len(rest) > 0 {
		t.Errorf("%d series of a machine that is gone have not ended: %v", len(rest), err)
	}
	// Everything rose from 0: the whole of the build's CPU time is a rise.
	rise, err := receiver.query(`sum(last_over_time(cimeter_stage_cpu_seconds_total[10m]) - min_over_time(cimeter_stage_cpu_seconds_total[10m])) == sum(last_over_time(cimeter_stage_cpu_seconds_total[10m])) > 0.5`)
	if err != nil || len(rise) != 1 {
		t.Errorf("rise of the CPU time %v, %v: want all of it", rise, err)
	}
}

// numbers are the series of stages and builds on a page, with their values.
func numbers(t *testing.T, page []byte) map[string]string {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(page)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, f := range families {
		if !strings.HasPrefix(name, "cimeter_stage_") && !strings.HasPrefix(name, "cimeter_build_") && name != "cimeter_builds_total" {
			continue
		}
		for _, s := range f.Metric {
			labels := map[string]string{}
			for _, l := range s.Label {
				labels[l.GetName()] = l.GetValue()
			}
			switch {
			case s.Histogram != nil:
				out[seriesName(name+"_sum", labels)] = number(s.Histogram.GetSampleSum())
				out[seriesName(name+"_count", labels)] = number(float64(s.Histogram.GetSampleCount()))
				for _, b := range s.Histogram.Bucket {
					labels["le"] = strings.Replace(number(b.GetUpperBound()), "Inf", "+Inf", 1)
					labels["le"] = strings.Replace(labels["le"], "++", "+", 1)
					out[seriesName(name+"_bucket", labels)] = number(float64(b.GetCumulativeCount()))
				}
			case s.Counter != nil:
				out[seriesName(name, labels)] = number(s.Counter.GetValue())
			default:
				out[seriesName(name, labels)] = number(s.Gauge.GetValue())
			}
		}
	}
	return out
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// seriesName leaves out what the output adds.
func seriesName(name string, labels map[string]string) string {
	for _, l := range slices.Sorted(maps.Keys(labels)) {
		if l != "__name__" && l != "job" && l != "instance" {
			name += fmt.Sprintf(",%s=%q", l, labels[l])
		}
	}
	return name
}

// prometheusServer is Debian's, in a machine's network.
type prometheusServer struct {
	address string
	get     func(path string) ([]byte, error)
}

func startReceiver(t *testing.T, m *machine) *prometheusServer {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {scrape_interval: 1h}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{}
	cmd := m.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0", "--web.enable-remote-write-receiver")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: want Debian's package prometheus (scripts/setup.sh installs it)", err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	a := newAgent(t, m, "") // for its way to wait and to ask
	p := &prometheusServer{get: a.get}
	listening := regexp.MustCompile(`Listening on".* address=(127\.0\.0\.1:\d+)`)
	a.eventually("Prometheus is ready", func() error {
		found := listening.FindStringSubmatch(log.String())
		if found == nil {
			return fmt.Errorf("it does not listen:\n%s", log)
		}
		p.address, a.address = found[1], found[1]
		_, err := a.get("/-/ready")
		return err
	})
	return p
}

// query returns the series that an expression gives now.
func (p *prometheusServer) query(expression string) (map[string]string, error) {
	b, err := p.get("/api/v1/query?" + url.Values{"query": {expression}}.Encode())
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, r := range answer.Data.Result {
		f, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			return nil, err
		}
		out[seriesName(r.Metric["__name__"], r.Metric)] = number(f)
	}
	return out, nil
}
