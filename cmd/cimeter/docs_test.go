package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/config"
)

var update = flag.Bool("update-docs", false, "write what documents hold of the program anew")

// Every line of the sh blocks of these documents is run beside an agent.
func TestDocuments_commands(t *testing.T) {
	address := agentAddress(t)
	for _, name := range []string{"troubleshooting.md", "security.md"} {
		blocks := shBlock.FindAllSubmatch(document(t, name), -1)
		if len(blocks) == 0 {
			t.Errorf("%s: no sh block", name)
		}
		for _, b := range blocks {
			for line := range strings.SplitSeq(strings.TrimSpace(string(b[1])), "\n") {
				t.Run(line, func(t *testing.T) { shell(t, t.TempDir(), strings.ReplaceAll(line, "127.0.0.1:9808", address)) })
			}
		}
	}
}

// agentAddress starts an agent that goes with t and returns where it listens.
func agentAddress(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("cimeter") // this test binary, by TestMain
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(program, "agent", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	cmd.Env = append(os.Environ(), "CIMETER_DOCKER=unix://"+filepath.Join(dir, "none.sock"))
	return listens(t, cmd)
}

// listens starts a role until the test ends and returns where it listens.
func listens(t *testing.T, cmd *exec.Cmd) (address string) {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended: %v", err)
		}
	})
	s := bufio.NewScanner(stderr)
	for address == "" && s.Scan() {
		if m := listening.FindStringSubmatch(s.Text()); m != nil {
			address = m[1]
		}
	}
	if address == "" {
		t.Fatal("it does not say where it listens")
	}
	go func() { // it must be able to log
		for s.Scan() {
		}
	}()
	return address
}

var metricName = regexp.MustCompile(`\bcimeter_[a-z_]+[a-z]\b`)

// Documents name metrics that there are, and the one for trouble leaves out none
// of those by which an agent tells of it.
func TestDocuments_metrics(t *testing.T) {
	known := map[string]bool{}
	for _, m := range catalog.Metrics() {
		known[m.Name] = true
		if m.Kind == catalog.Histogram {
			known[m.Name+"_bucket"], known[m.Name+"_sum"], known[m.Name+"_count"] = true, true, true
		}
	}
	for _, name := range []string{"troubleshooting.md", "security.md", "comparison.md"} {
		for _, m := range metricName.FindAllString(string(document(t, name)), -1) {
			if !known[m] && !strings.HasPrefix(m, "cimeter_agent_\n") {
				t.Errorf("%s names %s, which there is none of", name, m)
			}
		}
	}
	text := string(document(t, "troubleshooting.md"))
	for name := range known {
		trouble := strings.Contains(name, "dropped") || strings.Contains(name, "gaps") || strings.Contains(name, "failures") ||
			strings.Contains(name, "overflow") || strings.Contains(name, "overrun") || strings.Contains(name, "folded") || strings.Contains(name, "disputed")
		if trouble && strings.HasPrefix(name, "cimeter_agent_") && !strings.Contains(text, name) {
			t.Errorf("troubleshooting.md does not say what to do about %s", name)
		}
	}
}

const variablesMark = "<!-- variables -->\n\n"

// The document on security lists all variables that are read out of containers
// and processes.
func TestDocuments_variables(t *testing.T) {
	who, err := newIdentifiers(config.Default().Agent, runnerJobs{})
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(who.variables, newProcesses(config.Default().Agent).Variables)
	slices.Sort(all)
	all = slices.Compact(all)
	want := variablesMark
	for i, v := range all {
		want += fmt.Sprintf("`%s`", v)
		switch {
		case i == len(all)-1:
			want += ".\n"
		case i%4 == 3:
			want += ",\n"
		default:
			want += ", "
		}
	}
	text := string(document(t, "security.md"))
	before, rest, ok := strings.Cut(text, variablesMark)
	if !ok {
		t.Fatalf("security.md has no %q", variablesMark)
	}
	if strings.HasPrefix(variablesMark+rest, want+"\n") {
		return
	}
	if !*update {
		t.Fatalf("security.md: want the list\n%s\n-update-docs writes it", want)
	}
	if i := strings.Index(rest, "You may add"); i >= 0 {
		rest = rest[i:]
	}
	if err := os.WriteFile("../../docs/security.md", []byte(before+want+"\n"+rest), 0o644); err != nil {
		t.Fatal(err)
	}
}

func document(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
