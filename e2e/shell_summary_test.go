package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
)

// shellSocket is a place for the agent's socket, and the lines of its file.
func shellSocket(t *testing.T) (path, config string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cimeter-job-") // short: a unix address has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "job.sock")
	return path, "  socket:\n    path: " + path + "\n"
}

// asks is a line of a script that asks the agent and keeps what it says in a file.
func asks(t *testing.T, socket, file string) string {
	t.Helper()
	return fmt.Sprintf("%s summary --socket %s --timeout 30s --strict --json >%s 2>&1 || true\n", agentProgram(t), socket, file)
}

// Two builds of one runner, in one cgroup and of one user, ask at once: each is
// told of itself, whatever it says that it is by then. Processes of no build are
// told nothing, whatever their variables say; nor is the runner.
func TestShell_summary(t *testing.T) {
	for _, mode := range []string{"events", "scan"} {
		t.Run(mode, func(t *testing.T) {
			b := newBare(t)
			socket, config := shellSocket(t)
			dir := t.TempDir()
			file := func(name string) string { return filepath.Join(dir, name) }
			meet := func(own, other string) string {
				return fmt.Sprintf(": >%s; while [ ! -e %s ]; do sleep 0.05; done\n", file(own), file(other))
			}
			one, two := jobNumber(600), jobNumber(601)
			script := func(job int, name string, lines ...string) []shellRun {
				stage := gitlabExports(job) + short(10, 5000)
				return []shellRun{{Stdin: stage}, {Stdin: stage + strings.Join(lines, "")}, {Stdin: gitlabExports(job) + asks(t, socket, file(name+"-after"))}}
			}
			lie := ""
			if mode == "events" { // by looking, nothing may be known of it yet: then it is what it says (see TestAgent_Hold_Contested)
				lie = strings.NewReplacer(fmt.Sprint(two), fmt.Sprint(one)).Replace(gitlabExports(two))
			}
			list := []shellBuild{
				{Shells: script(one, "one", meet("one-there", "two-there"), asks(t, socket, file("one")), meet("one-asked", "two-asked"))},
				{Shells: script(two, "two", meet("two-there", "one-there"), lie, asks(t, socket, file("two")), meet("two-asked", "one-asked"))},
			}
			r := startRunner(t, "gitlab-runner", list)
			a := startAgent(t, b, shellConfig(mode)+config) // after the runner: it is looked for every 30 s
			a.eventually("the runner is seen", func() error { return atLeast(a, "cimeter_agent_process_runners", 1) })
			r.begin()
			a.eventually("both builds run", func() error {
				for _, name := range []string{"one-there", "two-there"} {
					if _, err := os.Stat(file(name)); err != nil {
						return err
					}
				}
				return nil
			})
			// A process that no runner started, with the variables of the first build.
			stranger := exec.Command("/bin/sh", "-c", gitlabExports(one)+"setsid "+asks(t, socket, file("stranger")))
			if out, err := stranger.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			r.expect("done")
			for name, job := range map[string]int{"one": one, "one-after": one, "two": two, "two-after": two} {
				told, err := os.ReadFile(file(name))
				if err != nil {
					t.Fatal(err)
				}
				got := decodeRecord(t, string(told))
				if got.Key != gitlabKey(job) || got.Number != fmt.Sprint(job) {
					t.Errorf("%s was told of %s: %s", name, got.Key, told)
				}
				stages := 2
				if strings.HasSuffix(name, "after") {
					stages = 3
				}
				if mode == "scan" { // a short one is not seen
					stages = min(stages, len(got.Stages))
				}
				if c := got.Usage.CPUSeconds.Total; !c.Known || c.Value <= 0 || len(got.Stages) != stages || stages == 0 {
					t.Errorf("%s was told of %v s of CPU time and %d stages, want %d: %s", name, c, len(got.Stages), stages, told)
				}
			}
			const nothing = "the agent knows no build of which this process is a part"
			if told, err := os.ReadFile(file("stranger")); err != nil || !strings.Contains(string(told), nothing) || strings.Contains(string(told), "{") {
				t.Errorf("a process of no build was told %q, %v", told, err)
			}
			for _, job := range []int{one, two} {
				rec := a.await(gitlabKey(job))
				if mode == "events" && len(rec.Stages) != 3 || hasGap(&rec, cimeter.GapProcessesScanned) != (mode == "scan") {
					t.Errorf("%s: %d stages, gaps %+v", rec.Key, len(rec.Stages), rec.Gaps)
				}
			}
			if n := a.metric("cimeter_agent_job_questions_total", `result="answered"`); n != 4 {
				t.Errorf("%v answers are counted, want 4", n)
			}
		})
	}
}
