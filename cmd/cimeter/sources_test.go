package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A source of the settings is served, beside our own metrics, and told of.
func TestSources(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE other_total counter\nother_total{id=\"7\",name=\"web\"} 3\nbad{ 1\n")
	}))
	defer other.Close()
	file := filepath.Join(t.TempDir(), "cimeter.yaml")
	text := fmt.Sprintf("sources:\n  - {name: other, url: %q, serve: true, drop_labels: id, rename_labels: {name: container}, interval: 1s}\n", other.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	checked, err := exec.Command("cimeter", "check", "--config", file).CombinedOutput()
	if err != nil || !strings.Contains(string(checked), "source other   ok: 1 series of 1 families, 1 left out\n") {
		t.Errorf("check: %v\n%s", err, checked)
	}
	p := startDaemon(t, "server", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--config", file)
	p.get("/metrics", "", `other_total{container="web",source="other"} 3`)
	p.get("/metrics", "", `cimeter_source_up{source="other"} 1`)
	p.get("/metrics", "", `cimeter_source_skipped_total{source="other",reason="syntax"}`)
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("%v:\n%s", err, p.log.String())
	}
}
