package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/testtools"
)

// The outputs of the settings are fed while others are away or hang, and once
// more when the server ends: a real statsd_exporter has the last value then.
func TestOutputs_lastFlush(t *testing.T) {
	hanging, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Close() // nobody reads, and nothing more fits in
	fill, err := net.Dial("unixgram", hanging.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer fill.Close()
	for err == nil {
		fill.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		_, err = fill.Write([]byte("x:1|c"))
	}
	exporter := testtools.Start(t, testtools.StatsdExporter,
		"--web.listen-address=127.0.0.1:0", "--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp=", "--statsd.event-flush-interval=5ms")
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	// So long an interval that what arrives is of the last flush.
	text := fmt.Sprintf(`
listen: 127.0.0.1:0
data: %s
machine: m
outputs:
  statsd: {address: "127.0.0.1:%d", name: "x.${name}.${values}", interval: 10m}
  dogstatsd: {address: "unix://%s", interval: 1s}
`, dir, exporter.Ports(t, "udp", 1)[0], hanging.LocalAddr())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startDaemon(t, "server", "--config", file)
	for range 7 {
		page(t, s.base+"/healthz")
	}
	at := time.Now()
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Fatalf("%v:\n%s", err, s.log.String())
	}
	t.Logf("ended in %v", time.Since(at))
	metrics := fmt.Sprintf("http://127.0.0.1:%d/metrics", exporter.Ports(t, "tcp", 1)[0])
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got := page(t, metrics)
		if strings.Contains(got, "x_cimeter_server_requests_total__healthz_200_m 7\n") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no last value in\n%s\n%s", grep(got, "requests_total"), s.log.String())
		}
	}
}

// Every block of the documentation is a configuration that opens.
func TestOutputs_documentation(t *testing.T) {
	b, err := os.ReadFile("../../docs/outputs.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(b), -1)
	if len(blocks) < 2 {
		t.Fatalf("%d blocks of YAML", len(blocks))
	}
	for _, block := range blocks {
		conf, err := config.Parse("outputs.md", []byte(block[1]))
		if err != nil {
			t.Errorf("%v in\n%s", err, block[1])
			continue
		}
		targets, err := newOutputs(conf, &env{getenv: func(string) string { return "" }}, time.Now())
		if err != nil {
			t.Errorf("%v in\n%s", err, block[1])
		}
		for _, target := range targets {
			if target.Close != nil {
				target.Close()
			}
		}
	}
}

func page(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func grep(text, part string) string {
	var b bytes.Buffer
	for l := range strings.SplitSeq(text, "\n") {
		if strings.Contains(l, part) {
			b.WriteString(l + "\n")
		}
	}
	return b.String()
}
