package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/jobsocket"
	"github.com/cimeter/cimeter/internal/tally"
)

// self is this process as the caller of a job socket.
type self struct{ record *cimeter.Record }

func (s self) Scope() string { return "c" }
func (s self) Same() bool    { return true }
func (s self) Close()        {}
func (s self) Account(context.Context) (*cimeter.Record, string, error) {
	return s.record, "step_script", nil
}

// jobOf serves a socket on which this process is told of a build, and sets the
// variables of no CI system.
func jobOf(t *testing.T, r *cimeter.Record) {
	t.Helper()
	dir, err := os.MkdirTemp("", "job-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := jobsocket.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := jobsocket.New(jobsocket.Options{
		Hold:  func(int) (jobsocket.Caller, error) { return self{r}, nil },
		Pages: "https://cimeter.example.com", Tally: tally.New(tally.Options{}),
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Setenv("CIMETER_SOCKET", path)
	for _, name := range []string{"GITLAB_CI", "CI_JOB_STATUS", "DRONE_STAGE_STATUS", "DRONE_BUILD_STATUS", "CI_PIPELINE_STATUS", "BUILDKITE_COMMAND_EXIT_STATUS",
		"GITHUB_STEP_SUMMARY", "DRONE_CARD_PATH", "LC_ALL", "LC_CTYPE", "LANG", "CIMETER_SUMMARY_FAILED"} {
		t.Setenv(name, "")
	}
}

// inJob runs cimeter summary in a job; the agent may take what time it needs.
func inJob(t *testing.T, args ...string) (out string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args = append([]string{"summary", "--timeout", "30s", "--strict"}, args...)
	if code := run(args, strings.NewReader(""), &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("%q: exit code %d: %s", args, code, stderr.String())
	}
	return stdout.String()
}

func TestSummaryInJob_Log(t *testing.T) {
	jobOf(t, finished(1))
	if out := inJob(t); !strings.HasPrefix(out, "cimeter: ") || strings.Contains(out, "\x1b") || !strings.HasSuffix(out, "https://cimeter.example.com/builds/"+finished(1).Key+"\n") {
		t.Errorf("got\n%s", out)
	}
	t.Setenv("GITLAB_CI", "true")
	t.Setenv("CI_JOB_STATUS", "success")
	if out := inJob(t); !strings.HasPrefix(out, "\x1b[0Ksection_start:") || !strings.HasSuffix(out, ":cimeter_summary\r\x1b[0K\n") {
		t.Errorf("in GitLab:\n%q", out)
	}
	t.Setenv("CI_JOB_STATUS", "failed")
	for _, c := range []struct{ how, start string }{{"never", ""}, {"short", "cimeter: "}, {"full", "\x1b[0Ksection_start:"}} {
		out := inJob(t, "--failed", c.how)
		if lines := strings.Count(out, "\n"); !strings.HasPrefix(out, c.start) || c.how == "never" && out != "" || c.how == "short" && lines != 1 || c.how == "full" && lines < 5 {
			t.Errorf("of a failed job, %s:\n%q", c.how, out)
		}
	}
	if out := inJob(t); out != "" {
		t.Errorf("of a failed job: %q, want nothing", out)
	}
	t.Setenv("CIMETER_SUMMARY_FAILED", "sometimes")
	if code := run([]string{"summary", "--timeout", "30s"}, nil, t.Output(), t.Output()); code != exitOK {
		t.Errorf("an unknown word in a variable: exit code %d", code)
	}
	if out := inJob(t, "--status", "success"); out == "" {
		t.Error("told of success: nothing")
	}
	if out := inJob(t, "--json", "--quiet"); out != "" {
		t.Errorf("quiet: %q", out)
	}
	var r cimeter.Record
	if err := json.Unmarshal([]byte(inJob(t, "--json")), &r); err != nil || r.Key != finished(1).Key { // asked for by name, it is printed
		t.Errorf("JSON: %+v, %v", r, err)
	}
}

func TestSummaryInJob_Reports(t *testing.T) {
	r := finished(1)
	r.Stages = []cimeter.Stage{{Name: "`::error::x`\n/merge"}, {Name: "::set-output name=a::b"}}
	jobOf(t, r)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	read := func(name string) string {
		b, err := os.ReadFile(at(name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	t.Setenv("GITHUB_STEP_SUMMARY", at("step.md"))
	if err := os.WriteFile(at("step.md"), []byte("before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CI_JOB_STATUS", "failed") // reports are written all the same
	if out := inJob(t, "--gitlab-metrics", at("metrics.txt"), "--gitlab-annotations", at("links.json"), "--github"); out != "" {
		t.Errorf("in the log: %q", out)
	}
	if s := read("metrics.txt"); !strings.HasPrefix(s, "cimeter_job_duration_seconds{job=") || !strings.HasSuffix(s, "# EOF\n") {
		t.Errorf("metrics: %s", s)
	}
	if s := read("links.json"); !strings.Contains(s, `"url":"https://cimeter.example.com/builds/`+r.Key+`"`) {
		t.Errorf("annotations: %s", s)
	}
	page := read("step.md")
	if !strings.HasPrefix(page, "before\n**cimeter** · ") || !strings.Contains(page, "\n[More of this build](<https://cimeter.example.com/builds/"+r.Key+">)\n") {
		t.Errorf("step summary: %s", page)
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "/") || strings.HasPrefix(line, "::") {
			t.Errorf("a line of the page is %q", line)
		}
	}

	// Drone: the card in the log, alone in its write, or in the file.
	card := inJob(t, "--quiet", "--drone-card")
	text, ok := strings.CutPrefix(card, "\x1b]1338;")
	b, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, "\x1b]0m\n"))
	if err != nil || !ok || !json.Valid(b) {
		t.Errorf("card %q: %v", card, err)
	}
	t.Setenv("DRONE_CARD_PATH", at("card.json"))
	if out := inJob(t, "--quiet", "--drone-card", "--drone-card-schema", "https://x/card.json"); out != "" || !strings.Contains(read("card.json"), `"schema":"https://x/card.json"`) {
		t.Errorf("card file: %q, %s", out, read("card.json"))
	}

	// Buildkite: printed, or by its agent.
	t.Setenv("PATH", dir)
	if out := inJob(t, "--quiet", "--buildkite"); !strings.HasPrefix(out, "**cimeter** · ") {
		t.Errorf("annotation: %s", out)
	}
	script := "#!/bin/sh\necho \"$@\" >" + at("args") + "\nwhile read -r l; do echo \"$l\"; done >" + at("note.md") + "\n"
	if err := os.WriteFile(at("buildkite-agent"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if out := inJob(t, "--quiet", "--buildkite"); out != "" || !strings.HasPrefix(read("args"), "annotate --style ") || !strings.HasPrefix(read("note.md"), "**cimeter** · ") {
		t.Errorf("%q; args %s; annotation %s", out, read("args"), read("note.md"))
	}
}

// Nothing that goes wrong fails a job or says a word in its log, unless that
// is asked for.
func TestSummaryInJob_NeverFails(t *testing.T) {
	jobOf(t, finished(1))
	gone := filepath.Join(t.TempDir(), "none")
	for name, args := range map[string][]string{
		"no agent":         {"--socket", gone},
		"no time":          {"--timeout", "1ns"},
		"no folder":        {"--quiet", "--gitlab-metrics", gone + "/metrics.txt", "--timeout", "30s"},
		"no step summary":  {"--quiet", "--github", "--timeout", "30s"},
		"not a step's log": {"--quiet", "--drone-card", "--timeout", "30s"},
	} {
		if name == "not a step's log" {
			t.Setenv("DRONE_CARD_PATH", gone+"/card")
		}
		for _, strict := range []bool{false, true} {
			all := append([]string{"summary"}, args...)
			want := exitOK
			if strict {
				all, want = append(all, "--strict"), exitFailure
			}
			var stdout, stderr bytes.Buffer
			if code := run(all, strings.NewReader(""), &stdout, &stderr); code != want || stdout.Len() > 0 || (stderr.Len() > 0) != strict {
				t.Errorf("%s, %q: exit code %d, %q, %q", name, all, code, stdout.String(), stderr.String())
			}
		}
	}
	var stderr bytes.Buffer
	if code := run([]string{"summary", "--github", "4242"}, strings.NewReader(""), &stderr, &stderr); code != exitUsage {
		t.Errorf("a report of another build: exit code %d, %s", code, stderr.String())
	}
}

func TestJobFailed(t *testing.T) {
	exit := func(name string, attempt, code int) cimeter.Stage {
		return cimeter.Stage{Name: name, Attempt: attempt, ExitCode: cimeter.Some(code)}
	}
	for name, c := range map[string]struct {
		status string
		env    map[string]string
		stages []cimeter.Stage
		want   bool
	}{
		"nothing told":           {"", nil, nil, false},
		"told":                   {"failure", nil, nil, true},
		"told otherwise":         {"success", map[string]string{"CI_JOB_STATUS": "failed"}, []cimeter.Stage{exit("step_script", 1, 1)}, false},
		"GitLab":                 {"", map[string]string{"CI_JOB_STATUS": "failed"}, nil, true},
		"GitLab, canceled":       {"", map[string]string{"CI_JOB_STATUS": "canceled"}, nil, true},
		"GitLab, running":        {"", map[string]string{"CI_JOB_STATUS": "running"}, nil, false},
		"Drone":                  {"", map[string]string{"DRONE_STAGE_STATUS": "failure", "DRONE_BUILD_STATUS": "success"}, nil, true},
		"Woodpecker":             {"", map[string]string{"CI_PIPELINE_STATUS": "failure"}, nil, true},
		"GitHub":                 {"Cancelled", nil, nil, true},
		"Buildkite":              {"", map[string]string{"BUILDKITE_COMMAND_EXIT_STATUS": "2"}, nil, true},
		"Buildkite, good":        {"", map[string]string{"BUILDKITE_COMMAND_EXIT_STATUS": "0"}, nil, false},
		"by exit code":           {"", nil, []cimeter.Stage{exit("get_sources", 1, 0), exit("step_script", 1, 1)}, true},
		"a later try was good":   {"", nil, []cimeter.Stage{exit("get_sources", 2, 0), exit("get_sources", 1, 1)}, false},
		"after_script's is none": {"", nil, []cimeter.Stage{exit("after_script", 1, 1)}, false},
		"nor a service's":        {"", nil, []cimeter.Stage{{Name: "db", Alongside: true, ExitCode: cimeter.Some(137)}}, false},
	} {
		if got := jobFailed(c.status, func(k string) string { return c.env[k] }, &cimeter.Record{Stages: c.stages}); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
