package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cimeter/cimeter"
)

// mount is one line of mountinfo.
type mount struct {
	root, point, kind, options string
}

// parseMountinfo parses /proc/self/mountinfo (proc_pid_mountinfo(5)). Only
// mounts of cgroup file systems are returned, in the file's order; other lines
// are not looked at.
//
//	35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
//	41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
func parseMountinfo(b []byte) ([]mount, error) {
	var ms []mount
	for len(b) > 0 {
		var l []byte
		l, b = line(b)
		left, right, ok := bytes.Cut(l, []byte(" - "))
		if !ok {
			continue
		}
		kind, rest := word(right)
		if string(kind) != "cgroup" && string(kind) != "cgroup2" {
			continue
		}
		f, r := bytes.Fields(left), bytes.Fields(rest)
		if len(f) < 6 || len(r) < 2 {
			return nil, malformed("mountinfo", l, "six fields or more, then a type, a source and options")
		}
		ms = append(ms, mount{
			root: unescape(string(f[3])), point: unescape(string(f[4])),
			kind: string(kind), options: string(r[len(r)-1]),
		})
	}
	return ms, nil
}

// unescape replaces the octal escapes that mountinfo uses for space, tab,
// newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// hierarchy is one mounted tree of cgroups.
type hierarchy struct {
	dir         string
	v2          bool
	controllers []string // v1: of the mount; v2: enabled at its root
}

// controllers is what is metered, in the order in which runc 1.1 joins them
// (libcontainer/cgroups/fs/fs.go).
var controllers = [...]string{"memory", "cpu", "cpuacct", "pids", "blkio"}

// findHierarchies returns the hierarchies under root: those that mountinfo
// tells of, else (a fixture, a sub-folder of a mount) those that the files in
// root make out.
func findHierarchies(root, proc string) ([]hierarchy, error) {
	path := filepath.Join(proc, "self/mountinfo")
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	mounts, err := parseMountinfo(b)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	var hs []hierarchy
	for _, m := range mounts {
		if m.point != root && !strings.HasPrefix(m.point, strings.TrimSuffix(root, "/")+"/") {
			continue
		}
		hr := hierarchy{dir: m.point, v2: m.kind == "cgroup2"}
		for o := range strings.SplitSeq(m.options, ",") {
			if !hr.v2 && slices.Contains(controllers[:], o) {
				hr.controllers = append(hr.controllers, o)
			}
		}
		// A later mount on the same point hides the earlier one.
		hs = slices.DeleteFunc(hs, func(o hierarchy) bool { return o.dir == hr.dir })
		if hr.v2 || len(hr.controllers) > 0 {
			hs = append(hs, hr)
		}
	}
	if len(hs) == 0 {
		if hs, err = guessHierarchies(root); err != nil {
			return nil, err
		}
	}
	for i := range hs {
		if !hs[i].v2 {
			continue
		}
		b, err := os.ReadFile(filepath.Join(hs[i].dir, "cgroup.controllers"))
		if err != nil {
			return nil, fmt.Errorf("read controllers of cgroup v2: %w", err)
		}
		hs[i].controllers = strings.Fields(string(b))
	}
	return hs, nil
}

// guessHierarchies finds hierarchies by the files in root.
func guessHierarchies(root string) ([]hierarchy, error) {
	if exists(filepath.Join(root, "cgroup.controllers")) {
		return []hierarchy{{dir: root, v2: true}}, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("look for cgroups: %w", err)
	}
	var hs []hierarchy
	for _, e := range entries {
		if !e.IsDir() { // also symbolic links such as cpu -> cpu,cpuacct
			continue
		}
		dir := filepath.Join(root, e.Name())
		if exists(filepath.Join(dir, "cgroup.controllers")) {
			hs = append(hs, hierarchy{dir: dir, v2: true})
			continue
		}
		var names []string
		for name := range strings.SplitSeq(e.Name(), ",") {
			if slices.Contains(controllers[:], name) {
				names = append(names, name)
			}
		}
		if len(names) > 0 && exists(filepath.Join(dir, "cgroup.procs")) {
			hs = append(hs, hierarchy{dir: dir, controllers: names})
		}
	}
	if len(hs) == 0 {
		return nil, fmt.Errorf("look for cgroups in %s: no mounted hierarchy: want cgroup.controllers (v2) or folders such as cpuacct, memory (v1): %w",
			root, cimeter.ErrUnsupported)
	}
	return hs, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
