package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/wrap"
)

// runProgram runs cimeter run with args and returns how it ended and what it
// wrote to standard error.
func runProgram(t *testing.T, env []string, args ...string) (syscall.WaitStatus, string) {
	t.Helper()
	cmd := exec.Command("cimeter", append([]string{"run"}, args...)...) // this test binary, by TestMain
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, wrap.DirVariable+"=") || strings.HasPrefix(kv, "CI_")
	}), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// A shell that runs the tests in the background has had them ignore SIGQUIT,
	// which the command would inherit; what this process catches it does not.
	quits := make(chan os.Signal, 1)
	signal.Notify(quits, syscall.SIGQUIT)
	defer signal.Stop(quits)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus), stderr.String()
}

func runRecord(t *testing.T, path string) cimeter.Record {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r cimeter.Record
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRun_PassesTheStatusOn(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
		sig  syscall.Signal
	}{
		"0":                      {args: []string{"--", "true"}},
		"without --":             {args: []string{"sh", "-c", "exit 3"}, code: 3},
		"flags of the command":   {args: []string{"--stage", "x", "--", "sh", "-c", "test \"$1\" = --stage && exit 4", "sh", "--stage"}, code: 4},
		"-- of the command":      {args: []string{"--", "sh", "-c", "test \"$1\" = -- && exit 5", "sh", "--"}, code: 5},
		"not executable":         {args: []string{"--", "/etc/passwd"}, code: 126},
		"not found":              {args: []string{"--", "no-such-command-anywhere"}, code: 127},
		"a signal":               {args: []string{"--", "sh", "-c", "kill -TERM $$"}, sig: syscall.SIGTERM},
		"a signal Go traces":     {args: []string{"--", "sh", "-c", "ulimit -c 0; kill -QUIT $$"}, sig: syscall.SIGQUIT},
		"nothing to run":         {args: []string{"--"}, code: 2},
		"outputs that cannot be": {args: []string{"--json", "/no/such/r.json", "--summary", "/no/such/s", "--", "sh", "-c", "exit 6"}, code: 6},
	} {
		t.Run(name, func(t *testing.T) {
			st, stderr := runProgram(t, nil, c.args...)
			if c.sig != 0 && (!st.Signaled() || st.Signal() != c.sig) || c.sig == 0 && (!st.Exited() || st.ExitStatus() != c.code) {
				t.Errorf("wait status %#x, want exit %d, signal %d: %s", uint32(st), c.code, c.sig, stderr)
			}
			if name == "outputs that cannot be" && strings.Count(stderr, "\n") != 1 {
				t.Errorf("stderr %q, want one line", stderr)
			}
		})
	}
}

func TestRun_Outputs(t *testing.T) {
	dir := t.TempDir()
	record, text := filepath.Join(dir, "r.json"), filepath.Join(dir, "s.txt")
	st, stderr := runProgram(t, []string{"SECRET=hunter2-in-env"}, "--json", record, "--summary", text,
		"--project", "group/app", "--name", "nightly", "--stage", "compile", "--", "sh", "-c", "exit 0", "hunter2-in-argv")
	if st != 0 {
		t.Fatalf("wait status %#x: %s", uint32(st), stderr)
	}
	if os.Geteuid() == 0 && stderr != "" {
		t.Errorf("stderr %q, want nothing", stderr)
	}
	r := runRecord(t, record)
	if r.CI != "run" || r.Project != "group/app" || r.Name != "nightly" || !strings.HasPrefix(r.Key, "run/") || r.Result != "success" || r.Schema != cimeter.RecordSchema {
		t.Errorf("identity %+v", r.Build)
	}
	if len(r.Stages) != 1 || r.Stages[0].Name != "compile" || r.Stages[0].ExitCode != cimeter.Some(0) {
		t.Errorf("stages %+v", r.Stages)
	}
	if cpu := r.Usage.CPUSeconds.Total; cpu.Value <= 0 {
		t.Errorf("CPU %v", cpu)
	}
	s, err := os.ReadFile(text)
	if err != nil || !bytes.HasPrefix(s, []byte("cimeter: ")) || !bytes.Contains(s, []byte("s CPU")) {
		t.Errorf("summary %q, %v", s, err)
	}
	j, _ := os.ReadFile(record)
	if all := string(j) + string(s) + stderr; strings.Contains(all, "hunter2") {
		t.Errorf("a secret is told: %s", all)
	}
	if m, _ := filepath.Glob(filepath.Join(dir, ".*")); len(m) > 0 {
		t.Errorf("left behind: %v", m)
	}
}

// TestRun_OutputFiles holds that a file is there whole or not at all, readable
// by whom the umask says, and that nothing about it changes how a run ends.
func TestRun_OutputFiles(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, "old")
	for name, c := range map[string]struct {
		path   string
		missed bool
	}{
		"new":                        {path: filepath.Join(dir, "new")},
		"there already":              {path: old},
		"a pipe that nobody reads":   {path: fifo, missed: true},
		"a full disk":                {path: "/dev/full", missed: true},
		"a folder":                   {path: dir, missed: true},
		"below what is not a folder": {path: filepath.Join(old, "x"), missed: true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			held, err := os.Open(old)
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			st, stderr := runProgram(t, nil, "--json", c.path, "--", "sh", "-c", "umask 077; exit 6")
			if !st.Exited() || st.ExitStatus() != 6 || strings.Contains(stderr, "not written: "+c.path+" (") != c.missed || strings.Contains(stderr, ".cimeter-") {
				t.Errorf("wait status %#x, want exit 6; missed %v: %s", uint32(st), c.missed, stderr)
			}
			if b, err := io.ReadAll(held); string(b) != "old" || err != nil {
				t.Errorf("a reader of the file that was there sees %q, %v", b, err)
			}
			if m, _ := filepath.Glob(filepath.Join(dir, ".*")); len(m) > 0 {
				t.Errorf("left behind: %v", m)
			}
			if c.missed {
				return
			}
			if r := runRecord(t, c.path); r.Result != "failed" {
				t.Errorf("result %s", r.Result)
			}
			umask := syscall.Umask(0)
			syscall.Umask(umask)
			if fi, err := os.Stat(c.path); err != nil || fi.Mode() != os.FileMode(0o666&^umask) {
				t.Errorf("mode %v, %v; want %v", fi.Mode(), err, os.FileMode(0o666&^umask))
			}
		})
	}
}

// TestRun_StandardOutput holds that - is standard output, after what the command
// wrote there, and that one that cannot be written to changes nothing.
func TestRun_StandardOutput(t *testing.T) {
	cmd := exec.Command("cimeter", "run", "--json", "-", "--", "echo", "hello")
	out, err := cmd.Output()
	record, ok := bytes.CutPrefix(out, []byte("hello\n"))
	var r cimeter.Record
	if err != nil || !ok || json.Unmarshal(record, &r) != nil || r.Result != "success" {
		t.Errorf("standard output %q, %v; want what the command wrote, and a record", out, err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	var stderr strings.Builder
	cmd = exec.Command("cimeter", "run", "--summary", "-", "--", "sh", "-c", "exit 6")
	cmd.Stdout, cmd.Stderr = full, &stderr
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 6 || !strings.Contains(stderr.String(), "not written: standard output (no space left on device)\n") {
		t.Errorf("%v, want exit 6: %s", err, stderr.String())
	}
}

func TestRun_StagesOfOneBuild(t *testing.T) {
	record := filepath.Join(t.TempDir(), "r.json")
	st, stderr := runProgram(t, nil, "--json", record, "--", "sh", "-c",
		"cimeter run --stage compile -- true && cimeter run --stage test -- sh -c 'exit 1'; cimeter run --stage test -- true")
	if st != 0 {
		t.Fatalf("wait status %#x: %s", uint32(st), stderr)
	}
	if n := strings.Count(stderr, "cimeter: "); os.Geteuid() == 0 && n != 1 {
		t.Errorf("%d summaries, want that of the outer run alone: %s", n, stderr)
	}
	r := runRecord(t, record)
	var names []string
	var sum float64
	for _, s := range r.Stages {
		names = append(names, s.Name+" "+string(rune('0'+s.Attempt)))
		sum += s.Usage.CPUSeconds.Total.Value
	}
	if got := strings.Join(names, ", "); got != "compile 1, test 1, test 2, rest 1" {
		t.Errorf("stages %s", got)
	}
	if total := r.Usage.CPUSeconds.Total.Value; sum < total-0.011 || sum > total+0.011 {
		t.Errorf("stages sum up to %v s, total %v s", sum, total)
	}
}

func TestRun_SaysWhatWasLeft(t *testing.T) {
	_, stderr := runProgram(t, nil, "--", "sh", "-c", "sleep 1 >/dev/null 2>&1 &")
	if !strings.HasSuffix(stderr, "\n  * 1 process runs on: it was counted until now\n") || strings.Contains(stderr, "incomplete") {
		t.Errorf("summary %q", stderr)
	}
}

// BenchmarkRunTrue prints what cimeter run adds to the wall time of true: the
// median of pairs that run one after the other, and how many times as long it
// takes. For the published figure: go test -run '^$' -bench RunTrue -benchtime 200x
func BenchmarkRunTrue(b *testing.B) {
	program := filepath.Join(b.TempDir(), "cimeter")
	build := exec.Command("go", "build", "-trimpath", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	took := func(args ...string) float64 {
		cmd := exec.Command(args[0], args[1:]...)
		start := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(start)) / float64(time.Millisecond)
	}
	var added, start, plain, ratio []float64
	for b.Loop() {
		p := took("/bin/true")
		r := took(program, "run", "--", "/bin/true")
		// What no command of this program can do without: to be loaded and to
		// initialise its packages.
		s := took(program, "version")
		plain, added, start, ratio = append(plain, p), append(added, r-p), append(start, s-p), append(ratio, r/p)
	}
	median := func(v []float64) float64 {
		slices.Sort(v)
		return v[len(v)/2]
	}
	b.ReportMetric(median(added), "ms-added")
	b.ReportMetric(median(start), "ms-of-them-to-start")
	b.ReportMetric(median(plain), "ms-true")
	b.ReportMetric(median(ratio), "times-true")
	b.ReportMetric(0, "ns/op")
}
