package e2e_test

import (
	"os/exec"
	"testing"
)

// straced is a command that runs the agent with faults in one of its system
// calls (strace(1), inject): strace detaches itself, so that the agent is the
// test's child all the same.
func straced(t *testing.T, call, fault string) []string {
	t.Helper()
	path, err := exec.LookPath("strace")
	if err != nil {
		unable(t, "strace is not installed (make test installs it)")
	}
	if out, err := exec.Command(path, "-D", "-f", "-qq", "-o", "/dev/null", "true").CombinedOutput(); err != nil {
		unable(t, "strace may not trace: %v: %s", err, out)
	}
	return []string{path, "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + call, "-e", "inject=" + call + ":" + fault}
}
