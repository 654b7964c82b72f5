package wrap

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxMountinfo bounds what is read of /proc/self/mountinfo: a machine with
// thousands of containers has some thousand lines of 200 bytes.
const maxMountinfo = 8 << 20

// hierarchy is one mounted cgroup hierarchy and where this process is in it.
type hierarchy struct {
	unified     bool
	controllers []string // v1 only: those mounted together here
	mount       string   // mount point
	path        string   // own cgroup below the mount point, "/" at its top
}

// dir returns the own cgroup's folder.
func (h hierarchy) dir() string { return filepath.Join(h.mount, h.path) }

// errNoCgroup says that no cgroup hierarchy of this process can be seen.
var errNoCgroup = errors.New("no cgroup mount shows this process")

// readHierarchies returns the cgroup hierarchies mounted here in which the
// process proc/self can be seen, v1 ones that meter nothing left out.
func readHierarchies(proc string) ([]hierarchy, error) {
	own, err := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	if err != nil {
		return nil, fmt.Errorf("read own cgroups: %w", err)
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	hs := matchHierarchies(own, mounts[:min(len(mounts), maxMountinfo)])
	if len(hs) == 0 {
		return nil, errNoCgroup
	}
	return hs, nil
}

// meteringControllers are the v1 controllers whose files are read. cpu is not
// one of them: without a quota of its own its cpu.stat has nothing to say, and
// a cpu cgroup would change how the command competes for the processors. Nor is
// blkio: it does not see what is written through the page cache (v1 has no
// cgroup writeback), and forgets what a cgroup below did once that is removed
// (block/blk-cgroup-rwstat.c sums over those that are there).
var meteringControllers = [...]string{"cpuacct", "memory", "pids"}

// matchHierarchies joins proc/self/cgroup
//
//	4:memory:/docker/0123
//	1:cpu,cpuacct:/docker/0123
//	0::/docker/0123
//
// with the cgroup lines of proc/self/mountinfo (proc_pid_mountinfo(5)): field
// 4 is the root of the mount within the hierarchy, field 5 the mount point,
// and after a lone "-" come the type, the source and the super options.
func matchHierarchies(own, mountinfo []byte) []hierarchy {
	var hs []hierarchy
	seen := map[string]bool{}
	for line := range bytes.Lines(mountinfo) {
		before, after, ok := strings.Cut(string(bytes.TrimSpace(line)), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 1 {
			continue
		}
		root, point := unescape(f[3]), unescape(f[4])
		h := hierarchy{mount: point}
		var key string
		switch {
		case g[0] == "cgroup2":
			h.unified = true
		case g[0] == "cgroup" && len(g) >= 3:
			for _, o := range strings.Split(g[2], ",") {
				if o == "cpu" || slices.Contains(meteringControllers[:], o) {
					h.controllers = append(h.controllers, o)
				}
			}
			if len(h.controllers) == 0 || len(h.controllers) == 1 && h.controllers[0] == "cpu" {
				continue
			}
			key = h.controllers[0]
		default:
			continue
		}
		path, ok := ownPath(own, key)
		if !ok || seen[key] {
			continue
		}
		if h.path, ok = below(path, root); !ok {
			continue
		}
		seen[key] = true
		hs = append(hs, h)
	}
	return hs
}

// ownPath returns the path of the process in the hierarchy that controller
// belongs to, the unified one for "".
func ownPath(own []byte, controller string) (string, bool) {
	s := bufio.NewScanner(bytes.NewReader(own))
	for s.Scan() {
		f := strings.SplitN(s.Text(), ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			continue
		}
		if controller == "" && f[0] == "0" && f[1] == "" ||
			controller != "" && slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2], true
		}
	}
	return "", false
}

// below returns path as seen below root; false when it lies outside.
func below(path, root string) (string, bool) {
	if slices.Contains(strings.Split(path, "/"), "..") || slices.Contains(strings.Split(root, "/"), "..") {
		return "", false
	}
	if root == "/" {
		return filepath.Clean(path), true
	}
	rest, ok := strings.CutPrefix(path, root)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return filepath.Clean("/" + rest), true
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
