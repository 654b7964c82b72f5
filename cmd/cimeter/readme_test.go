package main

import (
	"bufio"
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var shBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// Every line of a sh block of README.md is run by a shell, in a folder that
// holds only bin/cimeter. Two are played: make, which would run this test again,
// tells what it would do; the agent is stopped when it listens.
func TestReadme(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n >= 150 {
		t.Errorf("README.md has %d lines: want fewer than 150", n)
	}
	dir := t.TempDir()
	program, err := exec.LookPath("cimeter") // this test binary, by TestMain
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(dir, "bin", "cimeter")); err != nil {
		t.Fatal(err)
	}
	blocks := shBlock.FindAllSubmatch(text, -1)
	if len(blocks) < 3 {
		t.Fatalf("%d sh blocks: want at least 3", len(blocks))
	}
	for _, b := range blocks {
		for line := range strings.SplitSeq(strings.TrimSpace(string(b[1])), "\n") {
			t.Run(line, func(t *testing.T) {
				switch {
				case strings.HasPrefix(line, "make "):
					shell(t, root, strings.Replace(line, "make ", "make -n ", 1))
				case strings.HasPrefix(line, "bin/cimeter agent"):
					agentStarts(t, dir, line)
				default:
					shell(t, dir, line)
				}
			})
		}
	}
}

var listening = regexp.MustCompile(`msg=listening address=(\S+)`)

func shell(t *testing.T, dir, line string) {
	t.Helper()
	cmd := exec.Command("bash", "-eu", "-c", line)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// agentStarts runs the agent with a port and a folder of the test's, and ends
// it once it answers. A second --listen or --data wins over the first.
func agentStarts(t *testing.T, dir, line string) {
	t.Helper()
	args := append(strings.Fields(line)[1:], "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data"))
	cmd := exec.Command(filepath.Join(dir, "bin", "cimeter"), args...)
	cmd.Env = append(os.Environ(), "CIMETER_DOCKER=unix://"+filepath.Join(dir, "none.sock"))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	var log strings.Builder
	answered := false
	for s := bufio.NewScanner(stderr); s.Scan(); {
		log.WriteString(s.Text() + "\n")
		if m := listening.FindStringSubmatch(s.Text()); m != nil && !answered {
			resp, err := http.Get("http://" + m[1] + "/healthz")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			answered = resp.StatusCode == http.StatusOK
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !answered {
		t.Errorf("answered: %t; end: %v\n%s", answered, err, log.String())
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

func TestDocumentsLinkToWhatExists(t *testing.T) {
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/adr/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range link.FindAllSubmatch(text, -1) {
				if _, err := os.Stat(filepath.Join(filepath.Dir(file), string(m[1]))); err != nil {
					t.Errorf("%s links to %s: %v", file, m[1], err)
				}
			}
		}
	}
}
