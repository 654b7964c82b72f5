package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/testdocker"
)

// An agent that is killed and comes back goes on with the processes of a build
// from what the kernel kept.
func TestShell_restart(t *testing.T) {
	b := newBare(t)
	group := b.parent + "/restart"
	if err := testdocker.MakeCgroup(group); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, b, shellConfig("events"))
	stop, job := filepath.Join(t.TempDir(), "stop"), jobNumber(900)
	script := joins(t, group) + gitlabExports(job) + "while [ ! -e " + stop + " ]; do " + strings.ReplaceAll(short(10, 5000), "\n", "; ") + " true; done\n"
	r := startRunner(t, "gitlab-runner", []shellBuild{{Shells: []shellRun{{Stdin: script}}}})
	r.begin()
	uses := func(seconds float64) {
		t.Helper()
		a.eventually(fmt.Sprintf("the build has used %v s", seconds), func() error {
			if spent, err := testdocker.CgroupCPU(group); err != nil || spent.Seconds() < seconds {
				return fmt.Errorf("it has used %v (%v)", spent, err)
			}
			return nil
		})
	}
	uses(0.3)
	a.eventually("the build is kept", func() error {
		files, err := filepath.Glob(filepath.Join(a.data, "*", "*"))
		for _, f := range files {
			if strings.HasPrefix(filepath.Base(f), ".") {
				continue // it is being written
			}
			if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), gitlabKey(job)) {
				return nil
			}
		}
		return fmt.Errorf("no file of it among %d (%v)", len(files), err)
	})
	uses(0.8)
	a.kill()
	a.start()
	uses(1.6)
	if err := os.WriteFile(stop, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.expect("done")
	rec := a.await(gitlabKey(job))
	used, err := testdocker.CgroupCPU(group)
	if err != nil {
		t.Fatal(err)
	}
	if got := rec.Usage.CPUSeconds.Total.Value / used.Seconds(); got < 0.95 || got > 1.03 {
		t.Errorf("%.1f %% of its CPU time is in the record, want all: %+v", 100*got, rec.Gaps)
	}
	checkMarked(t, &rec, cimeter.GapAgentRestart)
}
