package e2e_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v3"
)

// block is a block of code of a page.
type block struct {
	kind    string // yaml, toml, env, sh ...
	section string // the last ## above it
	title   string // its first line where that is a comment: the file it is
	text    string
}

var pageParts = regexp.MustCompile("(?ms)^## ([^\n]*)$|^```(\\w+)\n(.*?)^```$")

// runnerPage reads a page of docs/runners.
func runnerPage(t *testing.T, name string) (text string, blocks []block) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "docs", "runners", name+".md"))
	if err != nil {
		t.Fatal(err)
	}
	section := ""
	for _, m := range pageParts.FindAllStringSubmatch(string(b), -1) {
		if m[1] != "" {
			section = m[1]
			continue
		}
		title := ""
		if rest, ok := strings.CutPrefix(m[3], "# "); ok {
			title, _, _ = strings.Cut(rest, "\n")
		}
		blocks = append(blocks, block{kind: m[2], section: section, title: title, text: m[3]})
	}
	return string(b), blocks
}

// pick is the only block of a page that is this file and has all of with in it.
func pick(t *testing.T, blocks []block, title string, with ...string) block {
	t.Helper()
	var found []block
	for _, b := range blocks {
		lacks := func(s string) bool { return !strings.Contains(b.text, s) }
		if b.title == title && !slices.ContainsFunc(with, lacks) {
			found = append(found, b)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d blocks %s with %q: want one", len(found), title, with)
	}
	return found[0]
}

// gitlabRunnerConfig is of config.toml what pages may speak of. The names are
// those of the runner's own types (common/config.go).
type gitlabRunnerConfig struct {
	ListenAddress string `toml:"listen_address"`
	Runners       []struct {
		Executor        string   `toml:"executor"`
		Environment     []string `toml:"environment"`
		PreBuildScript  string   `toml:"pre_build_script"`
		PostBuildScript string   `toml:"post_build_script"`
		Docker          struct {
			Volumes []string `toml:"volumes"`
		} `toml:"docker"`
		Kubernetes struct {
			Volumes struct {
				HostPath []hostPath `toml:"host_path"`
			} `toml:"volumes"`
		} `toml:"kubernetes"`
	} `toml:"runners"`
}

// hostPath is a folder of the node in a job's pod.
type hostPath struct {
	Name      string `toml:"name"`
	MountPath string `toml:"mount_path"`
	HostPath  string `toml:"host_path"`
	ReadOnly  bool   `toml:"read_only"`
}

// decodeRunner reads a block of config.toml as the runner does, and refuses what
// it would not know.
func decodeRunner(t *testing.T, b block) (c gitlabRunnerConfig) {
	t.Helper()
	m, err := toml.Decode(b.text, &c)
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.text)
	}
	if unknown := m.Undecoded(); len(unknown) > 0 {
		t.Errorf("config.toml: %v is unknown here in\n%s", unknown, b.text)
	}
	if len(c.Runners) != 1 {
		t.Fatalf("%d runners in\n%s", len(c.Runners), b.text)
	}
	return c
}

// variables reads a block of NAME=VALUE.
func variables(t *testing.T, b block) map[string]string {
	t.Helper()
	vars := map[string]string{}
	for line := range strings.Lines(b.text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || !regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`).MatchString(name) {
			t.Fatalf("%q: want NAME=VALUE", line)
		}
		vars[name] = value
	}
	return vars
}

// runnerVariables are those that pages set of others' programs, which do not
// mind a wrong name.
var runnerVariables = []string{
	"ACTIONS_RUNNER_HOOK_JOB_COMPLETED", "DRONE_RUNNER_VOLUMES", "WOODPECKER_BACKEND_DOCKER_VOLUMES",
}

// shape are the headings of every page, in their order.
var shape = []string{"What you get", "Install", "Configure", "Check", "In the job's log", "What is not metered"}

// TestRunnerPages holds docs/runners to its shape, and every block in it to what
// its reader takes it for: files of cimeter by cimeter itself, config.toml by the
// runner's parser, shell by a shell. What the blocks do is run by the tests of
// snippets and of the installation.
func TestRunnerPages(t *testing.T) {
	pages, err := filepath.Glob("../docs/runners/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages, %v: want one of each runner", len(pages), err)
	}
	index, err := os.ReadFile("../docs/runners/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pages {
		name := strings.TrimSuffix(filepath.Base(path), ".md")
		if name == "README" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			text, blocks := runnerPage(t, name)
			if !bytes.Contains(index, []byte("("+name+".md)")) {
				t.Error("README.md does not link to it")
			}
			if lines := strings.Count(text, "\n"); !strings.HasPrefix(text, "# I have ") || lines > 160 {
				t.Errorf("it begins %.40q and has %d lines: want I have ..., and at most 160", text, lines)
			}
			for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(text, -1) {
				if _, err := os.Stat(filepath.Join("../docs/runners", m[1])); err != nil {
					t.Errorf("it links to %s: %v", m[1], err)
				}
			}
			var headings []string
			for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(text, -1) {
				headings = append(headings, m[1])
			}
			if !slices.Equal(headings, shape) {
				t.Errorf("headings %q: want %q", headings, shape)
			}
			for _, b := range blocks {
				checkBlock(t, b)
			}
			// TestInstall types it, package deploy installs the chart.
			if install := shellBlock(t, blocks, "Install"); !strings.HasPrefix(install, "dpkg --install cimeter_*_amd64.deb\n") && !strings.HasPrefix(install, "helm install ") {
				t.Errorf("it is installed by\n%s", install)
			}
		})
	}
}

func checkBlock(t *testing.T, b block) {
	t.Helper()
	switch b.kind {
	case "yaml":
		if strings.HasPrefix(b.title, "/etc/cimeter/") {
			checkConfig(t, b)
			return
		}
		for d := yaml.NewDecoder(strings.NewReader(b.text)); ; {
			var v map[string]any
			if err := d.Decode(&v); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Errorf("%v in\n%s", err, b.text)
				return
			}
		}
	case "toml":
		decodeRunner(t, b)
	case "env":
		for name := range variables(t, b) {
			if !slices.Contains(runnerVariables, name) {
				t.Errorf("%s is no variable of a runner", name)
			}
		}
	case "sh", "bash":
		if out, err := exec.Command("bash", "-n", "-c", b.text).CombinedOutput(); err != nil {
			t.Errorf("%v: %s in\n%s", err, out, b.text)
		}
	case "ini": // package deploy tries the drop-in
	case "groovy": // no parser of it is at hand: what it starts is played
	default:
		t.Errorf("a block of %s: no test knows it", b.kind)
	}
}

// TestNodeOfKubernetes prepares a node as the page of GitLab's kubernetes executor
// says, and looks whether jobs' pods mount what is there.
func TestNodeOfKubernetes(t *testing.T) {
	_, blocks := runnerPage(t, "gitlab-kubernetes")
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "usr/local/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer(" cimeter ", " "+agentProgram(t)+" ", "/run/cimeter", dir+"/run/cimeter", "/usr/local", dir+"/usr/local").Replace(shellBlock(t, blocks, "In the job's log"))
	if out, err := exec.Command("bash", "-euc", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	volumes := decodeRunner(t, pick(t, blocks, "/etc/gitlab-runner/config.toml")).Runners[0].Kubernetes.Volumes.HostPath
	if len(volumes) != 2 {
		t.Fatalf("volumes %+v: want socket and program", volumes)
	}
	for _, v := range volumes {
		if st, err := os.Stat(dir + v.HostPath); err != nil || !v.ReadOnly || v.Name == "" {
			t.Errorf("volume %+v, %v, %v: want what is on the node, read-only", v, st, err)
		}
	}
	if st, err := os.Stat(dir + "/run/cimeter"); err != nil || st.Sys().(*syscall.Stat_t).Uid != 65532 {
		t.Errorf("the socket's folder: %v: want it the agent's, of user 65532", err)
	}
	if volumes[0].MountPath != "/run/cimeter" || volumes[1].MountPath != "/usr/local/bin/cimeter" {
		t.Errorf("mounted at %s and %s: want where cimeter summary looks, and where shells find it", volumes[0].MountPath, volumes[1].MountPath)
	}
}

// checkConfig has cimeter check a file of its own.
func checkConfig(t *testing.T, b block) {
	t.Helper()
	file := filepath.Join(t.TempDir(), filepath.Base(b.title))
	if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(agentProgram(t), "check", "--config", file)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("ok: "+file)) {
		t.Errorf("cimeter check: %v\n%s\nof\n%s", err, out, b.text)
	}
}

// shellBlock is the text of a page's sh blocks in a section.
func shellBlock(t *testing.T, blocks []block, section string) string {
	t.Helper()
	var s strings.Builder
	for _, b := range blocks {
		if b.kind == "sh" && b.section == section {
			s.WriteString(b.text)
		}
	}
	if s.Len() == 0 {
		t.Fatalf("no sh block in the section %s", section)
	}
	return s.String()
}

// rebind puts the test's own path for that of the host in a bind mount.
func rebind(t *testing.T, bind string, hosts map[string]string) string {
	t.Helper()
	host, rest, ok := strings.Cut(bind, ":")
	own, known := hosts[host]
	if !ok || !known {
		t.Fatalf("mount %q: want one of %v from the host", bind, hosts)
	}
	return own + ":" + rest
}
