// Package install puts cimeter on a machine without a package manager, and takes
// it away again.
//
// It owns the program, the unit, the first configuration and the user of a role
// below a folder that is the machine's root. It never replaces or removes a file
// that somebody else wrote or edited, never leaves that folder, and starts
// nothing. Start with [Install]. Two at once on one machine are not safe.
package install

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cimeter/cimeter/deploy"
)

const (
	// Program is where the program goes: packages have it in /usr/bin.
	Program = "/usr/local/bin/cimeter"
	units   = "/etc/systemd/system"
	// manifest lists what was written in the form of sha256sum, so that what was
	// edited since can be told.
	manifest = deploy.ConfigDir + "/installed.sha256"
	// fresh ends the name of what would replace an edited file.
	fresh = ".new"
)

// Options says what is installed, and where.
type Options struct {
	Root    string // folder that is the machine's root; "" is /
	Role    deploy.Role
	Program string // path of the program to install
}

// Step is one thing that was done, or left.
type Step struct {
	Done string // written, replaced, unchanged, kept, made, removed
	What string
}

// Install puts a role on the machine. What was done before an error is told with
// it; all of it can be done again.
func Install(o Options) (done []Step, err error) {
	m, err := open(o.Root)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	program, err := os.ReadFile(o.Program)
	if err != nil {
		return nil, fmt.Errorf("install: %w", err)
	}
	// A program that is not ours is not ours to put aside either.
	if edited, err := m.edited(Program, program); err != nil || edited {
		return nil, errors.Join(err, unless(err, "install: %s is a program that was not written by install: remove it first", Program))
	}
	made, user, err := m.user(o)
	done = append(done, made...)
	if err != nil {
		return done, err
	}
	unit := strings.ReplaceAll(o.Role.Unit.Text, deploy.Program+" ", Program+" ")
	for _, f := range []struct {
		path    string
		content []byte
		mode    os.FileMode
		group   int
	}{
		{Program, program, 0o755, 0},
		// It may name secrets' files, and holds addresses: the role's alone.
		{o.Role.Config.Path, []byte(o.Role.Config.Text), 0o640, user},
		{path.Join(units, o.Role.Unit.Path), []byte(unit), 0o644, 0},
	} {
		step, err := m.put(f.path, f.content, f.mode, f.group)
		if err != nil {
			return done, errors.Join(err, m.save())
		}
		done = append(done, step)
	}
	return done, m.save()
}

// unless returns the error of format, or nil where there is one already.
func unless(err error, format string, args ...any) error {
	if err != nil {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// Uninstall takes a role's files away: those that are as install wrote them, and
// the program with the last role. Data and user stay.
func Uninstall(o Options) (done []Step, err error) {
	m, err := open(o.Root)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	unit := path.Join(units, o.Role.Unit.Path)
	paths := []string{path.Join(units, "multi-user.target.wants", o.Role.Unit.Path), unit, unit + fresh, o.Role.Config.Path, o.Role.Config.Path + fresh}
	last := true
	for _, r := range deploy.Roles() {
		_, other := m.sums[path.Join(units, r.Unit.Path)]
		last = last && (!other || r.Name == o.Role.Name)
	}
	if last {
		paths = append(paths, Program)
	}
	for _, p := range paths {
		step, err := m.remove(p)
		if err != nil {
			return done, errors.Join(err, m.save())
		}
		if step != (Step{}) {
			done = append(done, step)
		}
	}
	return done, m.save()
}

// machine is a root folder with what install has written there.
type machine struct {
	*os.Root
	sums map[string]string // SHA-256 in hex by absolute path
}

func open(root string) (*machine, error) {
	if root == "" {
		root = "/"
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("install: %w", err)
	}
	m := &machine{Root: r, sums: map[string]string{}}
	text, err := r.ReadFile(rel(manifest))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Close()
		return nil, fmt.Errorf("install: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if sum, p, ok := strings.Cut(strings.TrimSpace(line), "  "); ok {
			m.sums[p] = sum
		}
	}
	return m, nil
}

// rel is an absolute path as os.Root wants it.
func rel(p string) string { return strings.TrimPrefix(p, "/") }

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// edited reports whether there is a file that neither install wrote nor has this
// content.
func (m *machine) edited(p string, content []byte) (bool, error) {
	b, err := m.ReadFile(rel(p))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("install: %w", err)
	}
	return !bytes.Equal(b, content) && m.sums[p] != sum(b), nil
}

// put writes a file, or the new one beside it where it was edited.
func (m *machine) put(p string, content []byte, mode os.FileMode, group int) (Step, error) {
	edited, err := m.edited(p, content)
	if err != nil {
		return Step{}, err
	}
	if edited {
		if err := m.write(p+fresh, content, mode, group); err != nil {
			return Step{}, err
		}
		return Step{"kept", p + ", which was edited; what is new is in " + p + fresh}, nil
	}
	switch b, err := m.ReadFile(rel(p)); {
	case err != nil: // there is none
		return Step{"written", p}, m.write(p, content, mode, group)
	case bytes.Equal(b, content):
		m.sums[p] = sum(content)
		return Step{"unchanged", p}, nil
	}
	return Step{"replaced", p}, m.write(p, content, mode, group)
}

// write has the file there whole, or as it was.
func (m *machine) write(p string, content []byte, mode os.FileMode, group int) error {
	part := rel(p) + ".part"
	err := m.MkdirAll(path.Dir(rel(p)), 0o755)
	if err == nil {
		err = m.writePart(part, content, mode, group)
	}
	if err == nil {
		err = m.Rename(part, rel(p))
	}
	if err != nil {
		_ = m.Remove(part) // there may be none
		return fmt.Errorf("install %s: %w", p, err)
	}
	m.sums[p] = sum(content)
	return nil
}

func (m *machine) writePart(part string, content []byte, mode os.FileMode, group int) error {
	f, err := m.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && group != 0 {
		err = f.Chown(0, group)
	}
	if err == nil {
		err = f.Chmod(mode) // after chown and past the umask
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// remove takes a file away that is as install wrote it, or a link that systemctl
// made. The zero Step is that there is none.
func (m *machine) remove(p string) (Step, error) {
	st, err := m.Lstat(rel(p))
	if errors.Is(err, fs.ErrNotExist) {
		delete(m.sums, p)
		return Step{}, nil
	}
	if err != nil {
		return Step{}, fmt.Errorf("uninstall: %w", err)
	}
	if st.Mode()&fs.ModeSymlink == 0 {
		b, err := m.ReadFile(rel(p))
		if err != nil {
			return Step{}, fmt.Errorf("uninstall: %w", err)
		}
		if m.sums[p] != sum(b) {
			delete(m.sums, p)
			return Step{"kept", p + ", which was not written by install or was edited"}, nil
		}
	}
	if err := m.Remove(rel(p)); err != nil {
		return Step{}, fmt.Errorf("uninstall: %w", err)
	}
	delete(m.sums, p)
	return Step{"removed", p}, nil
}

// save writes the manifest, or takes it away with its folder when nothing is
// left that install wrote.
func (m *machine) save() error {
	if len(m.sums) == 0 {
		if err := m.Remove(rel(manifest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("uninstall: %w", err)
		}
		_ = m.Remove(rel(deploy.ConfigDir)) // it stays where something is in it
		return nil
	}
	var b strings.Builder
	for _, p := range slices.Sorted(maps.Keys(m.sums)) {
		fmt.Fprintf(&b, "%s  %s\n", m.sums[p], p)
	}
	err := m.write(manifest, []byte(b.String()), 0o644, 0)
	delete(m.sums, manifest)
	return err
}
