package otlp_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/testtools"
)

// A Prometheus that takes OTLP makes the names of docs/metrics.md again of those
// that are cimeter's own, and of the others what the conventions lead to.
func TestOutput_realPrometheus(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {scrape_interval: 1h}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := testtools.Start(t, testtools.Prometheus, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0", "--web.enable-otlp-receiver")
	base := fmt.Sprintf("http://127.0.0.1:%d", p.Ports(t, "tcp", 1)[0])
	ready(t, base+"/-/ready")
	now := time.Now()
	sent, err := output(t, base+"/api/v1/otlp").Send(t.Context(), now, series.NewWalker(table(), now.Add(-time.Minute)).Families())
	if err != nil || len(sent.Dropped) > 0 {
		t.Fatalf("%+v, %v", sent, err)
	}
	for query, want := range map[string]string{
		`container_cpu_time_seconds_total{cpu_mode="user",cimeter_stage="step_script",cicd_pipeline_name="group/app"}`: "12.345678901",
		`container_disk_io_bytes_total{disk_io_direction="write"}`:                                                     "9007199254740992",
		`container_network_io_bytes_total{network_io_direction="receive"}`:                                             "77",
		`container_memory_working_set_bytes`:                                                                           "67108864",
		`cicd_pipeline_run_active{cicd_pipeline_run_state="executing"}`:                                                "1",
		`cicd_pipeline_run_duration_seconds_sum{cicd_pipeline_result="success"}`:                                       "42.5",
		`cicd_pipeline_run_duration_seconds_count{cicd_pipeline_run_state="pending"}`:                                  "1",
		`cimeter_machine_cpu_seconds_total{cimeter_owner="builds"}`:                                                    "1234.5",
		`cimeter_agent_resident_memory_bytes`:                                                                          "20971520",
		`cimeter_agent_coverage_ratio`:                                                                                 "0.998",
		`cimeter_builds_total{cicd_pipeline_result="failure"}`:                                                         "1",
		`cimeter_stage_cpu_cores_count`:                                                                                "1",
		`cimeter_build_info`:                                                                                           "1",
	} {
		var answer struct {
			Data struct {
				Result []struct{ Value [2]any }
			}
		}
		at := fmt.Sprintf("%.3f", float64(now.UnixMilli())/1000)
		if err := json.Unmarshal(get(t, base+"/api/v1/query?"+url.Values{"query": {query}, "time": {at}}.Encode()), &answer); err != nil {
			t.Fatal(err)
		}
		if r := answer.Data.Result; len(r) != 1 || r[0].Value[1] != want {
			t.Errorf("%s is %v, want %s", query, r, want)
		}
	}
	if t.Failed() {
		t.Logf("names: %s", get(t, base+"/api/v1/label/__name__/values"))
	}
}
