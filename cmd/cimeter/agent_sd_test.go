package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/discover/targets"
	"github.com/cimeter/cimeter/internal/testtools"
)

// An agent that knows no server lists itself and the node_exporter beside it in
// a file, and takes the file away at its end.
func TestAgent_listsItself(t *testing.T) {
	node := testtools.Start(t, testtools.NodeExporter, "--web.listen-address=127.0.0.1:0", "--collector.disable-defaults", "--collector.loadavg")
	port := node.Ports(t, "tcp", 1)[0]
	dir := t.TempDir()
	file, conf := filepath.Join(dir, "ci-7.json"), filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "machine: ci-7\npool: large\nagent: {docker: {enabled: false}}\ndiscover: {file: %s, node_exporter: '127.0.0.1:%d'}\n", file, port), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startDaemon(t, "agent", "--config", conf, "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	var groups []targets.Group
	for end := time.Now().Add(time.Minute); len(groups) != 2; time.Sleep(20 * time.Millisecond) {
		if b, err := os.ReadFile(file); err == nil {
			if err := json.Unmarshal(b, &groups); err != nil {
				t.Fatalf("%v: %s", err, b)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%v: want the agent and the node_exporter\n%s", groups, p.log.String())
		}
	}
	for i, want := range []string{strings.TrimPrefix(p.base, "http://"), fmt.Sprintf("127.0.0.1:%d", port)} {
		g := groups[i]
		if g.Targets[0] != want || g.Labels["__meta_cimeter_machine"] != "ci-7" || g.Labels["__meta_cimeter_pool"] != "large" ||
			g.Labels["__meta_cimeter_job"] != []string{"cimeter", "node_exporter"}[i] {
			t.Errorf("%v: want %s", g, want)
		}
	}
	p.get("/metrics", "", `cimeter_discovery_targets{registry="file"} 2`)
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("%v\n%s", err, p.log.String())
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v: want the file gone with the agent", err)
	}
}

func TestOwnTarget(t *testing.T) {
	for _, c := range []struct {
		conf config.Discover
		at   string
		want string
	}{
		{config.Discover{Scheme: "http"}, "[::]:9808", ":9808 "},
		{config.Discover{Scheme: "http"}, "0.0.0.0:9808", ":9808 "},
		{config.Discover{Scheme: "https"}, "10.0.0.7:9808", "10.0.0.7:9808 https"},
		{config.Discover{Scheme: "http"}, "[fd00::7]:9808", "[fd00::7]:9808 "},
		{config.Discover{Scheme: "http", Advertise: "ci-7.example.com:443"}, "127.0.0.1:9808", "ci-7.example.com:443 "},
	} {
		at, err := net.ResolveTCPAddr("tcp", c.at)
		if err != nil {
			t.Fatal(err)
		}
		own := ownTarget(c.conf, at)
		if got := own.Address + " " + own.Scheme; got != c.want || own.Job != "cimeter" {
			t.Errorf("%+v at %s: %q, want %q", c.conf, c.at, got, c.want)
		}
	}
}
