package deploy_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// processesDropIn is the drop-in of docs/runners/gitlab-shell.md.
func processesDropIn(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile("(?s)```ini\n# /etc/systemd/system/cimeter-agent.service.d/processes.conf\n(.*?)```").FindStringSubmatch(readFile(t, "../docs/runners/gitlab-shell.md"))
	if m == nil {
		t.Fatal("docs/runners/gitlab-shell.md has no drop-in")
	}
	return m[1]
}

// With the rights that the drop-in adds, and no other, the agent meters a build
// that another user's processes are, by the kernel's events; little more is exposed.
func TestAgentUnitProcesses(t *testing.T) {
	r := role(t, "agent")
	r.Unit.Text += "\n" + processesDropIn(t)
	path := filepath.Join(t.TempDir(), r.Unit.Path)
	write(t, path, strings.Replace(r.Unit.Text, "ExecStart=/usr/bin/cimeter", "ExecStart=/bin/true", 1), 0o644)
	if out := output(t, exec.Command("systemd-analyze", "verify", path)); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	if got := exposed(t, path); got > exposure {
		t.Errorf("exposure %v: want at most %v", got, exposure)
	}

	c := newCell(t, agentUser, "")
	c.agent = "  processes: events\n  docker:\n    enabled: false\n"
	p := start(t, c, nil, r)
	p.confined(t, parseUnit(t, r.Unit.Text))

	const job = 4713
	key := fmt.Sprintf("gitlab/gitlab.example.com/%d", job)
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// It is called as GitLab Runner is, and gives a shell the stage's script.
	runner := filepath.Join(dir, "gitlab-runner")
	write(t, runner, "#!/bin/sh\nread -r go\nsh\n", 0o755)
	cmd := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", runner)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it has ended, unless the test failed
		_ = cmd.Wait()
	}()
	eventually(t, "the runner is seen", func() error {
		resp, err := p.client.Get("http://" + p.address + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !regexp.MustCompile(`(?m)^cimeter_agent_process_runners [1-9]`).Match(b) {
			return fmt.Errorf("%s, %v: no runner at /metrics", resp.Status, err)
		}
		return nil
	})
	fmt.Fprintf(stdin, "go\nexport GITLAB_CI=true CI_JOB_ID=%d CI_JOB_NAME=test CI_PROJECT_PATH=group/app CI_JOB_URL=https://gitlab.example.com/group/app/-/jobs/%[1]d\n"+
		"for n in 1 2 3; do sh -c 'i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done'; done\n", job)
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	var record struct {
		Project string
		Usage   struct {
			CPU struct{ Total float64 } `json:"cpu_seconds"`
		}
	}
	eventually(t, "the record of "+key, func() error { return p.getJSON("/api/v1/builds/"+key, &record) })
	if record.Project != "group/app" || record.Usage.CPU.Total <= 0.01 {
		t.Errorf("record %+v: want CPU time of group/app", record)
	}
	p.stop(t)
	p.allowed(t, parseUnit(t, r.Unit.Text))
}

// exposed is what systemd-analyze security finds in a unit, of 10.
func exposed(t *testing.T, path string) float64 {
	t.Helper()
	out := output(t, exec.Command("systemd-analyze", "--offline=true", "--no-pager", "security", path))
	m := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("systemd-analyze security tells no exposure:\n%s", out)
	}
	level, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("exposure %v", level)
	return level
}
