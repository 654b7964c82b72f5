package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter/internal/testdocker"
)

// hostileNames is what those who write builds may name things.
var hostileNames = []string{
	`MacBook Pro 14" registry R/W`, "/has\nnewline", `back\slash\`, "esc\x1b[31mred\x1b[0m", "cr\rover", "bell\a",
	"\u202eright to left", `=HYPERLINK("http://x")`, "<script>alert(1)</script>", "} 1\ncimeter_forged_total 7\n",
	"time=1 level=ERROR msg=forged\nlevel=ERROR", strings.Repeat("long ", 200), "nul\x00nul", "naïve ✓", "{{.}}", "%s%n",
}

// TestAgentHostileNames has builds name their repository and their steps in
// every bad way: the exposition stays one that parses, no series and no line
// of the log is forged, and no tool prints a control character.
func TestAgentHostileNames(t *testing.T) {
	b := newBare(t)
	a := startAgent(t, b, bareConfig())
	a.watchCounters()
	want := 0
	for i, name := range hostileNames {
		s := b.build(1 + i)
		s.Slug = name
		if err := s.step(name+strings.Repeat(" long", 4000), "cpu=0.01"); err != nil {
			t.Fatal(err)
		}
		s.remove()
		want++
	}
	var keys []string
	a.eventually("there are all records", func() (err error) {
		if keys, err = a.keys(); err == nil && len(keys) < want {
			err = fmt.Errorf("%d records of %d", len(keys), want)
		}
		return err
	})
	page, err := a.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		t.Fatalf("the exposition does not parse: %v", err)
	}
	if families["cimeter_forged_total"] != nil {
		t.Error("a name forged a series")
	}
	if f := families["cimeter_builds_total"]; f == nil || len(f.Metric) < want {
		t.Errorf("cimeter_builds_total %v, want one series at least for each of %d projects", f, want)
	}
	for line := range strings.Lines(a.log.String()) {
		if !strings.HasPrefix(line, "time=") {
			t.Errorf("a forged line in the log: %q", line)
		}
	}
	for _, line := range [][]string{{"builds"}, {"builds", "--format", "csv"}, {"summary"}, {"summary", "--markdown"}, {"summary", "--short"}, {"summary", "--logfmt"}} {
		each := []string{""}
		if line[0] == "summary" {
			each = keys
		}
		for _, key := range each {
			out := a.tool(slices.DeleteFunc(append(slices.Clone(line), key), func(s string) bool { return s == "" })...)
			for _, r := range out {
				if unicode.IsControl(r) && r != '\n' || r == '\u202e' {
					t.Errorf("%q of %q prints %q: %q", line, key, r, out)
					break
				}
			}
		}
	}
}

// tool runs a command of cimeter that asks the agent, and returns what it prints.
func (a *agent) tool(args ...string) string {
	a.t.Helper()
	args = append([]string{args[0], "--server", "http://" + a.address}, args[1:]...)
	cmd := a.m.Command(agentProgram(a.t), args...)
	cmd.Env = []string{"HOME=/nonexistent"}
	var errout bytes.Buffer
	cmd.Stderr = &errout
	out, err := cmd.Output()
	if err != nil {
		a.t.Errorf("cimeter %.200q: %v: %s", args, err, errout.Bytes())
	}
	return string(out) + errout.String()
}

// TestAgentHostileFiles lays what is no plain file where the agent keeps its
// records, and has a job with a command line of a megabyte and cgroups of its
// own with names as long as can be, many deep: nothing hangs or is lost.
func TestAgentHostileFiles(t *testing.T) {
	b := newPatientBare(t)
	a := newAgent(t, b, bareConfig())
	checkpoints := filepath.Join(a.data, "checkpoints")
	if err := os.MkdirAll(checkpoints, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		a.data + "/pipe.record", a.data + "/.tmp-pipe", checkpoints + "/pipe.checkpoint",
		fmt.Sprintf("%s/%032x.checkpoint", checkpoints, 1),
	} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/zero", checkpoints+"/"+strings.Repeat("0", 32)+".checkpoint"); err != nil {
		t.Fatal(err)
	}
	a.start()
	s := b.build(1)
	proceed := filepath.Join(t.TempDir(), "proceed")
	args := []string{"cpu=0.05", "sleep=1.5", "await=" + proceed}
	for range 10 { // one argument may have 128 KiB
		args = append(args, "sleep="+strings.Repeat("0", 100<<10))
	}
	c, err := s.begin("step", args...)
	if err != nil {
		t.Fatal(err)
	}
	path := c.cgroup
	for range 8 {
		path += "/" + strings.Repeat("n", 255)
		if err := testdocker.MakeCgroup(path); err != nil {
			t.Fatal(err)
		}
	}
	for ; path != c.cgroup; path = filepath.Dir(path) {
		if err := testdocker.DropCgroup(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(proceed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	s.remove()
	r := s.check(t, a, 1)
	checkComplete(t, &r)
}

// TestAgentSeriesBudget has more projects than the budget has room for: what
// is over it is added up under one name, and counted.
func TestAgentSeriesBudget(t *testing.T) {
	const budget, projects = 1000, 60
	b := newBare(t)
	a := startAgent(t, b, bareConfig("metrics:", fmt.Sprintf("  series_budget: %d", budget)))
	a.watchCounters()
	want := map[string]bool{}
	for i := range projects {
		s := b.build(1 + i)
		s.Slug = fmt.Sprintf("flood/%d", i)
		if err := s.step("only", "cpu=0.001"); err != nil {
			t.Fatal(err)
		}
		s.remove()
		want[s.Key()] = true
	}
	a.eventually("all builds are counted", func() error {
		if n := a.metric("cimeter_builds_total"); n != projects {
			return fmt.Errorf("%v builds are counted, want %d", n, projects)
		}
		return nil
	})
	page, err := a.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(page)) {
		if strings.Contains(line, `project="`) {
			n++
		}
	}
	t.Logf("%d series of builds, %v folded", n, a.metric("cimeter_agent_series_folded_total"))
	if n > budget {
		t.Errorf("%d series, want %d at most", n, budget)
	}
	if a.metric("cimeter_builds_total", `project="#other#"`) < 1 || a.metric("cimeter_agent_series_folded_total") < 1 {
		t.Error("nothing was folded")
	}
}

// TestAgentProcessNumbersReused runs builds where there are so few process
// numbers that each is used again within a second: no build has another's.
func TestAgentProcessNumbersReused(t *testing.T) {
	const inside = "CIMETER_TEST_FEW_PIDS"
	if os.Getenv(inside) == "" {
		require(t, "unshare")
		agentProgram(t) // made outside: building needs many processes
		burnProgram(t)
		dir, err := built.folder()
		if given := os.Getenv(binFolder); given != "" {
			dir = given
		}
		if err != nil {
			t.Fatal(err)
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", `echo 420 >/proc/sys/kernel/pid_max && exec "$@"`, "few",
			self, "-test.run", "^TestAgentProcessNumbersReused$", "-test.v", "-test.timeout", "3m")
		cmd.Env = append(os.Environ(), inside+"=1", binFolder+"="+dir)
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Errorf("inside: %v", err)
		}
		return
	}
	max, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil || strings.TrimSpace(string(max)) != "420" {
		t.Fatalf("pid_max is %s (%v): this kernel has one for all namespaces", max, err)
	}
	b := newBare(t)
	a := startAgent(t, b, bareConfig())
	c := b.churn(3, 1000, func(s *bareBuild) error {
		for i := range 10 {
			if err := s.step(fmt.Sprintf("step-%d", i), fmt.Sprintf("cpu=%.3f", 0.002*float64(1+s.Number%7)), "sleep=0.01"); err != nil {
				return err
			}
		}
		return nil
	})
	pids := map[int]bool{}
	again := 0
	for again < 200 {
		cmd := exec.Command("true")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if pid := cmd.ProcessState.Pid(); pids[pid] {
			again++
		} else {
			pids[pid] = true
		}
	}
	account := c.end(t)
	account.settle(t, a)
}
