package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cimeter/cimeter/internal/config"
)

// docBlock is what a document shows in one piece.
type docBlock struct{ file, kind, text string }

// tested are the documents whose blocks have tests of their own, by kind of block, as
// folders with functions.
var tested = map[string]string{
	"README.md sh":              "cmd/cimeter TestReadme",
	"troubleshooting.md sh":     "cmd/cimeter TestDocuments_commands",
	"security.md sh":            "cmd/cimeter TestDocuments_commands",
	"install.md sh":             "deploy TestInstallPage, deploy TestImage, deploy TestChartOnAPIServer, deploy TestRelease, e2e TestInstall",
	"outputs.md yaml":           "cmd/cimeter TestOutputs_documentation",
	"beside-cadvisor.md promql": "internal/dashboard TestBesideCadvisor",
	"identities.md yaml":        "cmd/cimeter TestRunnerJobs, internal/kubeapi TestClient_real",
	"ephemeral-machines.md *":   "cmd/cimeter TestEphemeralMachines, internal/discover TestConsul_fleet",
	"summary.md *":              "cmd/cimeter TestSummaryDocument",
	"library.md go":             "cmd/cimeter TestDocuments_library",
	"server.md sh":              "cmd/cimeter TestDocuments_server",
	"queue.md sh":               "cmd/cimeter TestDocuments_server",
	"outputs.md sh":             inBlocks,
	"overhead.md sh":            inBlocks,
	"comparison.md sh":          inBlocks,
	"nested.md json":            "", // an answer
	"debug.md json":             "", // an answer
}

// inBlocks says that a block is TestDocuments_blocks's.
const inBlocks = "cmd/cimeter TestDocuments_blocks"

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// docBlocks are the blocks of README.md and of docs; those of docs/runners are e2e's.
func docBlocks(t *testing.T) (blocks []docBlock) {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d documents, %v", len(files), err)
	}
	for _, f := range append(files, "../../README.md") {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fence.FindAllSubmatch(text, -1) {
			blocks = append(blocks, docBlock{filepath.Base(f), string(m[1]), string(m[2])})
		}
	}
	return blocks
}

// Every command and every configuration that a document shows is run by a test: what
// none of its own has is run here. A configuration of cimeter's is read, a command is
// one that there is.
func TestDocuments_blocks(t *testing.T) {
	read, run := 0, 0
	used := map[string]bool{}
	for _, b := range docBlocks(t) {
		name := b.file + " " + b.kind
		own := slices.ContainsFunc([]string{name, b.file + " *"}, func(n string) bool {
			_, own := tested[n]
			used[n] = used[n] || own
			return own
		})
		switch {
		case b.kind == "" && strings.HasPrefix(b.text, "cimeter agent "):
			run++
			dir := t.TempDir()
			program, err := exec.LookPath("cimeter")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(program, filepath.Join(dir, "bin", "cimeter")); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.text) {
				t.Run(strings.TrimSpace(line), func(t *testing.T) {
					agentStarts(t, dir, strings.ReplaceAll(strings.TrimSpace(line), "unix://", "unix://"+dir))
				})
			}
		case b.kind == "": // what a program says, or a drawing
		case b.kind == "yaml" && !own:
			read++
			if err := readable(b.text); err != nil {
				t.Errorf("%s: %v in\n%s", b.file, err, b.text)
			}
		case b.kind == "sh" && tested[name] == inBlocks:
			run++
			checkMake(t, b)
		case !own:
			t.Errorf("%s: no test runs this block of %s:\n%s", b.file, b.kind, b.text)
		}
	}
	for name, by := range tested {
		if !used[name] {
			t.Errorf("there is no block of %s", name)
		}
		for test := range strings.SplitSeq(by, ", ") {
			if dir, function, ok := strings.Cut(test, " "); ok {
				shell(t, "../..", fmt.Sprintf("grep -q '^func %s(' %s/*_test.go", function, dir))
			}
		}
	}
	if read < 15 || run < 5 {
		t.Errorf("%d configurations read, %d blocks run: the documents are not what this test thinks", read, run)
	}
}

// readable reads a configuration, or an entry of ci_servers.
func readable(text string) error {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		return err
	}
	if root.Content[0].Kind == yaml.SequenceNode {
		text = "ci_servers:\n" + text
	}
	_, err := config.Parse("document", []byte(text))
	return err
}

var benchmark = regexp.MustCompile(`^go test -run '\^\$' -bench (\w+)(?: .*)? (\./\S+)$`)

// checkMake holds that what make is to make is there, and that a benchmark is where a
// command looks for it; they take too long to be run.
func checkMake(t *testing.T, b docBlock) {
	t.Helper()
	for line := range strings.Lines(b.text) {
		for command := range strings.SplitSeq(strings.TrimSpace(line), " && ") {
			m := benchmark.FindStringSubmatch(command)
			switch {
			case strings.HasPrefix(command, "make "):
				shell(t, "../..", strings.Replace(command, "make ", "make -n ", 1)+" >/dev/null")
			case m != nil:
				shell(t, "../..", fmt.Sprintf("grep -q '^func Benchmark[A-Za-z_]*%s' %s/*_test.go", m[1], m[2]))
			case strings.HasPrefix(command, "go tool pprof "):
			default:
				t.Errorf("%s: nothing is known of %q", b.file, command)
			}
		}
	}
}

// The page of the server: its commands make tokens and a server that takes what the
// agent's token sends; the page of the queue has it asked for a build.
func TestDocuments_server(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(blockOf(t, "server.md", "sh"), "/etc/cimeter", dir)), "\n")
	last := len(lines) - 1
	shell(t, dir, strings.Join(lines[:last], "\n"))
	args := strings.Fields(lines[last])
	cmd := exec.Command(args[0], append(args[1:], "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))...)
	address := listens(t, cmd)
	shell(t, dir, fmt.Sprintf(`cimeter run --project group/app --json build.json -- true
cimeter push --server http://%s --token-file agent-token build.json
cimeter builds --server http://%[1]s | grep -q group/app
test "$(stat -c %%a tokens agent-token | sort -u)" = 600`, address))
	queue := strings.ReplaceAll(blockOf(t, "queue.md", "sh"), "/etc/cimeter", dir)
	out, err := exec.Command("bash", "-eu", "-c", "export CIMETER_SERVER=http://"+address+"\n"+queue).CombinedOutput()
	if want := "no CI servers are set up there"; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v, %s: want %q", err, out, want)
	}
}

// The program of the library's page compiles, runs, and tells what it says it tells.
func TestDocuments_library(t *testing.T) {
	file := filepath.Join(t.TempDir(), "main.go")
	program := "package main\n\nimport (\n\t\"net/http\"\n\t\"net/http/httptest\"\n\t\"os\"\n\t\"time\"\n\n\t\"github.com/cimeter/cimeter/meter\"\n)\n\nfunc main() {\n" +
		blockOf(t, "library.md", "go") +
		"\tw2 := httptest.NewRecorder()\n\thttp.DefaultServeMux.ServeHTTP(w2, httptest.NewRequest(\"GET\", \"/metrics\", nil))\n\tos.Stdout.Write(w2.Body.Bytes())\n}\n"
	if err := os.WriteFile(file, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", file)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `cimeter_builds_total{`) || !strings.Contains(string(out), "cimeter_queue_builds{") {
		t.Errorf("%v: %s", err, out)
	}
}

// blockOf is the first block of a kind in a document.
func blockOf(t *testing.T, file, kind string) string {
	t.Helper()
	for _, b := range docBlocks(t) {
		if b.file == file && b.kind == kind {
			return b.text
		}
	}
	t.Fatalf("%s has no block of %s", file, kind)
	return ""
}
