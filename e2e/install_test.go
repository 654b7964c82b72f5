package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// fresh is a fresh Debian beside a machine's daemon: a root of its own, in which
// nothing of cimeter is, with the machine's processes, cgroups and network.
type fresh struct {
	t    *testing.T
	m    *machine
	root string
}

// newFresh mounts the root. What is written there is gone after the test.
func newFresh(t *testing.T, m *machine) *fresh {
	t.Helper()
	out, err := exec.Command("../scripts/debian.sh").Output()
	if err != nil {
		t.Fatalf("the root of a Debian: %v", err)
	}
	dir, err := os.MkdirTemp("", "cimeter-fresh-")
	if err != nil {
		t.Fatal(err)
	}
	f := &fresh{t: t, m: m, root: filepath.Join(dir, "root")}
	t.Cleanup(func() { // after all umounts
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	f.overlay(strings.TrimSpace(string(out)), f.root, dir)
	for _, at := range []string{"/proc", "/sys", "/dev"} {
		f.bind(at, at, "--rbind")
	}
	if err := os.WriteFile(filepath.Join(f.root, "usr/local/sbin/systemctl"), []byte(systemctl), 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

// systemctl enables units without a systemd that runs. What else it would do is
// [fresh.systemd].
const systemctl = `#!/bin/sh
[ "$1" = enable ] || exit 0
shift
[ "$1" != --now ] || shift
exec /usr/bin/systemctl --root=/ enable "$@"
`

// overlay mounts a folder that can be written without changing what it is of.
func (f *fresh) overlay(lower, at, scratch string) {
	f.t.Helper()
	upper := filepath.Join(scratch, strings.ReplaceAll(strings.TrimPrefix(at, scratch), "/", "-"))
	for _, d := range []string{at, upper + "-up", upper + "-work"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			f.t.Fatal(err)
		}
	}
	f.mount(at, "-t", "overlay", "-o", "lowerdir="+lower+",upperdir="+upper+"-up,workdir="+upper+"-work", "overlay")
}

// bind shows something of this machine in the root.
func (f *fresh) bind(from, at, how string) {
	f.t.Helper()
	to := filepath.Join(f.root, at)
	st, err := os.Stat(from)
	if err != nil {
		f.t.Fatal(err)
	}
	if st.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
		err = os.WriteFile(to, nil, 0o644)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.mount(to, how, "--make-rslave", from)
}

func (f *fresh) mount(at string, args ...string) {
	f.t.Helper()
	if out, err := exec.Command("mount", append(args, at)...).CombinedOutput(); err != nil {
		f.t.Fatalf("mount %s: %v: %s", at, err, out)
	}
	f.t.Cleanup(func() {
		if out, err := exec.Command("umount", "--recursive", "--lazy", at).CombinedOutput(); err != nil {
			f.t.Errorf("umount %s: %v: %s", at, err, out)
		}
	})
}

// command is a command of root in the fresh machine.
func (f *fresh) command(line ...string) *exec.Cmd {
	cmd := f.m.Command("chroot", append([]string{f.root}, line...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin", "HOME=/root", "LC_ALL=C.UTF-8"}
	return cmd
}

// sh runs a script of root in the fresh machine and returns what it said.
func (f *fresh) sh(script string) string {
	f.t.Helper()
	out, err := f.command("bash", "-euo", "pipefail", "-c", script).CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

func (f *fresh) read(path string) string {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.root, path))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(b)
}

// docker gives the machine's daemon to the fresh one as its own.
func (f *fresh) docker() {
	f.t.Helper()
	socket := strings.TrimPrefix(f.m.Host(), "unix://")
	f.bind(socket, "/run/docker.sock", "--bind")
	f.sh("chgrp docker /run/docker.sock && chmod 660 /run/docker.sock")
	f.t.Cleanup(func() {
		if err := os.Chown(socket, 0, 0); err != nil {
			f.t.Error(err)
		}
	})
}

// systemd starts a unit as systemd does, as far as a process without it can: its
// ExecStart as its user with that user's groups and no capability, and folders made
// for it. Package deploy tries the rest of the unit.
func (f *fresh) systemd(unit string) {
	f.t.Helper()
	text := f.read(unit)
	value := func(key string) string {
		m := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindStringSubmatch(text)
		if m == nil {
			f.t.Fatalf("%s has no %s", unit, key)
		}
		return m[1]
	}
	if value("CapabilityBoundingSet") != "" || value("NoNewPrivileges") != "yes" {
		f.t.Fatalf("%s has rights that this test does not give", unit)
	}
	user := value("User")
	f.sh(fmt.Sprintf("install -d -o %s -g %[1]s -m %s /var/lib/%s && install -d -o %[1]s -g %[1]s -m %s /run/%s",
		user, value("StateDirectoryMode"), value("StateDirectory"), value("RuntimeDirectoryMode"), value("RuntimeDirectory")))
	line := append([]string{"setpriv", "--reuid=" + user, "--regid=" + user, "--init-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"},
		strings.Fields(value("ExecStart"))...)
	cmd := f.command(line...)
	log := &logBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			f.t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			f.t.Errorf("the agent ended with %v", err)
		}
		if f.t.Failed() {
			f.t.Logf("the agent's log:\n%s", log)
		}
	})
}

// page answers the agent's page at an address that only the fresh machine knows.
func (f *fresh) page(address string) ([]byte, error) {
	return f.command("curl", "-sf", address).Output()
}

// sayOnce is what docs/install.md tells to type on a machine without a package.
func sayOnce(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), "## Without a package\n\n```sh\n")
	if text, _, _ = strings.Cut(text, "```"); !ok {
		t.Fatal("docs/install.md: no block in Without a package")
	}
	return text
}

// TestMakeInstall types what docs/install.md says on a fresh Debian, runs one
// build as GitLab Runner does, and finds it at /metrics. The time from the first
// command is told, not judged: it depends on what the machine does beside.
func TestMakeInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("a docker daemon is not for -short")
	}
	m := newMachine(t)
	f := newFresh(t, m)
	f.docker()
	// Go is not Debian's: its folder, its caches and the checkout are this
	// machine's, and nothing is written there but caches.
	for name, at := range map[string]string{"GOROOT": "/usr/local/go", "GOMODCACHE": "/root/go/pkg/mod", "GOCACHE": "/root/.cache/go-build"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		f.bind(strings.TrimSpace(string(out)), at, "--bind")
	}
	top, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	f.overlay(top, filepath.Join(f.root, "src"), filepath.Dir(f.root))

	begin := time.Now()
	said := f.sh("cd /src\n" + sayOnce(t))
	installed := time.Since(begin)
	for _, want := range []string{"/usr/local/bin/cimeter", "/etc/cimeter/agent.yaml", "/etc/systemd/system/cimeter-agent.service", "cimeter"} {
		if !regexp.MustCompile(`(?m)^(written|made) +\S*.*` + regexp.QuoteMeta(want)).MatchString(said) {
			t.Errorf("install did not say that it made %s:\n%s", want, said)
		}
	}
	if out := f.sh("systemd-analyze verify /etc/systemd/system/cimeter-agent.service 2>&1"); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	if link, err := os.Readlink(filepath.Join(f.root, "etc/systemd/system/multi-user.target.wants/cimeter-agent.service")); err != nil || link != "/etc/systemd/system/cimeter-agent.service" {
		t.Errorf("the unit is not enabled: %s, %v", link, err)
	}
	f.systemd("/etc/systemd/system/cimeter-agent.service")
	j := &gitlabJob{ID: 4501, Project: "group/app", Name: "test", Random: "97c49c249c7ce901", SystemID: "s_1", Stages: []gitlabStage{
		{Name: "get_sources", Steps: []string{"cpu=0.1"}}, {Name: "step_script", Steps: []string{"cpu=0.3"}},
	}}
	f.eventually("the agent is ready", func() error { _, err := f.page("http://127.0.0.1:9808/readyz"); return err })
	ready := time.Since(begin)
	if err := j.playNew(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	var metrics []byte
	f.eventually("the build is at /metrics", func() (err error) {
		if metrics, err = f.page("http://127.0.0.1:9808/metrics"); err == nil && !bytes.Contains(metrics, []byte(`cimeter_builds_total{ci="gitlab",project="group/app"`)) {
			err = fmt.Errorf("no build of group/app")
		}
		return err
	})
	t.Logf("from the first command (compiled with warm caches): installed after %.1f s, ready after %.1f s, the build at /metrics after %.1f s",
		installed.Seconds(), ready.Seconds(), time.Since(begin).Seconds())
	if !regexp.MustCompile(`(?m)^cimeter_stage_cpu_seconds_total\{.*stage="step_script".*\} 0*\.?[0-9]*[1-9]`).Match(metrics) {
		t.Errorf("no CPU time of step_script at /metrics")
	}
	// What the page of the runner tells to look at, as it stands there.
	_, blocks := runnerPage(t, "gitlab-docker")
	if out := f.sh(strings.ReplaceAll(shellBlock(t, blocks, "Check"), "KEY", j.Key())); !strings.Contains(out, j.Key()) || !strings.Contains(out, "\ntotal ") {
		t.Errorf("the page's commands say:\n%s", out)
	}
}

// eventually repeats what until it holds.
func (f *fresh) eventually(what string, holds func() error) {
	f.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(patience)
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("waiting until %s: %v", what, err)
		}
		<-tick.C
	}
}
