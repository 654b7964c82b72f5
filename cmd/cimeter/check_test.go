package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What is set up and cannot work is named with its reason, before anything is
// started; a secret's file is named, and the key in an address is not.
func TestCheck_ways(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := `
outputs:
  otlp: {url: "http://127.0.0.1:1/x?key=seeded"}
  remote_write: {url: "http://127.0.0.1:1/write", token_file: /nonexistent/token}
sources:
  - {name: a, url: "http://127.0.0.1:1/metrics?key=seeded"}
discover:
  file: /nonexistent/targets.json
  consul: {address: "http://127.0.0.1:1"}
server: {url: "http://127.0.0.1:1", token_file: /nonexistent/token}
store: {database_file: /nonexistent/database}
debug: {listen: "0.0.0.0:6060"}
access: {tokens_file: /nonexistent/tokens}
ci_servers:
  - {kind: github, url: "https://github.com", hook_secret_file: /nonexistent/hook, cancel_token_file: /nonexistent/cancel, token_file: /nonexistent/token, projects: [a/b]}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("cimeter", "check", "--config", file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for subject, want := range map[string]string{
		"output otlp":          "not there now: send no metrics: post to http://127.0.0.1:1/x: dial tcp 127.0.0.1:1: connect: connection refused",
		"output remote_write":  "not there now: send no samples: read secret: stat /nonexistent/token: no such file or directory",
		"source a":             "not read now: scrape: dial tcp 127.0.0.1:1: connect: connection refused",
		"consul":               "not there now: ask consul at 127.0.0.1:1 for its leader: ",
		"file of targets":      "cannot be written: stat /nonexistent: no such file or directory",
		"server":               "takes nothing now, records wait: send 0 records to http://127.0.0.1:1: read secret: stat /nonexistent/token: no such file or directory",
		"store":                "a server cannot start: store.database_file: read secret: stat /nonexistent/database: no such file or directory",
		"debug":                "cimeter cannot start: debug.listen: 0.0.0.0:6060 is not a loopback address: want debug.token_file",
		"tokens":               "a server cannot start: read tokens: stat /nonexistent/tokens: no such file or directory",
		"ci server github.com": "told nothing now: ",
	} {
		found := false
		for line := range strings.Lines(string(out)) {
			rest, ok := strings.CutPrefix(line, subject+" ")
			found = found || ok && strings.HasPrefix(strings.TrimLeft(rest, " "), want)
		}
		if !found {
			t.Errorf("%s: want %q in\n%s", subject, want, out)
		}
	}
	for _, want := range []string{"hook_secret_file: read secret: stat /nonexistent/hook", "cancel_token_file: read secret: stat /nonexistent/cancel"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "seeded") {
		t.Errorf("a key is told:\n%s", out)
	}
}

// A server is asked whether it would take records, and is sent none.
func TestCheck_server(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	pushing, reading := newToken(t, tokens, "push"), newToken(t, tokens, "read")
	p := startDaemon(t, "server", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--tokens", tokens)
	file := filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(file, []byte("server: {url: \""+p.base+"\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{
		pushing: "ok: takes records at " + p.base,
		reading: "403 Forbidden: want a token of the role push",
		"":      "401 Unauthorized: want a token of the role push",
	} {
		check := exec.Command("cimeter", "check", "--config", file)
		check.Env = append(os.Environ(), "CIMETER_SERVER_TOKEN="+token)
		out, err := check.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, %s\nwant %q", err, out, want)
		}
	}
	p.get("/metrics", reading, `cimeter_server_records_total{status="stored"} 0`)
}
