package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// playRunner names the variable that makes a copy of this test a CI runner, which
// is known by its program's name: it starts the builds that its standard input
// describes, all at once, the shells of each one after the other.
const playRunner = "CIMETER_TEST_PLAY_RUNNER"

// playHelper names the variable that makes a copy of this test a program that
// only lasts a moment, as a download does.
const playHelper = "CIMETER_TEST_PLAY_HELPER"

const helperLasts = 100 * time.Millisecond

// shellBuild is one build of a runner without containers: programs that the
// runner starts one after the other.
type shellBuild struct {
	Shells []shellRun
}

// shellRun is one program that a runner starts: sh, where Args are empty.
type shellRun struct {
	Args  []string
	Env   []string // beside PATH
	Stdin string
}

// runAsRunner is what main is in a copy of this test that plays a runner.
func runAsRunner() int {
	var builds []shellBuild
	if err := json.NewDecoder(os.Stdin).Decode(&builds); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	var go1 [1]byte
	if _, err := io.ReadFull(os.NewFile(3, "go"), go1[:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var wg sync.WaitGroup
	for _, b := range builds {
		wg.Go(func() {
			for _, s := range b.Shells {
				args := s.Args
				if len(args) == 0 {
					args = []string{"/bin/sh"}
				}
				cmd := exec.Command(args[0], args[1:]...)
				cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, s.Env...)
				cmd.Stdin = strings.NewReader(s.Stdin)
				cmd.Stderr = os.Stderr
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				if err := cmd.Run(); err != nil {
					fmt.Fprintf(os.Stderr, "%v: %v\n", args, err)
				}
			}
		})
	}
	wg.Wait()
	fmt.Println("done")
	// It lives on as a runner does, until it is told to end.
	_, _ = io.Copy(io.Discard, os.NewFile(3, "go"))
	return 0
}

// runner is a copy of this test that plays one.
type runner struct {
	t      *testing.T
	cmd    *exec.Cmd
	signal *os.File
	lines  io.Reader
	err    *logBuffer
}

// linkSelf makes a copy of this test's program with that name and returns its path.
func linkSelf(t *testing.T, dir, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if os.Link(self, path) == nil {
		return path
	}
	b, err := os.ReadFile(self) // another file system
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// startRunner starts a runner whose program has that name. It waits for run.
func startRunner(t *testing.T, name string, builds []shellBuild) *runner {
	t.Helper()
	return startRunnerIn(t, name, "", builds)
}

// startRunnerIn is startRunner behind a line of a shell script.
func startRunnerIn(t *testing.T, name, before string, builds []shellBuild) *runner {
	t.Helper()
	path := linkSelf(t, t.TempDir(), name)
	spec, err := json.Marshal(builds)
	if err != nil {
		t.Fatal(err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, cmd: exec.Command("/bin/sh", "-c", before+`exec "$0"`, path), signal: out, err: &logBuffer{}}
	r.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), playRunner + "=1"}
	r.cmd.Stdin, r.cmd.Stderr = strings.NewReader(string(spec)), r.err
	r.cmd.ExtraFiles = []*os.File{in}
	if r.lines, err = r.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	t.Cleanup(r.end)
	r.expect("ready")
	return r
}

func (r *runner) expect(line string) {
	r.t.Helper()
	b := make([]byte, len(line)+1)
	if _, err := io.ReadFull(r.lines, b); err != nil || string(b) != line+"\n" {
		r.t.Fatalf("the runner says %q (%v), want %q\n%s", b, err, line, r.err)
	}
}

// begin has it run its builds.
func (r *runner) begin() {
	r.t.Helper()
	if _, err := r.signal.Write([]byte{1}); err != nil {
		r.t.Fatal(err)
	}
}

// run has it run its builds, and waits for their end.
func (r *runner) run() {
	r.t.Helper()
	r.begin()
	r.expect("done")
}

// end ends the runner.
func (r *runner) end() {
	r.signal.Close()
	_ = r.cmd.Wait() // it has said what it has to
}
