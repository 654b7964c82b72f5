package deploy_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter/deploy"
)

// stub stands for the program in packages whose program is not the matter.
const stub = "#!/bin/sh\necho cimeter\n"

// makePackage makes a package of a version and returns its path.
func makePackage(t *testing.T, kind, version string, env ...string) string {
	t.Helper()
	require(t, "dpkg-deb", "rpmbuild")
	dir := t.TempDir()
	bin := filepath.Join(dir, "program")
	write(t, bin, stub, 0o755)
	cmd := exec.Command("../scripts/package.sh", version, "amd64", bin, filepath.Join(dir, "out"), kind)
	cmd.Env = append(append(os.Environ(), "SOURCE_DATE_EPOCH=1796000000"), env...)
	output(t, cmd)
	made, err := filepath.Glob(filepath.Join(dir, "out", "*"))
	if err != nil || len(made) != 1 {
		t.Fatalf("made %v, %v: want one package", made, err)
	}
	return made[0]
}

// Who makes a package, where and when, is not in it.
func TestPackagesAreReproducible(t *testing.T) {
	for _, kind := range []string{"deb", "rpm"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			a := makePackage(t, kind, "1.2.3", "TZ=Asia/Tokyo")
			b := makePackage(t, kind, "1.2.3", "TZ=UTC", "LC_ALL=C", "USER=somebody", "HOSTNAME=elsewhere")
			if filepath.Base(a) != filepath.Base(b) || !bytes.Equal([]byte(readFile(t, a)), []byte(readFile(t, b))) {
				t.Errorf("%s and %s differ", a, b)
			}
		})
	}
}

// What is installed from a package and where: the program, both units as they
// are, both configurations, and users. An edited configuration survives an
// upgrade, and builds survive the removal.
func TestPackages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("a package can be installed by root only")
	}
	for _, p := range []struct {
		kind             string
		install, upgrade func(root, file string) *exec.Cmd
		remove, purge    func(root string) *exec.Cmd
		kept             string // ends the name under which the edited file is after the removal
	}{
		{
			kind:    "deb",
			install: func(root, file string) *exec.Cmd { return dpkg(root, "--install", file) },
			upgrade: func(root, file string) *exec.Cmd { return dpkg(root, "--force-confold", "--install", file) },
			remove:  func(root string) *exec.Cmd { return dpkg(root, "--remove", "cimeter") },
			purge:   func(root string) *exec.Cmd { return dpkg(root, "--purge", "cimeter") },
		},
		{
			kind:    "rpm",
			install: func(root, file string) *exec.Cmd { return rpm(root, "--install", file) },
			upgrade: func(root, file string) *exec.Cmd { return rpm(root, "--upgrade", file) },
			remove:  func(root string) *exec.Cmd { return rpm(root, "--erase", "cimeter") },
			kept:    ".rpmsave",
		},
	} {
		t.Run(p.kind, func(t *testing.T) {
			t.Parallel()
			root := scratchRoot(t)
			at := func(path string) string { return filepath.Join(root, path) }
			output(t, p.install(root, makePackage(t, p.kind, "1.2.3")))
			if got := readFile(t, at(deploy.Program)); got != stub {
				t.Errorf("%s is not the program", deploy.Program)
			}
			passwd, group := readFile(t, at("/etc/passwd")), readFile(t, at("/etc/group"))
			for _, r := range deploy.Roles() {
				if got := readFile(t, at("/usr/lib/systemd/system/"+r.Unit.Path)); got != r.Unit.Text {
					t.Errorf("%s is not the unit", r.Unit.Path)
				}
				if got := readFile(t, at(r.Config.Path)); got != r.Config.Text {
					t.Errorf("%s is not the configuration", r.Config.Path)
				}
				// T30: it is for its unit's group to read, and for nobody else.
				m := regexp.MustCompile(`(?m)^` + r.User + `:[^:]*:(\d+):`).FindStringSubmatch(group)
				if st := stat(t, at(r.Config.Path)); m == nil || st.Mode&0o777 != 0o640 || st.Uid != 0 || fmt.Sprint(st.Gid) != m[1] {
					t.Errorf("%s: mode %o of %d:%d: want 640 of 0 and %s's group %v", r.Config.Path, st.Mode&0o777, st.Uid, st.Gid, r.User, m)
				}
				if !regexp.MustCompile(`(?m)^` + r.User + `:.*:` + r.Home + `:/usr/sbin/nologin$`).MatchString(passwd) {
					t.Errorf("no user %s:\n%s", r.User, passwd)
				}
			}
			if got := readFile(t, at("/usr/share/doc/cimeter/runners/gitlab-docker.md")); got != readFile(t, "../docs/runners/gitlab-docker.md") {
				t.Error("the pages of runners are not there")
			}
			if !regexp.MustCompile(`(?m)^docker:[^:]*:990:cimeter$`).MatchString(group) {
				t.Errorf("cimeter alone is to be of the group docker:\n%s", group)
			}

			write(t, at("/etc/cimeter/agent.yaml"), "pool: large\n", 0o644)
			write(t, at("/var/lib/cimeter/records/a.json"), "{}", 0o600)
			write(t, at("/etc/group"), strings.Replace(group, "990:cimeter", "990:", 1), 0o644)
			if err := os.Chown(at("/etc/cimeter/server.yaml"), 0, 4242); err != nil { // the operator's choice
				t.Fatal(err)
			}
			output(t, p.upgrade(root, makePackage(t, p.kind, "1.2.4")))
			if p.kind == "deb" { // rpm gives its files back to whom it says
				if st := stat(t, at("/etc/cimeter/server.yaml")); st.Gid != 4242 {
					t.Errorf("the upgrade gave a configuration to group %d", st.Gid)
				}
			}
			if got := readFile(t, at("/etc/cimeter/agent.yaml")); got != "pool: large\n" {
				t.Errorf("the upgrade made %q of an edited configuration", got)
			}
			if group := readFile(t, at("/etc/group")); strings.Contains(group, "990:cimeter") {
				t.Error("the upgrade gave back a right that was taken away")
			}

			output(t, p.remove(root))
			if got := readFile(t, at("/etc/cimeter/agent.yaml"+p.kept)); got != "pool: large\n" {
				t.Errorf("the removal made %q of an edited configuration", got)
			}
			readFile(t, at("/var/lib/cimeter/records/a.json"))
			if _, err := os.Stat(at(deploy.Program)); err == nil {
				t.Errorf("%s is there after the removal", deploy.Program)
			}
			if p.purge == nil {
				return
			}
			output(t, p.purge(root))
			for _, path := range []string{"/var/lib/cimeter", "/etc/cimeter"} {
				if _, err := os.Stat(at(path)); err == nil {
					t.Errorf("%s is there after the purge", path)
				}
			}
		})
	}
}

// The commands of docs/install.md make the package and put it onto a machine, which
// then has what they start.
func TestInstallPage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("a package can be installed by root only")
	}
	_, block, ok := strings.Cut(readFile(t, "../docs/install.md"), "## From a package\n\n```sh\n")
	block, _, _ = strings.Cut(block, "```")
	lines := strings.Split(strings.TrimSpace(block), "\n")
	if !ok || len(lines) != 4 || !strings.HasPrefix(lines[1], "dpkg --install ") || !strings.Contains(lines[1], "# rpm --install ") {
		t.Fatalf("docs/install.md: %q: want a package made and installed", lines)
	}
	dir, root := t.TempDir(), scratchRoot(t)
	top, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"scripts", "deploy", "docs", "CHANGELOG.md", "LICENSE"} { // a checkout
		if err := os.Symlink(filepath.Join(top, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "bin", "cimeter"), stub, 0o755)
	run := func(line string) {
		t.Helper()
		cmd := exec.Command("bash", "-eu", "-c", line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1796000000", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "DEBIAN_FRONTEND=noninteractive")
		output(t, cmd)
	}
	run(lines[0])
	debian, redHat, _ := strings.Cut(lines[1], "# ")
	run(strings.Replace(debian, "dpkg ", "dpkg --root="+root+" --force-depends ", 1))
	other := scratchRoot(t)
	run(strings.Replace(redHat, "rpm ", "rpm --root="+other+" --dbpath=/var/lib/rpm --nodeps --nosignature ", 1))
	unit := regexp.MustCompile(`^systemctl enable --now (\S+)$`).FindStringSubmatch(lines[2])
	address := regexp.MustCompile(`^curl http://(\S+)/metrics$`).FindStringSubmatch(lines[3])
	if unit == nil || address == nil {
		t.Fatalf("docs/install.md: %q: want a unit enabled, and its metrics", lines[2:])
	}
	for _, on := range []string{root, other} {
		if text := readFile(t, filepath.Join(on, "usr/lib/systemd/system", unit[1]+".service")); !strings.Contains(text, "\nWantedBy=") {
			t.Errorf("%s cannot be enabled", unit[1])
		}
		if text := readFile(t, filepath.Join(on, "etc/cimeter/agent.yaml")); !strings.Contains(text, "\nlisten: "+address[1]+"\n") {
			t.Errorf("the agent does not listen at %s", address[1])
		}
	}
}

// stat is what a file is.
func stat(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return &st
}

func dpkg(root string, args ...string) *exec.Cmd {
	// The scratch root has what the scripts call, but not as packages.
	cmd := exec.Command("dpkg", append([]string{"--root=" + root, "--force-depends", "--force-not-root"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "DEBIAN_FRONTEND=noninteractive")
	return cmd
}

func rpm(root string, args ...string) *exec.Cmd {
	return exec.Command("rpm", append([]string{"--root=" + root, "--dbpath=/var/lib/rpm", "--nodeps", "--nosignature"}, args...)...)
}

// scratchRoot is the root of a machine with a shell, useradd, and a group docker.
func scratchRoot(t *testing.T) string {
	t.Helper()
	require(t, "busybox", "useradd")
	root := t.TempDir()
	for _, dir := range []string{"bin", "sbin", "dev", "proc", "tmp", "usr/sbin", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/rpm"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, "var/lib/dpkg/status"), "", 0o644)
	write(t, filepath.Join(root, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n", 0o644)
	write(t, filepath.Join(root, "etc/group"), "root:x:0:\ndocker:x:990:\n", 0o644)
	write(t, filepath.Join(root, "etc/login.defs"), "SYS_UID_MIN 100\nSYS_UID_MAX 999\nSYS_GID_MIN 100\nSYS_GID_MAX 999\n", 0o644)
	write(t, filepath.Join(root, "dev/null"), "", 0o666)
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	install(t, root, busybox, "/bin/busybox")
	for _, applet := range []string{"sh", "grep", "rm", "cat", "stat", "chgrp"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	useradd, err := exec.LookPath("useradd")
	if err != nil {
		t.Fatal(err)
	}
	install(t, root, useradd, "/usr/sbin/useradd")
	for _, lib := range regexp.MustCompile(`/\S+\.so\S*`).FindAllString(output(t, exec.Command("ldd", useradd)), -1) {
		install(t, root, lib, lib)
	}
	return root
}

func install(t *testing.T, root, from, to string) {
	t.Helper()
	output(t, exec.Command("install", "-D", "-m", "0755", from, filepath.Join(root, to)))
}

// The scripts of the packages pass a shell's eye, and refuse what they cannot do.
func TestPackageScript(t *testing.T) {
	for _, args := range [][]string{{}, {"1.2.3", "riscv64", "/bin/true", t.TempDir()}, {"v1", "amd64", "/bin/true", t.TempDir()}, {"1-2", "amd64", "/bin/true", t.TempDir()}} {
		out, err := exec.Command("../scripts/package.sh", args...).CombinedOutput()
		if err == nil || len(out) == 0 {
			t.Errorf("package.sh %v: %v, %q: want a refusal that says why", args, err, out)
		}
	}
	for _, f := range []string{"config/users.sh", "deb/prerm", "deb/postrm"} {
		output(t, exec.Command("sh", "-n", f))
	}
	if !slices.Contains(strings.Fields(readFile(t, "deb/control")), "passwd") {
		t.Error("the package does not depend on what has useradd")
	}
}
