package wrap_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/wrap"
)

// need ends a test that cannot run here; where nothing may be left out it fails.
func need(t *testing.T, ok bool, what string) {
	t.Helper()
	if !ok && os.Getenv("CI") == "true" {
		t.Fatalf("cannot run: want %s", what)
	}
	if !ok {
		t.Skipf("cannot run: want %s", what)
	}
}

// slow is what figures of small programs are multiplied by: an emulated machine
// takes longer for each.
func slow() float64 {
	if os.Getenv("CIMETER_TEST_SLOW") != "" {
		return 15
	}
	return 1
}

func needRoot(t *testing.T) { t.Helper(); need(t, os.Geteuid() == 0, "root, to make cgroups") }

// self is this test's binary, where any user can run it.
func self(t *testing.T) string {
	t.Helper()
	from, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(open(t, t.TempDir(), 0o755), "cimeter")
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// open lets any user into dir, one of t.TempDir.
func open(t *testing.T, dir string, mode os.FileMode) string {
	t.Helper()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, mode)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// prepare returns the program under test with args, in a session of its own
// (no terminal), and the file of its report.
func prepare(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.Command(exe, args...)
	cmd.Env = environ(file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, file
}

func readReport(t *testing.T, file string) *wrap.Report {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &wrap.Report{}
	if err := json.Unmarshal(b, r); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return r
}

// metered runs the program, which must end with 0, and returns its report and
// what the command printed.
func metered(t *testing.T, args ...string) (*wrap.Report, string) {
	t.Helper()
	cmd, file := prepare(t, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, &stderr)
	}
	return readReport(t, file), string(out)
}

func status(t *testing.T, cmd *exec.Cmd) syscall.WaitStatus {
	t.Helper()
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func TestRun_EndsAsTheCommand(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("exit 5\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		sig  syscall.Signal
	}{
		"0":                    {args: []string{"true"}},
		"3":                    {args: []string{"sh", "-c", "exit 3"}, code: 3},
		"255":                  {args: []string{"sh", "-c", "exit 255"}, code: 255},
		"script without #!":    {args: []string{plain}, code: 5},
		"not found":            {args: []string{"no-such-command-anywhere"}, code: 127},
		"path not found":       {args: []string{"/no/such/file"}, code: 127},
		"not executable":       {args: []string{"/etc/passwd"}, code: 126},
		"a folder":             {args: []string{"/"}, code: 126},
		"killed":               {args: []string{"sh", "-c", "kill -KILL $$"}, sig: syscall.SIGKILL},
		"terminated":           {args: []string{"sh", "-c", "kill -TERM $$"}, sig: syscall.SIGTERM},
		"interrupted":          {args: []string{"sh", "-c", "kill -INT $$"}, sig: syscall.SIGINT},
		"aborted":              {args: []string{"sh", "-c", "ulimit -c 0; kill -ABRT $$"}, sig: syscall.SIGABRT},
		"segmentation fault":   {args: []string{"sh", "-c", "ulimit -c 0; kill -SEGV $$"}, sig: syscall.SIGSEGV},
		"broken pipe":          {args: []string{"sh", "-c", "kill -PIPE $$"}, sig: syscall.SIGPIPE},
		"a real-time signal":   {args: []string{"sh", "-c", "kill -40 $$"}, sig: 40},
		"stopped and went on":  {args: []string{"sh", "-c", "(sleep 0.2; kill -CONT $$)& kill -STOP $$; wait; exit 9"}, code: 9},
		"left a process alone": {args: []string{"sh", "-c", "sleep 0.1 >/dev/null 2>&1 & exit 4"}, code: 4},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, _ := prepare(t, c.args...)
			st := status(t, cmd)
			if c.sig != 0 && (!st.Signaled() || st.Signal() != c.sig) || c.sig == 0 && (!st.Exited() || st.ExitStatus() != c.code) {
				t.Errorf("wait status %#x, want exit %d, signal %d", uint32(st), c.code, c.sig)
			}
		})
	}
}

func TestRun_PassesStandardStreams(t *testing.T) {
	in := make([]byte, 1<<20)
	rand.Read(in)
	cmd, _ := prepare(t, "sh", "-c", "cat; echo to-stderr >&2")
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	out, err := cmd.Output()
	if err != nil || !bytes.Equal(out, in) {
		t.Errorf("%d bytes came through (%v), want the %d that went in", len(out), err, len(in))
	}
	if stderr.String() != "to-stderr\n" {
		t.Errorf("stderr %q, want the command's alone", &stderr)
	}
}

// TestRun_LetsGoOfPipes has the command close what it inherited, and still run:
// the other end must see it at once.
func TestRun_LetsGoOfPipes(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd, _ := prepare(t, "sh", "-c", "echo extra >&3; echo out; exec 3>&- 1>&-; read line; exit $line")
	cmd.ExtraFiles = []*os.File{w}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for f, want := range map[io.Reader]string{r: "extra\n", stdout: "out\n"} {
		if b, err := io.ReadAll(f); string(b) != want || err != nil { // to the end of the file
			t.Errorf("read %q %v, want %q", b, err, want)
		}
	}
	fmt.Fprintln(stdin, 6)
	_ = cmd.Wait()
	if c := cmd.ProcessState.ExitCode(); c != 6 {
		t.Errorf("exit %d, want 6", c)
	}
}

func TestRun_ForwardsSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH} {
		t.Run(sig.String(), func(t *testing.T) {
			// A shell that is about to read may miss a signal until it has.
			cmd, _ := prepare(t, "sh", "-c", fmt.Sprintf("trap 'exit 7' %d; echo ready; while :; do sleep 0.01; done", sig))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Fatalf("read %q, %v", line, err)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if c := cmd.ProcessState.ExitCode(); c != 7 {
				t.Errorf("%v, want exit 7", cmd.ProcessState)
			}
		})
	}
}

func TestRun_KeepsIgnoredSignalsIgnored(t *testing.T) {
	cmd, file := prepare(t, "sh", "-c", "kill -HUP $$; kill -INT $$; kill -QUIT $$; exit 8")
	sh := exec.Command("sh", "-c", `trap '' HUP INT QUIT; exec "$@"`, "sh")
	sh.Args = append(sh.Args, cmd.Args...)
	sh.Env = environ(file)
	if st := status(t, sh); !st.Exited() || st.ExitStatus() != 8 {
		t.Errorf("wait status %#x, want exit 8", uint32(st))
	}
}

func TestRun_KilledTakesItsCommandAlong(t *testing.T) {
	check := watchLeftovers(t)
	cmd, _ := prepare(t, "sh", "-c", "echo ready; read line")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); line != "ready\n" {
		t.Fatalf("read %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err != nil { // ends when the command is gone
		t.Error(err)
	}
	_ = cmd.Wait()
	if os.Geteuid() == 0 {
		metered(t, "sh", "-c", "sleep 0.3") // sweeps
		check()
	}
}

// watchLeftovers returns a check that no cgroup of a killed run is there that
// was not there before.
func watchLeftovers(t *testing.T) (check func()) {
	t.Helper()
	before := cgroups(t)
	return func() {
		t.Helper()
		for _, c := range cgroups(t) {
			if !slices.Contains(before, c) {
				t.Errorf("left behind: %s", c)
			}
		}
	}
}

// cgroups returns the cgroups of runs whose maker is gone.
func cgroups(t *testing.T) (paths []string) {
	t.Helper()
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if rest, ok := strings.CutPrefix(d.Name(), "cimeter-run-"); ok {
			pid, _, _ := strings.Cut(rest, "-")
			if n, err := strconv.Atoi(pid); err == nil && syscall.Kill(n, 0) == syscall.ESRCH {
				paths = append(paths, path)
			}
		}
		return nil
	})
	return paths
}

// overCPU returns how much more CPU time a command has than it says itself.
func overCPU(t *testing.T, rep *wrap.Report, nanos string) float64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(nanos), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	v, ok := rep.Record.Usage.CPUSeconds.Total.Get()
	if !ok {
		t.Fatal("no CPU time")
	}
	return v - float64(n)/1e9
}

func burn(exe, d string) string {
	return "unset " + asProgram + "; exec " + exe + " helper-burn " + d
}

func TestRun_Counts(t *testing.T) {
	needRoot(t)
	check := watchLeftovers(t)
	exe := self(t)
	t.Run("CPU", func(t *testing.T) {
		rep, out := metered(t, "sh", "-c", burn(exe, "400ms"))
		u := &rep.Record.Usage
		// What a process spends on its end it cannot say itself: one that spends
		// nothing else tells how much that is here.
		idle, idleOut := metered(t, "sh", "-c", burn(exe, "0s"))
		if over, end := overCPU(t, rep, out), overCPU(t, idle, idleOut); over < -0.001 || over > max(0, end)+0.01*slow() {
			t.Errorf("CPU %v s, %.4f s more than it spent, want hardly more than %.4f", u.CPUSeconds.Total, over, end)
		}
		if u.CPUCores == nil || u.CPUCores.Max < u.CPUCores.Avg || u.CPUCores.Avg <= 0 {
			t.Errorf("cores %+v", u.CPUCores)
		}
		if rep.Record.Trace == nil || len(rep.Record.Trace.CPUMillicores) == 0 {
			t.Errorf("trace %+v", rep.Record.Trace)
		}
		if len(rep.Missed) > 0 || !rep.Record.Complete {
			t.Errorf("missed %v, complete %v", rep.Missed, rep.Record.Complete)
		}
	})
	t.Run("a short command", func(t *testing.T) {
		rep, _ := metered(t, "true")
		if v := rep.Record.Usage.CPUSeconds.Total; v.Value <= 0 || v.Value > 0.1*slow() {
			t.Errorf("CPU %v", v)
		}
	})
	t.Run("memory peak", func(t *testing.T) {
		const touched = 64 << 20
		rep, _ := metered(t, "sh", "-c", "unset "+asProgram+"; exec "+exe+" helper-touch "+strconv.Itoa(touched))
		m := rep.Record.Usage.MemoryBytes
		if m == nil || m.Peak.Value < touched || m.Peak.Value > 4*touched {
			t.Errorf("memory %+v, want a peak of %d and what a program needs", m, touched)
		}
	})
	t.Run("direct IO", func(t *testing.T) {
		const written = 3 << 20
		f := filepath.Join(t.TempDir(), "f")
		rep, out := metered(t, "sh", "-c", "unset "+asProgram+"; exec "+exe+" helper-write "+f+" "+strconv.Itoa(written))
		need(t, out == "<nil>\n", "a file system with direct IO, not "+strings.TrimSpace(out))
		// The new file is a block or two of the file system's own.
		if b := rep.Record.Usage.IOBytes; b == nil || b.Write < written || b.Write > written+64<<10 {
			t.Errorf("IO %+v, want %d written", b, written)
		}
	})
	check()
}

func TestRun_LeftRunning(t *testing.T) {
	for _, asRoot := range []bool{true, false} {
		t.Run(fmt.Sprintf("root %v", asRoot), func(t *testing.T) {
			needRoot(t)
			cmd, file := prepare(t, "sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!")
			if !asRoot {
				asNobody(t, cmd, file)
			}
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
			if err != nil {
				t.Fatal(err)
			}
			alive := syscall.Kill(pid, 0) == nil
			_ = syscall.Kill(pid, syscall.SIGKILL)
			rep := readReport(t, file)
			if !alive || rep.Left != 1 || rep.Record.Complete || len(rep.Record.Gaps) != 1 || rep.Record.Gaps[0].Reason != cimeter.GapMissedEnd {
				t.Errorf("alive %v, left %d, complete %v, gaps %v", alive, rep.Left, rep.Record.Complete, rep.Record.Gaps)
			}
		})
	}
}

// asNobody has cmd run as a user who may make no cgroup.
func asNobody(t *testing.T, cmd *exec.Cmd, file string) {
	t.Helper()
	cmd.Path = self(t)
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	cmd.Dir = open(t, filepath.Dir(file), 0o777)
	cmd.Env = append(cmd.Env, "TMPDIR="+cmd.Dir)
}

func TestRun_ByItsProcesses(t *testing.T) {
	needRoot(t)
	exe := self(t)
	// One burns in the foreground, one as an orphan that ends before the command.
	script := "(" + burn(exe, "100ms") + " >&3 &) ; (" + burn(exe, "150ms") + "); read orphan <&3; echo $orphan"
	for name, with := range map[string]func(*testing.T, *exec.Cmd, string){
		"another user": asNobody,
		"read-only cgroups": func(t *testing.T, cmd *exec.Cmd, _ string) {
			cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
			mount := `for m in $(grep -E ' cgroup2? ' /proc/self/mounts | cut -d' ' -f2); do mount -o remount,bind,ro $m; done; exec "$@"`
			cmd.Args = append([]string{"sh", "-c", mount, "sh", cmd.Path}, cmd.Args[1:]...)
			cmd.Path = "/bin/sh"
		},
	} {
		t.Run(name, func(t *testing.T) {
			fifo := filepath.Join(open(t, t.TempDir(), 0o777), "fifo")
			if err := syscall.Mkfifo(fifo, 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(fifo, 0o666); err != nil {
				t.Fatal(err)
			}
			cmd, file := prepare(t, "sh", "-c", "exec 3<>"+fifo+"; "+script)
			with(t, cmd, file)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, &stderr)
			}
			var all int64
			for _, f := range strings.Fields(string(out)) {
				n, err := strconv.ParseInt(f, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				all += n
			}
			rep := readReport(t, file)
			got := rep.Record.Usage.CPUSeconds.Total.Value
			// The orphan may not have been waited for yet; /proc tells ticks of 10 ms.
			if want := float64(all) / 1e9; got < want-0.025 || got > 2*want+0.2*slow() {
				t.Errorf("CPU %.4f s, want %.4f of both", got, want)
			}
			if len(rep.Missed) != 1 || !strings.Contains(rep.Missed[0], "memory") || strings.Contains(rep.Missed[0], "\n") {
				t.Errorf("missed %q, want one line about memory", rep.Missed)
			}
			if rep.Record.Usage.MemoryBytes != nil || rep.Record.Usage.OOMKills.Known {
				t.Errorf("memory %v, kills %v: want what is not known to be absent", rep.Record.Usage.MemoryBytes, rep.Record.Usage.OOMKills)
			}
		})
	}
}

func TestRun_Stages(t *testing.T) {
	needRoot(t)
	check := watchLeftovers(t)
	exe := self(t)
	const script = `
exe=$1
"$exe" --stage compile sh -c 'unset ` + asProgram + `; exec "$0" helper-burn 200ms' "$exe" || exit 1
"$exe" --stage test sh -c '"$0" --stage unit sh -c "unset ` + asProgram + `; exec \$0 helper-burn 60ms" "$0"; unset ` + asProgram + `; "$0" helper-burn 50ms' "$exe"
[ $? = 0 ] || exit 2
"$exe" --stage fail sh -c 'exit 3'
[ $? = 3 ] || exit 3
unset ` + asProgram + `
"$exe" helper-burn 40ms`
	for _, asRoot := range []bool{true, false} {
		t.Run(fmt.Sprintf("root %v", asRoot), func(t *testing.T) {
			cmd, file := prepare(t, "sh", "-c", script, "sh", exe)
			if !asRoot {
				asNobody(t, cmd, file)
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if out, err := cmd.Output(); err != nil {
				t.Fatalf("%v: %s %s", err, out, &stderr)
			}
			rep := readReport(t, file)
			r := &rep.Record
			// The programs of the inner runs are part of the rest.
			least := map[string]float64{"compile": 0.2, "test/unit": 0.06, "test": 0.05, "fail": 0, "rest": 0.04}
			var names []string
			var sum float64
			for _, s := range r.Stages {
				names = append(names, s.Name)
				v, ok := s.Usage.CPUSeconds.Total.Get()
				if w, known := least[s.Name]; !known || !ok || v < w-0.001 || v > 2*w+0.2*slow() && s.Name != "rest" && s.Name != "test" {
					t.Errorf("stage %s: CPU %v, want %v and a little", s.Name, v, w)
				}
				sum += v
			}
			if got := strings.Join(names, " "); got != "compile test test/unit fail rest" {
				t.Errorf("stages %s", got)
			}
			if total := r.Usage.CPUSeconds.Total.Value; sum < total-0.011 || sum > total+0.011 {
				t.Errorf("stages sum up to %v s, total %v s", sum, total)
			}
			if r.Stages[3].ExitCode != cimeter.Some(3) || r.Result != "success" {
				t.Errorf("exit code of fail %v, result %s", r.Stages[3].ExitCode, r.Result)
			}
			check()
		})
	}
}

func TestRun_OOM(t *testing.T) {
	needRoot(t)
	job, file := "/sys/fs/cgroup/memory/cimeter-wrap-test", "/memory.limit_in_bytes"
	err := os.Mkdir(job, 0o755)
	if errors.Is(err, os.ErrNotExist) { // cgroup v2
		job, file = "/sys/fs/cgroup/cimeter-wrap-test", "/memory.max"
		err = os.Mkdir(job, 0o755)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Rmdir(job) })
	const limit = 48 << 20
	if err := os.WriteFile(job+file, []byte(strconv.Itoa(limit)), 0); err != nil {
		t.Fatal(err)
	}
	exe := self(t)
	cmd, report := prepare(t, "sh", "-c", "unset "+asProgram+"; "+exe+" helper-touch 200000000; exit 0")
	sh := exec.Command("sh", "-c", "echo $$ >"+job+`/cgroup.procs; exec "$@"`, "sh")
	sh.Args, sh.Env = append(sh.Args, cmd.Args...), cmd.Env
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := &readReport(t, report).Record
	if len(r.Verdicts) != 1 || r.Verdicts[0].Kind != "oom" || !strings.Contains(r.Verdicts[0].Evidence, "48.0 MiB set by /cimeter-wrap-test") {
		t.Errorf("verdicts %+v", r.Verdicts)
	}
	if r.Limits == nil || r.Limits.MemoryBytes != cimeter.Some[uint64](limit) {
		t.Errorf("limits %+v, want %d bytes", r.Limits, limit)
	}
	if r.Usage.OOMKills.Value+r.Usage.OOMKillsNested.Value != 1 {
		t.Errorf("kills %v and %v below, want one", r.Usage.OOMKills, r.Usage.OOMKillsNested)
	}
}

func TestRun_TellsNoSecrets(t *testing.T) {
	secret := rand.Text()
	for name, args := range map[string][]string{
		"runs":      {"sh", "-c", "exit 0", secret, "--password=" + secret},
		"not found": {"no-such-command", secret},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, file := prepare(t, args...)
			cmd.Env = append(cmd.Env, "API_TOKEN="+secret, "CI_JOB_TOKEN="+secret, "CI_PROJECT_PATH=group/app")
			out, _ := cmd.CombinedOutput()
			report, _ := os.ReadFile(file)
			if bytes.Contains(out, []byte(secret)) || bytes.Contains(report, []byte(secret)) {
				t.Errorf("the secret is told: %s%s", out, report)
			}
			if name == "runs" {
				if r := readReport(t, file).Record; r.Project != "group/app" || r.Name != "sh" || r.CI != "run" || r.Result != "success" {
					t.Errorf("identity %+v, result %s", r.Build, r.Result)
				}
			}
		})
	}
}

// A stage that claims more than was spent is none, and the run says so.
func TestRun_forgedStage(t *testing.T) {
	cmd, file := prepare(t, "sh", "-c", `printf '{"name":"forged","started_at":"2026-11-30T12:00:00Z","ended_at":"2026-11-30T12:00:01Z",`+
		`"usage":{"wall_seconds":1,"cpu_seconds":{"total":1000}}}' >"$`+wrap.DirVariable+`/0.json"`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rep := readReport(t, file)
	if len(rep.Record.Stages) != 1 || rep.Record.Stages[0].Name == "forged" || !strings.Contains(strings.Join(rep.Missed, ","), "claim more") {
		t.Errorf("stages %+v, missed %q", rep.Record.Stages, rep.Missed)
	}
}
