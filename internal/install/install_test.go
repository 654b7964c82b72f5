package install_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/deploy"
	"github.com/cimeter/cimeter/internal/install"
)

// machine is a root folder in which the users of all roles are.
type machine struct {
	t    *testing.T
	root string
	prog string
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, root: t.TempDir(), prog: filepath.Join(t.TempDir(), "cimeter")}
	var passwd, group strings.Builder
	for _, r := range deploy.Roles() {
		passwd.WriteString(r.User + ":x:990:990::" + r.Home + ":/usr/sbin/nologin\n")
		group.WriteString(r.User + ":x:990:\n")
	}
	m.write("/etc/passwd", passwd.String())
	m.write("/etc/group", group.String())
	m.build("one")
	return m
}

// build makes the program that is installed from now on.
func (m *machine) build(text string) {
	m.t.Helper()
	if err := os.WriteFile(m.prog, []byte(text), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	at := filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// want compares a file with a text; "": there is none.
func (m *machine) want(path, text string) {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.root, path))
	if err != nil && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	if string(b) != text {
		m.t.Errorf("%s holds %.60q, want %.60q", path, b, text)
	}
}

// do installs a role, or takes it away, and returns what was done in words.
func (m *machine) do(what func(install.Options) ([]install.Step, error), r deploy.Role) string {
	m.t.Helper()
	steps, err := what(install.Options{Root: m.root, Role: r, Program: m.prog})
	if err != nil {
		m.t.Fatal(err)
	}
	var words []string
	for _, s := range steps {
		words = append(words, s.Done)
	}
	return strings.Join(words, " ")
}

// What somebody else wrote or edited is never replaced or removed; the program goes
// with the last role.
func TestInstall(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("files of other groups are made by root only")
	}
	roles := deploy.Roles()
	a, b := roles[0], roles[1]
	unit := func(r deploy.Role) string { return "/etc/systemd/system/" + r.Unit.Path }
	m := newMachine(t)
	if got := m.do(install.Install, a); got != "unchanged written written written" {
		t.Errorf("first: %s", got)
	}
	m.want(install.Program, "one")
	m.want(a.Config.Path, a.Config.Text)
	m.want(unit(a), strings.ReplaceAll(a.Unit.Text, deploy.Program+" ", install.Program+" "))
	fi, err := os.Stat(filepath.Join(m.root, a.Config.Path))
	if err != nil || fi.Mode().Perm() != 0o640 {
		t.Errorf("configuration %v, %v: want it for its group alone", fi.Mode(), err)
	}
	m.do(install.Install, b)
	m.build("two")
	m.write(a.Config.Path, "pool: large\n")
	if got := m.do(install.Install, a); got != "unchanged replaced kept unchanged" {
		t.Errorf("an upgrade: %s", got)
	}
	m.want(install.Program, "two")
	m.want(a.Config.Path, "pool: large\n")
	m.want(a.Config.Path+".new", a.Config.Text)

	if got := m.do(install.Uninstall, a); got != "removed kept removed" {
		t.Errorf("one of two roles: %s", got)
	}
	m.want(unit(a), "")
	m.want(a.Config.Path, "pool: large\n")
	m.want(install.Program, "two")
	m.do(install.Uninstall, b)
	m.want(install.Program, "")
	m.want(b.Config.Path, "")

	m.write(install.Program, "another's")
	if _, err := install.Install(install.Options{Root: m.root, Role: a, Program: m.prog}); err == nil {
		t.Error("a program of somebody else is replaced")
	}
	m.want(install.Program, "another's")
}
