package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cimeter/cimeter/internal/config"
)

var anyBlock = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// asked is a command line of docs/summary.md that asks for a summary, in a
// file of any form or in a shell.
var asked = regexp.MustCompile(`(?m)(?:/opt/cimeter/)?cimeter summary[^"\n]*\|\| true`)

// Every block of docs/summary.md is what its reader takes it for, and every
// command line in it is run by a shell as in a job, where the agent answers and
// where there is none.
func TestSummaryDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/summary.md")
	if err != nil {
		t.Fatal(err)
	}
	jobOf(t, finished(1))
	program, err := exec.LookPath("cimeter") // this test binary, by TestMain
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, m := range anyBlock.FindAllSubmatch(text, -1) {
		kind, block := string(m[1]), string(m[2])
		seen[kind]++
		switch kind {
		case "yaml":
			var doc map[string]any
			if err := yaml.Unmarshal([]byte(block), &doc); err != nil {
				t.Errorf("%v in\n%s", err, block)
			}
			if strings.HasPrefix(block, "# /etc/cimeter/cimeter.yaml") {
				c, err := config.Parse("cimeter.yaml", []byte(block))
				if err != nil || c.Agent.Socket.Path != "/run/cimeter/job.sock" && len(c.CIServers) != 1 {
					t.Errorf("a file of cimeter: %v", err)
				}
			}
		case "env":
			for line := range strings.Lines(block) {
				if name, mounts, ok := strings.Cut(strings.TrimSpace(line), "="); !ok || !strings.HasSuffix(name, "_VOLUMES") || !strings.Contains(mounts, ":/run/cimeter") {
					t.Errorf("a setting: %q", line)
				}
			}
		case "sh":
			if out, err := exec.Command("sh", "-n", "-c", block).CombinedOutput(); err != nil {
				t.Errorf("%v: %s in\n%s", err, out, block)
			}
		}
		for _, line := range asked.FindAllString(block, -1) {
			seen["summary"]++
			for _, socket := range []string{os.Getenv("CIMETER_SOCKET"), "/nonexistent/job.sock"} {
				dir := t.TempDir()
				command := strings.NewReplacer("/opt/cimeter/cimeter summary", "cimeter summary --timeout 30s", "cimeter summary", "cimeter summary --timeout 30s", "${{ job.status }}", "success", " || true", "").Replace(line)
				cmd := exec.Command("sh", "-euc", command) // without || true: it does not fail
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "CIMETER_SOCKET="+socket, "GITHUB_STEP_SUMMARY="+filepath.Join(dir, "step.md"))
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%s: %v: %s", command, err, out)
				}
				answers := !strings.HasPrefix(socket, "/nonexistent")
				files, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				if !answers && len(out)+len(files) > 0 {
					t.Errorf("%s without an agent: %s, %v", command, out, files)
				}
				if answers && !bytes.Contains(out, []byte("cimeter")) {
					t.Errorf("%s with an agent printed %q", command, out)
				}
			}
		}
	}
	if seen["yaml"] != 6 || seen["toml"] != 1 || seen["env"] != 2 || seen["sh"] != 2 || seen["summary"] != 6 {
		t.Errorf("blocks %v: want 6 of yaml, 1 of toml, 2 of env, 2 of sh, 6 summaries", seen)
	}
	card, err := os.ReadFile("../../docs/drone-card.json")
	if err != nil || !json.Valid(card) {
		t.Errorf("the card's template: %v", err)
	}
	for _, name := range []string{"summary", "wrong", "usual", "url", "stages", "name", "time", "cpu", "memory"} {
		if !bytes.Contains(card, []byte("${"+name)) {
			t.Errorf("the card's template does not show %s", name)
		}
	}
}
