package wrap

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// makeUnified makes name and its inner cgroup in the unified hierarchy h.
func (n *nest) makeUnified(h hierarchy, name string) error {
	parent, want := chooseParent(h)
	made := filepath.Join(parent, name)
	if err := os.Mkdir(made, 0o755); err != nil {
		return err
	}
	p := place{hierarchy: h, parent: parent, made: made, joined: filepath.Join(made, inner)}
	if err := os.Mkdir(p.joined, 0o755); err != nil {
		return errors.Join(err, os.Remove(made))
	}
	if len(want) > 0 {
		if missing := without(want, words(filepath.Join(parent, "cgroup.subtree_control"))); len(missing) > 0 {
			n.self.enable(parent, name, missing)
		}
		enable(made, words(filepath.Join(made, "cgroup.controllers")))
	}
	n.places = append(n.places, p)
	return nil
}

// unifiedControllers are those whose files are read on a unified hierarchy and
// that must be switched on for them; cpu.stat is there without one.
var unifiedControllers = [...]string{"memory", "io", "pids"}

// chooseParent returns the folder in the unified hierarchy h under which a
// cgroup for the command is to be made and the controllers that it can have
// there: the nearest of the own cgroup and those above it that can hand on
// memory, else the nearest that can hand on anything, else the own one. It does
// not climb out of a cgroup with limits of its own, which must hold for the
// command too, nor out of the cgroup of a run around this one, which must go on
// counting it.
func chooseParent(h hierarchy) (parent string, controllers []string) {
	parent = h.dir()
	for at := h.path; ; at = filepath.Dir(at) {
		dir := filepath.Join(h.mount, at)
		if can := canHandOn(dir); slices.Contains(can, "memory") {
			return dir, can
		} else if len(can) > 0 && len(controllers) == 0 {
			parent, controllers = dir, can
		}
		outer := strings.HasPrefix(filepath.Base(dir), prefix)
		if outer && len(controllers) == 0 && writable(dir) {
			return dir, nil // beside the inner cgroup, where it is with controllers, too
		}
		if at == "/" || limited(dir) || outer {
			return parent, controllers
		}
	}
}

// canHandOn returns the metered controllers that a new cgroup in dir can have.
func canHandOn(dir string) []string {
	available := wanted(words(filepath.Join(dir, "cgroup.controllers")))
	if len(available) == 0 || !writable(dir) || !writable(filepath.Join(dir, "cgroup.procs")) {
		return nil
	}
	handed := words(filepath.Join(dir, "cgroup.subtree_control"))
	if len(without(available, handed)) == 0 || writable(filepath.Join(dir, "cgroup.subtree_control")) && mayHandOn(dir) {
		return available
	}
	return wanted(handed)
}

// mayHandOn reports whether controllers can be switched on for the children of
// dir: it is the root of the hierarchy, or holds no process but this one.
func mayHandOn(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); errors.Is(err, fs.ErrNotExist) {
		return true
	}
	for _, pid := range words(filepath.Join(dir, "cgroup.procs")) {
		if pid != strconv.Itoa(os.Getpid()) {
			return false
		}
	}
	return true
}

// limited reports whether the cgroup dir itself holds its processes back.
func limited(dir string) bool {
	for _, f := range [...]string{"memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max"} {
		if w := words(filepath.Join(dir, f)); len(w) > 0 && w[0] != "max" {
			return true
		}
	}
	return len(words(filepath.Join(dir, "cpuset.cpus"))) > 0 || len(words(filepath.Join(dir, "io.max"))) > 0
}

// selfMove is what was done to the own cgroup so that it can hand controllers
// on: this process moved into a leaf below it.
type selfMove struct {
	parent, leaf string
	enabled      []string
}

// enable switches controllers on for the children of parent; when parent is
// the own cgroup, this process first moves into a leaf of its own. What does
// not work leaves the new cgroup with fewer readings.
func (s *selfMove) enable(parent, name string, controllers []string) {
	s.parent, s.enabled = parent, controllers
	own := slices.Contains(words(filepath.Join(parent, "cgroup.procs")), strconv.Itoa(os.Getpid()))
	if _, err := os.Stat(filepath.Join(parent, "cgroup.type")); own && err == nil {
		leaf := filepath.Join(parent, name+"-self")
		if os.Mkdir(leaf, 0o755) != nil {
			return
		}
		s.leaf = leaf
		if write(filepath.Join(leaf, "cgroup.procs"), "0") != nil {
			return
		}
	}
	enable(parent, controllers)
}

// undo moves this process back and takes the leaf away.
func (s *selfMove) undo() {
	if s.leaf == "" {
		return
	}
	for _, c := range s.enabled {
		_ = write(filepath.Join(s.parent, "cgroup.subtree_control"), "-"+c)
	}
	_ = write(filepath.Join(s.parent, "cgroup.procs"), "0")
	_ = os.Remove(s.leaf)
}

// enable switches the metered ones of controllers on for the children of dir,
// one by one: one that cannot be must not keep the others from it.
func enable(dir string, controllers []string) {
	for _, c := range wanted(controllers) {
		_ = write(filepath.Join(dir, "cgroup.subtree_control"), "+"+c)
	}
}

// wanted returns those of controllers that are metered.
func wanted(controllers []string) []string {
	var w []string
	for _, c := range unifiedControllers {
		if slices.Contains(controllers, c) {
			w = append(w, c)
		}
	}
	return w
}

// without returns those of a that are not in b.
func without(a, b []string) []string {
	var w []string
	for _, c := range a {
		if !slices.Contains(b, c) {
			w = append(w, c)
		}
	}
	return w
}
