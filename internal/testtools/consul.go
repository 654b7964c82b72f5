package testtools

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ConsulAgent is a Consul that denies what no token allows.
type ConsulAgent struct {
	*Process
	URL   string
	Token string // that may do everything

	args []string
}

// StartConsul runs a Consul and waits until it takes requests.
func StartConsul(t testing.TB) *ConsulAgent {
	t.Helper()
	ports := freePorts(t, 3)
	c := &ConsulAgent{URL: "http://127.0.0.1:" + ports[0], Token: "8d1f0c66-0d2c-4b55-9f5e-3f3c1a9b7e01"}
	c.args = []string{
		"agent", "-dev", "-node", "t1", "-bind", "127.0.0.1", "-client", "127.0.0.1", "-http-port", ports[0], "-server-port", ports[1],
		"-serf-lan-port", ports[2], "-serf-wan-port", "-1", "-grpc-port", "-1", "-grpc-tls-port=-1", "-dns-port", "-1", "-log-level", "warn",
		"-hcl", `acl { enabled = true default_policy = "deny" tokens { initial_management = "` + c.Token + `" agent = "` + c.Token + `" } }`,
	}
	c.Restart(t)
	return c
}

// Restart runs it at the same address. It has forgotten everything.
func (c *ConsulAgent) Restart(t testing.TB) {
	t.Helper()
	if c.Process != nil {
		c.Kill()
	}
	c.Process = Start(t, Consul, c.args...)
	for end := time.Now().Add(time.Minute); ; {
		leader, ok := c.Ask(t, http.MethodGet, "/v1/status/leader", "")
		if _, knows := c.Ask(t, http.MethodGet, "/v1/agent/services", ""); ok && knows && len(leader) > len(`""`) {
			return
		}
		select {
		case <-c.Done():
			t.Fatalf("consul ended:\n%s", c.Output())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatalf("consul does not lead:\n%s", c.Output())
		}
	}
}

// Ask sends a request and returns the answer and whether it is a good one.
func (c *ConsulAgent) Ask(t testing.TB, method, path, body string) (answer []byte, ok bool) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Consul-Token", c.Token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, false
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return answer, err == nil && resp.StatusCode == http.StatusOK
}

// Services are the ids of what is registered.
func (c *ConsulAgent) Services(t testing.TB) map[string]any {
	t.Helper()
	b, ok := c.Ask(t, http.MethodGet, "/v1/agent/services", "")
	if !ok {
		return nil
	}
	held := map[string]any{}
	if err := json.Unmarshal(b, &held); err != nil {
		t.Fatalf("services of consul: %v: %.200s", err, b)
	}
	return held
}

// freePorts are ports that nobody listens at now, for programs that cannot be
// told port 0.
func freePorts(t testing.TB, n int) (ports []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // after the loop: all differ
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports
}

// PrometheusServer is a Prometheus that scrapes.
type PrometheusServer struct {
	*Process
	URL string
}

// StartPrometheus runs a Prometheus with that configuration: program is Path of
// the new one, or "prometheus" for the distribution's, which has no consul_sd.
func StartPrometheus(t testing.TB, program, config string) *PrometheusServer {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := Run(t, program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0", "--log.level=warn")
	return &PrometheusServer{p, fmt.Sprintf("http://127.0.0.1:%d", p.Ports(t, "tcp", 1)[0])}
}

// ScrapeTarget is a target as Prometheus tells it.
type ScrapeTarget struct {
	DiscoveredLabels map[string]string `json:"discoveredLabels"`
	Labels           map[string]string `json:"labels"`
	ScrapeURL        string            `json:"scrapeUrl"`
	Health           string            `json:"health"` // up, down, unknown
	LastError        string            `json:"lastError"`
}

// Targets are the targets that it scrapes now; nil when it does not answer.
func (p *PrometheusServer) Targets(t testing.TB) []ScrapeTarget {
	t.Helper()
	resp, err := http.Get(p.URL + "/api/v1/targets?state=active")
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var answer struct {
		Status string
		Data   struct{ ActiveTargets []ScrapeTarget }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Status != "success" {
		return nil
	}
	if answer.Data.ActiveTargets == nil {
		return []ScrapeTarget{}
	}
	return answer.Data.ActiveTargets
}
