package e2e_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// shellConfig is the agent's file for builds without containers.
func shellConfig(mode string) string {
	return "log:\n  level: debug\nagent:\n  interval: 1s\n  grace: 2s\n  quiet: 5s\n  processes: " + mode + "\n"
}

// jobNumber makes ids of jobs that no other test has on this machine.
func jobNumber(i int) int { return os.Getpid()*1000 + i }

// gitlabExports are the variables that the script of a stage exports.
func gitlabExports(job int) string {
	return fmt.Sprintf("export GITLAB_CI=true CI_JOB_ID=%d CI_JOB_NAME=unit CI_JOB_STAGE=test CI_PROJECT_PATH=acme/app "+
		"CI_JOB_URL=https://gitlab.example.com/acme/app/-/jobs/%d CI_RUNNER_SHORT_TOKEN=Zx8k2mQpL CI_JOB_TOKEN=glcbt-geheim\n", job, job)
}

func gitlabKey(job int) string { return fmt.Sprintf("gitlab/gitlab.example.com/%d", job) }

// joins is a line of a script that moves its shell into a cgroup.
func joins(t *testing.T, cgroup string) string {
	t.Helper()
	files, err := testdocker.CgroupProcs(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	return "for f in " + strings.Join(files, " ") + "; do echo $$ > $f; done\n"
}

// short is a line of a script that runs n processes of some milliseconds.
func short(n, turns int) string {
	return fmt.Sprintf("n=0; while [ $n -lt %d ]; do sh -c 'i=0; while [ $i -lt %d ]; do i=$((i+1)); done'; n=$((n+1)); done\n", n, turns)
}

// A hundred builds of short processes at once, in one service's cgroup for all
// that the meter knows; that each has a cgroup is only to know the truth.
func TestShell_manyShort(t *testing.T) {
	const builds, processes = 100, 40
	for _, tt := range []struct {
		mode string
		want float64 // share of the CPU time
	}{{"events", 0.98}, {"scan", 0.90}} {
		t.Run(tt.mode, func(t *testing.T) {
			b := newBare(t)
			var list []shellBuild
			for i := range builds {
				group := fmt.Sprintf("%s/build-%d", b.parent, i)
				if err := testdocker.MakeCgroup(group); err != nil {
					t.Fatal(err)
				}
				script := joins(t, group) + gitlabExports(jobNumber(i)) + short(processes, 4000+40*i)
				list = append(list, shellBuild{Shells: []shellRun{{Stdin: script}}})
			}
			r := startRunner(t, "gitlab-runner", list) // first: without events the agent looks for one at its start, and then each 30 s (TestInstall has it look)
			a := startAgent(t, b, shellConfig(tt.mode))
			a.eventually("the runner is seen", func() error { return atLeast(a, "cimeter_agent_process_runners", 1) })
			r.run()
			var truth, right, wrong float64
			var lowest = 1.0
			for i := range builds {
				used, err := testdocker.CgroupCPU(fmt.Sprintf("%s/build-%d", b.parent, i))
				if err != nil {
					t.Fatal(err)
				}
				rec := a.await(gitlabKey(jobNumber(i)))
				got := rec.Usage.CPUSeconds.Total.Value
				truth += used.Seconds()
				right += math.Min(got, used.Seconds())
				// Before it joined its cgroup the shell was started, which takes a moment.
				wrong += math.Max(0, got-used.Seconds()-0.01)
				lowest = math.Min(lowest, got/used.Seconds())
				if scanned := hasGap(&rec, cimeter.GapProcessesScanned); scanned != (tt.mode == "scan") {
					t.Errorf("%s: gaps %+v", rec.Key, rec.Gaps)
				}
			}
			t.Logf("%s: %.2f %% of %.1f s of CPU time on the right build, %.2f %% too much, the worst build has %.1f %%",
				tt.mode, 100*right/truth, truth, 100*wrong/truth, 100*lowest)
			if right/truth < tt.want {
				t.Errorf("%.2f %% of the CPU time is on the right build, want %.0f %%", 100*right/truth, 100*tt.want)
			}
			if wrong/truth > 0.01 {
				t.Errorf("%.2f %% of the CPU time is on a wrong build, or there twice", 100*wrong/truth)
			}
			logMetrics(a, "cimeter_agent_process")
		})
	}
}

// atLeast returns an error while a metric is below least.
func atLeast(a *agent, name string, least float64) error {
	b, err := a.get("/metrics")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		var v float64
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &v); err == nil && v >= least {
				return nil
			}
			return fmt.Errorf("%s", line)
		}
	}
	return fmt.Errorf("no %s", name)
}

// logMetrics logs the series whose names begin so.
func logMetrics(a *agent, prefix string) {
	b, err := a.get("/metrics")
	if err != nil {
		a.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, prefix) {
			a.t.Log(strings.TrimSpace(line))
		}
	}
}
