package testtools_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/testtools"
)

// A tool is built once, starts on ports of its own, answers, and is gone with
// Kill.
func TestStart(t *testing.T) {
	if a, b := testtools.Path(t, testtools.StatsdExporter), testtools.Path(t, testtools.StatsdExporter); a != b {
		t.Errorf("%s and %s: want one binary", a, b)
	}
	p := testtools.Start(t, testtools.StatsdExporter,
		"--web.listen-address=127.0.0.1:0", "--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp=")
	if n := len(p.Ports(t, "udp", 1)); n != 1 {
		t.Errorf("%d UDP ports, want 1", n)
	}
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", p.Ports(t, "tcp", 1)[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(b), "statsd_exporter_build_info") {
		t.Errorf("%v, %.200s: want a page of statsd_exporter", err, b)
	}
	p.Kill()
	<-p.Done()
}
