package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/push"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
	"github.com/cimeter/cimeter/internal/testtools"
	"github.com/cimeter/cimeter/internal/wire"
)

// A real Prometheus finds 50 agents by the server's list and by its file, and
// forgets those that are not heard of any more.
func TestServer_fleetIsFound(t *testing.T) {
	dir := t.TempDir()
	tokens, file, conf := filepath.Join(dir, "tokens"), filepath.Join(dir, "fleet.json"), filepath.Join(dir, "server.yaml")
	pushing, reading := newToken(t, tokens, "push"), newToken(t, tokens, "read")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "discover: {file: %s}\n", file), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startDaemon(t, "server", "--config", conf, "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--tokens", tokens)
	prometheus := testtools.StartPrometheus(t, "prometheus", fmt.Sprintf(`
global: {scrape_interval: 1h, scrape_timeout: 1s}
scrape_configs:
  - job_name: by-http
    http_sd_configs: [{url: '%s/api/v1/sd/prometheus', refresh_interval: 1s, authorization: {credentials: %s}}]
    relabel_configs: [{source_labels: [__meta_cimeter_machine], target_label: machine}, {source_labels: [__meta_cimeter_pool], target_label: pool}]
  - job_name: by-file
    file_sd_configs: [{files: ['%s'], refresh_interval: 1s}]
    relabel_configs: [{source_labels: [__meta_cimeter_machine], target_label: machine}, {source_labels: [__meta_cimeter_pool], target_label: pool}]
`, p.base, reading, file))

	// Each beats until it is stopped.
	const fleet = 50
	var stops [fleet]func()
	for i := range fleet {
		way, err := push.NewSender(push.SenderOptions{URL: p.base, Agent: fmt.Sprint("agent-", i), Token: func() (string, error) { return pushing, nil }})
		if err != nil {
			t.Fatal(err)
		}
		beat := wire.Heartbeat{
			Agent: fmt.Sprint("agent-", i), Machine: fmt.Sprint("ci-", i), Version: "0.2.0", IntervalSeconds: 1, Running: []wire.Running{}, Host: &wire.Host{Pool: "large"},
			Scrape: &wire.Scrape{Targets: []wire.Target{{Job: "cimeter", Address: fmt.Sprintf(":%d", 20000+i)}}},
		}
		ctx, cancel := context.WithCancel(t.Context())
		var beats sync.WaitGroup
		beats.Go(func() {
			for tick := time.NewTicker(time.Second); ; {
				_ = way.Heartbeat(ctx, beat) // what does not arrive is seen by its absence
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
		stops[i] = sync.OnceFunc(func() { cancel(); beats.Wait(); way.Close() })
		t.Cleanup(stops[i])
	}
	count := func(job string) func() int {
		return func() int {
			n := 0
			for _, target := range prometheus.Targets(t) {
				if target.Labels["job"] == job {
					n++
				}
			}
			return n
		}
	}
	waitFor := func(what string, want int, got func() int) {
		t.Helper()
		began := time.Now()
		for got() != want {
			if time.Since(began) > time.Minute {
				t.Fatalf("%s: %d targets after a minute: want %d", what, got(), want)
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Logf("%s: %d targets after %s", what, want, time.Since(began).Round(100*time.Millisecond))
	}
	waitFor("found by HTTP", fleet, count("by-http"))
	waitFor("found by file", fleet, count("by-file"))
	for _, target := range prometheus.Targets(t) {
		var i int
		if _, err := fmt.Sscanf(target.Labels["machine"], "ci-%d", &i); err != nil || target.Labels["pool"] != "large" {
			t.Fatalf("target %v of %v", target.Labels, target.DiscoveredLabels)
		}
		if want := fmt.Sprintf("http://127.0.0.1:%d/metrics", 20000+i); target.ScrapeURL != want {
			t.Errorf("%s is scraped at %s: want %s", target.Labels["machine"], target.ScrapeURL, want)
		}
	}
	for _, stop := range stops[:20] {
		stop()
	}
	waitFor("20 are silent, by HTTP", fleet-20, count("by-http"))
	waitFor("20 are silent, by file", fleet-20, count("by-file"))
	way, err := push.NewSender(push.SenderOptions{URL: p.base, Agent: "agent-0", Token: func() (string, error) { return pushing, nil }})
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(finished(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := way.Records(t.Context(), [][]byte{line}); err != nil {
		t.Fatal(err)
	}
	// Prometheus keeps what it knows while the server is away; so does the file.
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatalf("%v\n%s", err, p.log.String())
	}
	b, err := os.ReadFile(file)
	var left []any
	if err := json.Unmarshal(b, &left); err != nil || len(left) == 0 {
		t.Errorf("%v: %s: want the list kept when the server ends", err, b)
	}
	if n := count("by-http")(); n != fleet-20 || err != nil {
		t.Errorf("%d targets, %v: want %d kept", n, err, fleet-20)
	}
	// Until the agents have had the time to be heard of, the list would be no
	// whole one: a server that begins again says so, and leaves the file.
	p = startDaemon(t, "server", "--config", conf, "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--tokens", tokens)
	p.get("/api/v1/sd/prometheus", reading, "has just begun")
	if again, err := os.ReadFile(file); err != nil || !bytes.Equal(b, again) {
		t.Errorf("%s, %v: want the list kept by a server that has just begun", again, err)
	}
}

func TestFleetSettled(t *testing.T) {
	kept, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "db"), Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	now := time.Now()
	clock := func() time.Time { return now }
	if settled, err := fleetSettled(t.Context(), kept, clock); err != nil || !settled() {
		t.Errorf("%v: a server without builds waits for nobody", err)
	}
	if _, err := kept.Put(t.Context(), []store.Put{{Record: finished(1), ReceivedAt: now}}); err != nil {
		t.Fatal(err)
	}
	settled, err := fleetSettled(t.Context(), kept, clock)
	if err != nil || settled() {
		t.Errorf("%v: settled at once", err)
	}
	if now = now.Add(settleTime); !settled() {
		t.Error("never settled")
	}
}
