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

// withoutPackage is what docs/install.md tells to type where there is no package.
func withoutPackage(t *testing.T) string {
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

// TestInstall boots a fresh Debian and types what docs/install.md says there, then,
// after that is taken away again, what the page of GitLab Runner says. Each time a
// job as the runner runs it is found at /metrics. The time from the first command is
// told, not judged: it depends on what this machine does beside.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("a docker daemon is not for -short")
	}
	t.Parallel() // see TestInGuest
	// Go is not Debian's: its folder, its caches and a copy of the checkout are this
	// machine's.
	var binds []string
	for name, at := range map[string]string{"GOROOT": "/usr/local/go", "GOMODCACHE": "/root/go/pkg/mod", "GOCACHE": "/root/.cache/go-build"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		binds = append(binds, strings.TrimSpace(string(out))+":"+at)
	}
	top, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	f := newFresh(t, append(binds, top+":/checkout")...)
	const image = "cimeter-test:1"
	f.image(image)
	f.sh("mkdir /src && cd /checkout && tar c --exclude=./.git --exclude=./bin --exclude=./dist . | tar x -C /src")

	begin := time.Now()
	said := f.sh("cd /src\n" + withoutPackage(t))
	installed := time.Since(begin)
	for _, want := range []string{"user cimeter,", "/usr/local/bin/cimeter", "/etc/cimeter/agent.yaml", "/etc/systemd/system/cimeter-agent.service"} {
		if !regexp.MustCompile(`(?m)^(written|made) +` + regexp.QuoteMeta(want)).MatchString(said) {
			t.Errorf("install did not say that it made %s:\n%s", want, said)
		}
	}
	f.eventually("the agent is ready", func() error { return f.command("curl -sf http://127.0.0.1:9808/readyz").Run() })
	ready := time.Since(begin)
	first := &gitlabJob{ID: 4501, Project: "group/app", Name: "test", Random: "97c49c249c7ce901", SystemID: "s_1"}
	f.play(first, image, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done\n")
	metrics := f.built("group/app")
	t.Logf("from the first command (compiled with this machine's caches): installed after %.1f s, ready after %.1f s, a build at /metrics after %.1f s",
		installed.Seconds(), ready.Seconds(), time.Since(begin).Seconds())
	if !regexp.MustCompile(`(?m)^cimeter_stage_cpu_seconds_total\{.*stage="step_script".*\} (0\.0*)?[1-9]`).Match(metrics) {
		t.Error("no CPU time of step_script at /metrics")
	}
	f.running(t)
	f.sh("cimeter install --uninstall && systemctl daemon-reload && rm -r /src")

	// The page, from a package: all of its blocks, in their order.
	_, blocks := runnerPage(t, "gitlab-docker")
	f.deb(t)
	f.sh("cd /root\n" + shellBlock(t, blocks, "Install"))
	f.write("/etc/cimeter/agent.yaml", quick(pick(t, blocks, "/etc/cimeter/agent.yaml").text))
	runner := decodeRunner(t, pick(t, blocks, "/etc/gitlab-runner/config.toml", "post_build_script")).Runners[0]
	var volumes []string
	for _, v := range runner.Docker.Volumes {
		if strings.Contains(v, ":") { // the others are the runner's to make
			volumes = append(volumes, v)
		}
	}
	check, look := sectionBlocks(blocks, "Check")
	if check == "" || look == "" {
		t.Fatal("the page has not two blocks in Check")
	}
	if out := f.sh(check); !strings.Contains(out, "configuration  ok") {
		t.Errorf("the page's check says:\n%s", out)
	}
	f.eventually("the agent is ready", func() error { return f.command("curl -sf http://127.0.0.1:9808/readyz").Run() })
	second := &gitlabJob{ID: 4502, Project: "group/lib", Name: "test", Random: "97c49c249c7ce902", SystemID: "s_1"}
	log := f.play(second, image, patient(gitlabScript("", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done", runner.PostBuildScript)), volumes...)
	printed(t, log, "step_script")
	f.built("group/lib")
	if out := f.sh(strings.ReplaceAll(look, "KEY", second.Key())); !strings.Contains(out, second.Key()) || !strings.Contains(out, "\ntotal ") {
		t.Errorf("the page's commands say:\n%s", out)
	}
	f.running(t)
	f.shellBuild(t)
}

// shellBuild goes on with the page of the shell executor: its drop-in and its
// configuration, and a build that is a process. There are no process events here,
// for the kernel has them for the first namespaces only: the agent looks.
func (f *fresh) shellBuild(t *testing.T) {
	t.Helper()
	_, blocks := runnerPage(t, "gitlab-shell")
	for _, file := range []string{"/etc/cimeter/agent.yaml", "/etc/systemd/system/cimeter-agent.service.d/processes.conf"} {
		f.write(file, quick(pick(t, blocks, file).text))
	}
	check, look := sectionBlocks(blocks, "Check")
	f.sh(check)
	f.eventually("the agent is ready", func() error { return f.command("curl -sf http://127.0.0.1:9808/readyz").Run() })
	job := &gitlabJob{ID: 4503, Project: "group/shell", Name: "test"}
	// A runner is there long before its job. The agent looks once in thirty seconds
	// for one, and each second then.
	script := "#!/bin/sh\nsleep 31\nsh <<'EOF'\nexport"
	for _, v := range job.env() {
		script += " '" + v + "'"
	}
	f.write("/root/gitlab-runner", script+"\nsh -c 'until [ $(cut -d. -f1 /proc/uptime) -ge '$(($(cut -d. -f1 /proc/uptime) + 9))' ]; do :; done'\nEOF\n")
	f.sh("chmod 755 /root /root/gitlab-runner && setpriv --reuid=65534 --regid=65534 --clear-groups /root/gitlab-runner")
	f.built(job.Project)
	if out := f.sh(strings.ReplaceAll(look, "KEY", job.Key())); !strings.Contains(out, job.Key()) || !strings.Contains(out, " s CPU (") {
		t.Errorf("the page's commands say:\n%s", out)
	}
	if out := f.sh("systemctl show cimeter-agent --property NRestarts --property ActiveState"); out != "NRestarts=0\nActiveState=active\n" {
		t.Errorf("the unit: %s", out)
	}
}

// quick is a configuration in which a build does not stay open for long: that the
// first one does is enough.
func quick(config string) string {
	return strings.Replace(config, "\nagent:\n", "\nagent:\n  grace: 1s\n", 1)
}

// sectionBlocks are the two sh blocks of a section.
func sectionBlocks(blocks []block, section string) (first, second string) {
	for _, b := range blocks {
		switch {
		case b.kind != "sh" || b.section != section:
		case first == "":
			first = b.text
		default:
			second = b.text
		}
	}
	return first, second
}

// built waits until a build of a project is at /metrics, and returns that page.
func (f *fresh) built(project string) (metrics []byte) {
	f.t.Helper()
	f.eventually("a build of "+project+" is at /metrics", func() (err error) {
		metrics, err = f.command("curl -sf http://127.0.0.1:9808/metrics").Output()
		if err == nil && !bytes.Contains(metrics, []byte(`cimeter_builds_total{ci="gitlab",project="`+project+`"`)) {
			err = fmt.Errorf("no build of %s", project)
		}
		return err
	})
	return metrics
}

// running fails the test when systemd has had to start the agent again, or the
// agent has more rights than its unit gives; it ends the agent, which must end well.
func (f *fresh) running(t *testing.T) {
	t.Helper()
	if out := f.sh("systemctl show cimeter-agent --property NRestarts --property ActiveState --property UnitFileState"); out != "NRestarts=0\nActiveState=active\nUnitFileState=enabled\n" {
		t.Errorf("the unit: %s", out)
	}
	status := f.sh("cat /proc/$(systemctl show cimeter-agent --property MainPID --value)/status")
	for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want+"\n") {
			t.Errorf("the agent's status has no %q:\n%s", want, status)
		}
	}
	// T30: what it wrote is for nobody else to read.
	if out := f.sh("test -n \"$(ls /var/lib/cimeter)\" && find /var/lib/cimeter ! -user cimeter -o -perm /077"); out != "" {
		t.Errorf("others may read:\n%s", out)
	}
	if out := f.sh("systemctl stop cimeter-agent; systemctl show cimeter-agent --property Result"); out != "Result=success\n" {
		t.Errorf("the agent was stopped: %s", out)
	}
}

// deb puts the package with the program of this test into root's folder.
func (f *fresh) deb(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("../scripts/package.sh", "0.1.0", "amd64", agentProgram(t), dir, "deb").CombinedOutput(); err != nil {
		t.Fatalf("package.sh: %v: %s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "cimeter_0.1.0_amd64.deb"))
	if err != nil {
		t.Fatal(err)
	}
	f.write("/root/cimeter_0.1.0_amd64.deb", string(b))
}
