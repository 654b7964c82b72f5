package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// socketFolder is where the agent's socket for jobs lies in containers.
const socketFolder = "/run/cimeter"

// summaryConfig is agentConfig with a socket for jobs in a folder that is made.
func summaryConfig(t *testing.T) (config, folder string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "cimeter-job-") // short: a unix address has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return agentConfig(nil) + "  socket:\n    path: " + filepath.Join(folder, "job.sock") + "\n    pages: https://cimeter.example.com\n", folder
}

// inJob plays two stages of a job as a runner does, with cimeter and the
// socket mounted into it, and returns what the script printed.
func (j *gitlabJob) inJob(t *testing.T, m *machine, sockets, script string) (string, error) {
	t.Helper()
	binds := []string{agentProgram(t) + ":/usr/local/bin/cimeter:ro", sockets + ":" + socketFolder + ":ro"}
	var out string
	for _, stage := range []struct{ suffix, typ, script string }{
		{"predefined", "predefined", j.script(gitlabStage{Name: "get_sources", Steps: []string{"cpu=0.1"}})},
		{"build", "build", script},
	} {
		spec := j.spec(m, stage.suffix, stage.typ)
		spec.Stdin, spec.Hostname, spec.Cmd, spec.Memory = true, j.unique(), []string{"sh"}, j.Memory
		spec.Binds = append(spec.Binds, binds...)
		id, err := m.Create(t.Context(), spec)
		if err != nil {
			return "", err
		}
		defer m.Remove(t.Context(), id)
		exit, err := m.Play(t.Context(), id, stage.script)
		if err != nil {
			return "", err
		}
		if out = exit.Output; exit.Code != 0 {
			return out, fmt.Errorf("stage %s of job %d: exit %d: %s", stage.suffix, j.ID, exit.Code, out)
		}
	}
	return out, nil
}

// ask is how a job asks in a test: there, time is not what is tested.
const ask = "cimeter summary --timeout 30s"

// TestDockerSummary has jobs ask for their summaries through the mounted
// socket, as a runner's post_build_script does: each is told of itself, with
// its numbers, whatever it says that it is; who is no job is told nothing.
func TestDockerSummary(t *testing.T) {
	m := newMachine(t)
	config, sockets := summaryConfig(t)
	a := startAgent(t, m, config)
	first := &gitlabJob{ID: 4301, Project: "group/app", Name: "first", Random: "1111111111111111", SystemID: "s_1", Memory: 256 << 20, Slot: 0}
	second := &gitlabJob{ID: 4302, Project: "other/secret", Name: "second", Random: "2222222222222222", SystemID: "s_1", Memory: 512 << 20, Slot: 1}

	var firstOut string
	firstDone := make(chan error, 1)
	go func() {
		var err error
		firstOut, err = first.inJob(t, m, sockets, fmt.Sprintf(`
export BURN_TRUTH=/truth BURN_NAME=%s
burn cpu=0.5 mem=33554432 && : >/truth/first-ready && i=0
until [ -e /truth/second-done ]; do sleep 0.1; i=$((i+1)); [ $i -lt 1200 ] || exit 9; done
%s --json --strict >/truth/first.json && %s --strict --gitlab-metrics /truth/metrics.txt --gitlab-annotations /truth/links.json`, first.truthName("step_script"), ask, ask))
		firstDone <- err
	}()
	if err := m.awaitFile(t.Context(), "first-ready"); err != nil {
		t.Fatal(err)
	}
	release := func() {
		if err := os.WriteFile(filepath.Join(m.truths, "second-done"), nil, 0o666); err != nil {
			t.Error(err)
		}
	}

	// A job that says it is the first one is told of itself.
	out, err := second.inJob(t, m, sockets, fmt.Sprintf(`
export CI_JOB_ID=%d CI_JOB_NAME=first CI_PROJECT_PATH=group/app CI_JOB_URL=%s
burn cpu=0.2 && %s --json --strict`, first.ID, first.URL(), ask))
	if err != nil {
		t.Error(err)
	}
	r := decodeRecord(t, out)
	if r.Key != second.Key() || r.Project != second.Project || r.Name != "second" || strings.Contains(out, "first") || strings.Contains(out, "4301") {
		t.Errorf("the second job was told of %s: %s", r.Key, out)
	}

	// Containers that are no jobs, or only claim to be one, are told nothing.
	for name, labels := range map[string]map[string]string{"stranger": nil, "forged": first.labels("build")} {
		spec := testdocker.Spec{
			Name: name, Labels: labels, Env: first.env(), Cmd: []string{"sh", "-c", "exec 2>&1; burn cpu=0.2; " + ask + " --strict; echo $?; " + ask + "; echo $?"},
			Binds: append(m.binds(), agentProgram(t)+":/usr/local/bin/cimeter:ro", sockets+":"+socketFolder+":ro"),
		}
		exit, err := m.Run(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		want := "cimeter: ask /run/cimeter/job.sock: the agent knows no build of which this process is a part: not found\n1\n0"
		if exit.Output != want {
			t.Errorf("a container %s was told:\n%s\nwant:\n%s", name, exit.Output, want)
		}
	}
	release()
	if err := <-firstDone; err != nil {
		t.Fatal(err)
	}

	// The first one's numbers, and what stands in its log.
	b, err := os.ReadFile(filepath.Join(m.truths, "first.json"))
	if err != nil {
		t.Fatal(err)
	}
	r = decodeRecord(t, string(b))
	if r.Key != first.Key() || r.Project != first.Project {
		t.Errorf("the first job was told of %s", r.Key)
	}
	script := stageOf(r, "step_script", 1)
	if script == nil || stageOf(r, "get_sources", 1) == nil {
		t.Fatalf("stages %q, want get_sources and step_script", stageNames(r))
	}
	truth := m.truth(t, first.truthName("step_script"))
	if got := script.Usage.CPUSeconds.Total; !got.Known || got.Value*1e9 < float64(truth.CPU) || got.Value > 30 {
		t.Errorf("step_script has %v CPU seconds so far, burn alone used %v ns", got, truth.CPU)
	}
	if r.Limits == nil || r.Limits.MemoryBytes.Value != uint64(first.Memory) {
		t.Errorf("limits %+v, want %d bytes of memory", r.Limits, first.Memory)
	}
	lines := strings.Split(firstOut, "\n")
	if len(lines) < 6 || !strings.HasPrefix(lines[0], "\x1b[0Ksection_start:") || !strings.Contains(lines[0], ":cimeter_summary[hide_duration=true,collapsed=true]\r\x1b[0Kcimeter: ") ||
		!strings.Contains(lines[0], "of 256 MiB") || !strings.Contains(firstOut, "\nstep_script ") || !strings.Contains(firstOut, "\nget_sources ") ||
		!strings.Contains(firstOut, "\nhttps://cimeter.example.com/builds/gitlab/gitlab.example.com/4301\n") || !strings.Contains(lines[len(lines)-1], ":cimeter_summary\r\x1b[0K") {
		t.Errorf("in the log:\n%q", firstOut)
	}
	t.Logf("in the log of the job:\n%s", firstOut)
	if b, err := os.ReadFile(filepath.Join(m.truths, "metrics.txt")); err != nil || !strings.Contains(string(b), "cimeter_job_cpu_seconds{job=\"first\"} ") {
		t.Errorf("metrics: %s: %v", b, err)
	}
	if b, err := os.ReadFile(filepath.Join(m.truths, "links.json")); err != nil || !strings.Contains(string(b), `"url":"https://cimeter.example.com/builds/gitlab/gitlab.example.com/4301"`) {
		t.Errorf("annotations: %s: %v", b, err)
	}

	// To be asked changed nothing of what is booked.
	done := a.await(first.Key())
	checkSum(t, &done)
	if !done.Complete {
		t.Errorf("the record is incomplete: %+v", done.Gaps)
	}
	if n := a.metric("cimeter_agent_job_questions_total", `result="answered"`); n < 3 {
		t.Errorf("%v answers are counted, want 3 at least", n)
	}
	if n := a.metric("cimeter_agent_job_questions_total", `result="unknown"`); n != 4 {
		t.Errorf("%v questions of others are counted, want 4", n)
	}
}

func decodeRecord(t *testing.T, doc string) *cimeter.Record {
	t.Helper()
	var r cimeter.Record
	if err := json.Unmarshal([]byte(doc), &r); err != nil {
		t.Fatalf("no record: %v: %s", err, doc)
	}
	return &r
}
