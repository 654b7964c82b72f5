package discover_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/discover"
	"github.com/cimeter/cimeter/internal/discover/consul"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/testtools"
	"github.com/cimeter/cimeter/internal/wire"
)

// agentToken makes a token with the policy that docs/ephemeral-machines.md gives.
func agentToken(t *testing.T, c *testtools.ConsulAgent) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/ephemeral-machines.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```hcl\n")
	rules, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("docs/ephemeral-machines.md: want the policy in a block of hcl")
	}
	policy, err := json.Marshal(map[string]string{"Name": "cimeter", "Rules": rules})
	if err != nil {
		t.Fatal(err)
	}
	if b, ok := c.Ask(t, http.MethodPut, "/v1/acl/policy", string(policy)); !ok {
		t.Fatalf("policy: %s", b)
	}
	b, ok := c.Ask(t, http.MethodPut, "/v1/acl/token", `{"Policies":[{"Name":"cimeter"}]}`)
	var token struct{ SecretID string }
	if err := json.Unmarshal(b, &token); err != nil || !ok {
		t.Fatalf("token: %s", b)
	}
	return token.SecretID
}

// until waits for something that comes by itself; the test's own end bounds it.
func until(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > 3*time.Minute {
			t.Fatalf("%s: not within 3 minutes", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(began)
}

// machine runs an announcer of one simulated machine until stop.
func machine(t *testing.T, url, token, name string, ttl time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	a, err := announcer(url, token, name, ttl)
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() { a.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

func announcer(url, token, name string, ttl time.Duration) (*discover.Announcer, error) {
	client, err := consul.New(consul.Options{URL: url, Token: func() (string, error) { return token, nil }})
	if err != nil {
		return nil, err
	}
	return discover.NewAnnouncer(discover.AnnouncerOptions{
		Machine: name, Version: "0.2.0", Pool: "large", Runner: "docker-1", Own: wire.Target{Job: "cimeter", Address: "10.9.0.1:9808"},
		Neighbours: []discover.Neighbour{{Target: wire.Target{Job: "node_exporter", Address: "10.9.0.1:9100"}, Find: func(context.Context) (bool, error) { return true, nil }}},
		Registry:   client, Service: "cimeter", Tags: []string{"linux"}, TTL: ttl, DeregisterAfter: time.Minute, Tally: tally.New(tally.Options{Budget: 1000}),
	}, slog.New(slog.DiscardHandler)), nil
}

// Fifty machines come and go.
func TestConsul_fleet(t *testing.T) {
	t.Parallel()
	c := testtools.StartConsul(t)
	client, err := consul.New(consul.Options{URL: c.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if leader, err := client.Leader(t.Context()); err != nil || leader == "" {
		t.Errorf("leader %q, %v", leader, err)
	}
	token := agentToken(t, c)
	p := testtools.StartPrometheus(t, testtools.Path(t, testtools.Prometheus), fmt.Sprintf(`
scrape_configs:
  - job_name: cimeter
    scrape_interval: 1h
    scrape_timeout: 1s
    consul_sd_configs:
      - {server: '%s', authorization: {credentials: %s}, services: [cimeter, node-exporter], refresh_interval: 1s}
    relabel_configs:
      - {source_labels: [__meta_consul_service_metadata_machine], target_label: machine}
      - {source_labels: [__meta_consul_service_metadata_pool], target_label: pool}
      - {source_labels: [__meta_consul_service_metadata_job], target_label: job}
`, strings.TrimPrefix(c.URL, "http://"), c.Token))

	const fleet = 50
	stops := make([]func(), fleet)
	for i := range fleet {
		stops[i] = machine(t, c.URL, token, fmt.Sprintf("ci-%d", i), time.Minute)
	}
	took := until(t, "prometheus finds the fleet", func() bool { return len(p.Targets(t)) == 2*fleet })
	t.Logf("%d machines found after %s", fleet, took)
	found := map[string]bool{}
	for _, target := range p.Targets(t) {
		found[target.Labels["job"]+" "+target.Labels["machine"]] = true
		d := target.DiscoveredLabels
		if target.Labels["pool"] != "large" || d["__meta_consul_health"] != "passing" || !strings.Contains(d["__meta_consul_tags"], ",cimeter,") ||
			d["__meta_consul_service_metadata_runner"] != "docker-1" || d["__meta_consul_service_metadata_version"] != "0.2.0" {
			t.Fatalf("target %v of %v", target.Labels, d)
		}
		if want := map[string]string{"cimeter": "http://10.9.0.1:9808/metrics", "node_exporter": "http://10.9.0.1:9100/metrics"}[target.Labels["job"]]; target.ScrapeURL != want {
			t.Errorf("scraped at %s: want %s", target.ScrapeURL, want)
		}
	}
	if len(found) != 2*fleet {
		t.Errorf("%d different targets: want %d", len(found), 2*fleet)
	}

	for _, stop := range stops {
		stop()
	}
	if held := c.Services(t); len(held) != 0 {
		t.Errorf("consul still has %v after all have left", held)
	}
	took = until(t, "prometheus forgets the fleet", func() bool { found := p.Targets(t); return found != nil && len(found) == 0 })
	t.Logf("forgotten after %s", took)
}

// Consul restarts and knows nothing any more.
func TestConsul_restart(t *testing.T) {
	t.Parallel()
	c := testtools.StartConsul(t)
	stop := machine(t, c.URL, c.Token, "ci-stays", 3*time.Second)
	registered := func() bool { return len(c.Services(t)) == 2 }
	until(t, "registered", registered)
	c.Restart(t)
	took := until(t, "registered again after consul's restart", registered)
	t.Logf("registered again after %s", took)
	stop()
	if held := c.Services(t); held == nil || len(held) != 0 {
		t.Errorf("consul still has %v", held)
	}
}

func TestConsul_refusesWithoutRights(t *testing.T) {
	t.Parallel()
	c := testtools.StartConsul(t)
	client, err := consul.New(consul.Options{URL: c.URL})
	if err != nil {
		t.Fatal(err)
	}
	s := consul.Service{ID: "x", Name: "cimeter", Port: 1, TTL: time.Minute, DeregisterAfter: time.Minute}
	if err := client.Register(t.Context(), s); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("%v: want it refused without a token", err)
	}
	token := agentToken(t, c)
	with, err := consul.New(consul.Options{URL: c.URL, Token: func() (string, error) { return token, nil }})
	if err != nil {
		t.Fatal(err)
	}
	s.Name = "postgres"
	if err := with.Register(t.Context(), s); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("%v: want the policy of the document to let no other service be registered", err)
	}
	if err := with.Pass(t.Context(), "none"); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("%v: want it said that it is not known", err)
	}
	if err := with.Deregister(t.Context(), "none"); err != nil {
		t.Errorf("deregister what is not there: %v", err)
	}
}

// A machine that is gone without a word is forgotten: Consul's net is TTL and
// deregister_after, a minute at least, and its own look around. The test waits
// for it while others run.
func TestConsul_killed(t *testing.T) {
	t.Parallel()
	c := testtools.StartConsul(t)
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "DISCOVER_TEST_CONSUL="+c.URL, "DISCOVER_TEST_TOKEN="+c.Token)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := testtools.StartTied(cmd); err != nil {
		t.Fatal(err)
	}
	until(t, "registered", func() bool { return len(c.Services(t)) == 2 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	took := until(t, "the killed machine is forgotten", func() bool { held := c.Services(t); return held != nil && len(held) == 0 })
	t.Logf("forgotten after %s", took)
	if took < 30*time.Second {
		t.Errorf("forgotten after %s: it was not killed but left: %s", took, said.String())
	}
}

// TestMain is a registered machine where a test asks for one.
func TestMain(m *testing.M) {
	if url := os.Getenv("DISCOVER_TEST_CONSUL"); url != "" {
		a, err := announcer(url, os.Getenv("DISCOVER_TEST_TOKEN"), "ci-killed", 3*time.Second)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		a.Run(context.Background())
	}
	os.Exit(m.Run())
}
