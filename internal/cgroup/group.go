package cgroup

import (
	"fmt"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// States of a file of a group that has no descriptor.
const (
	absent      = -1 // the kernel has no such file here (now)
	deferred    = -2 // no descriptor was free: opened at each read
	unsupported = -3 // the kernel refuses to fill it
)

// Group is one cgroup whose files are kept open.
type Group struct {
	h    *Host
	path string

	inodes      [maxHierarchies]uint64 // of its folder in each hierarchy, 0 where there is none
	fds         [maxFiles]int32        // descriptor, or a state
	open        int
	bad         uint32 // files whose latest read was bad, one bit each
	gone        bool
	lives       bool   // hybrid: processes have run in its folder of the v2 hierarchy
	probes      uint8  // times it was looked whether they have
	inactive    uint64 // bytes of inactive file pages, at the latest Full read
	hasInactive bool
	ticks       modes // of v1's cpuacct.stat, at the latest Full read
	hasTicks    bool
	told        modes  // user and system time as they were given out last
	cpu         uint64 // nanoseconds, as of the latest reading
	idle        bool   // that reading found none more than the one before: no process has run
	ioBytes     uint64 // v1: bytes read and written, as of the latest reading
	ioMoved     bool   // v1: that reading found more of them than the one before
}

// maxProbes is after how many Full readings without a process in the v2 folder of
// a hybrid host it is no longer looked for one.
const maxProbes = 8

// maxHierarchies bounds the hierarchies of a host: five v1 controllers and v2.
const maxHierarchies = 6

// Group opens the cgroup at p, a path such as /docker/ID that is relative to
// the hierarchies' roots. Files that are not there are remembered as absent.
// The error wraps cimeter.ErrGone when no metered hierarchy has the folder and
// cimeter.ErrInvalid when p is no such path. Close it after use.
func (h *Host) Group(p string) (*Group, error) {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != p {
		return nil, fmt.Errorf("open cgroup %q: want a clean path that starts with /: %w", p, cimeter.ErrInvalid)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g := &Group{h: h, path: p}
	for i := range g.fds {
		g.fds[i] = absent
	}
	if g.openFiles(); g.gone || !g.exists() {
		g.close()
		return nil, fmt.Errorf("open cgroup %s: no folder in %s: %w", p, h.WatchDir(), cimeter.ErrGone)
	}
	return g, nil
}

// exists reports whether g has a folder in any metered hierarchy. The v2
// hierarchy of a hybrid host is not one: runtimes leave it out.
func (g *Group) exists() bool {
	for i := range g.h.hierarchies {
		if g.inodes[i] != 0 && g.h.meters(i) {
			return true
		}
	}
	return false
}

// meters reports whether the life of a group is told by hierarchy i.
func (h *Host) meters(i int) bool { return !h.hierarchies[i].v2 || h.layout == "v2" }

// openFiles opens the files that are absent or deferred and returns how many
// are still absent. It sets gone when a folder is there that is not the one it
// was.
func (g *Group) openFiles() int {
	missing := 0
	for hi := range g.h.hierarchies {
		missing += g.openFolder(hi)
	}
	return missing
}

// openFolder is openFiles for one hierarchy. Files are opened relative to the
// folder's own descriptor, so that all are of the same cgroup, even if it is
// removed and made again meanwhile.
func (g *Group) openFolder(hi int) (missing int) {
	h := g.h
	dir, starved := -1, false
	for i := range h.files {
		f := &h.files[i]
		if f.hierarchy != hi || g.fds[i] >= 0 || g.fds[i] == unsupported {
			continue
		}
		if f.unsupported {
			g.fds[i] = unsupported
			continue
		}
		if dir == -1 {
			var errno syscall.Errno
			dir, starved, errno = h.openFile(unix.AT_FDCWD, g.folder(hi), unix.O_PATH|unix.O_DIRECTORY)
			if errno == 0 && !g.sameFolder(hi, dir) {
				_ = syscall.Close(dir)
				g.gone = true
				errno = syscall.ENOENT
			}
			switch {
			case errno == syscall.EMFILE || errno == syscall.ENFILE:
				dir = -3
				g.statFolder(hi)
			case errno != 0:
				dir = -2
			}
		}
		switch {
		case dir == -2:
			missing++
			continue
		case dir == -3 || starved || h.open >= h.limit:
			if g.fds[i] != deferred && !exists(g.folder(hi)+"/"+f.name) {
				missing++
				continue
			}
			g.fds[i] = deferred
			continue
		}
		name, flags := f.name, syscall.O_RDONLY
		if f.kind == kindProcs && !h.hierarchies[hi].v2 {
			// A v1 hierarchy keeps the list that a descriptor has read for a
			// second (kernel/cgroup/cgroup-v1.c, cgroup_pidlist_start): read
			// again through it, the list is stale. The folder is kept, and the
			// file opened in it each time.
			name, flags = ".", unix.O_PATH|unix.O_DIRECTORY
		}
		fd, hungry, errno := h.openFile(dir, name, flags)
		switch {
		case errno == syscall.EMFILE || errno == syscall.ENFILE:
			g.fds[i] = deferred
		case errno != 0:
			missing++
		case hungry:
			_ = syscall.Close(fd)
			h.takeSpare()
			g.fds[i] = deferred
		default:
			g.keep(i, fd)
		}
	}
	if dir >= 0 {
		_ = syscall.Close(dir)
	}
	if starved {
		h.takeSpare()
	}
	return missing
}

func (g *Group) keep(i, fd int) {
	g.fds[i] = int32(fd)
	g.open++
	g.h.open++
}

func (g *Group) drop(i int, state int32) {
	if fd := g.fds[i]; fd >= 0 {
		_ = syscall.Close(int(fd))
		g.open--
		g.h.open--
	}
	g.fds[i] = state
}

// sameFolder reports whether the folder behind descriptor dir is the one that g
// was opened on, and remembers it when it is the first.
func (g *Group) sameFolder(hi, dir int) bool {
	var st syscall.Stat_t
	if syscall.Fstat(dir, &st) != nil {
		return false
	}
	if g.inodes[hi] == 0 {
		g.inodes[hi] = st.Ino
	}
	return g.inodes[hi] == st.Ino
}

// statFolder is sameFolder by path.
func (g *Group) statFolder(hi int) bool {
	var st syscall.Stat_t
	if syscall.Stat(g.folder(hi), &st) != nil {
		return false
	}
	if g.inodes[hi] == 0 {
		g.inodes[hi] = st.Ino
	}
	return g.inodes[hi] == st.Ino
}

// folder returns the absolute path of g in hierarchy hi.
func (g *Group) folder(hi int) string {
	if g.path == "/" {
		return g.h.hierarchies[hi].dir
	}
	return g.h.hierarchies[hi].dir + g.path
}

// Path returns the path that g was opened by.
func (g *Group) Path() string { return g.path }

// Inode returns the inode number of g's folder in the hierarchy of
// Host.WatchDir, or, when it has none there, in the first that has it. A cgroup
// that is made again under the same name has another.
func (g *Group) Inode() uint64 {
	if n := g.inodes[g.h.watch]; n != 0 {
		return n
	}
	for i, n := range g.inodes {
		if n != 0 && g.h.meters(i) {
			return n
		}
	}
	return 0
}

// Retry opens files that were absent so far (a runtime makes a group's folder
// in the v2 hierarchy of a hybrid host last) or had no descriptor, and returns
// how many are still absent.
func (g *Group) Retry() int {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	if g.gone {
		return 0
	}
	return g.openFiles()
}

// Files returns how many descriptors g keeps open.
func (g *Group) Files() int {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	return g.open
}

// Close closes g's files. A later Read returns cimeter.ErrGone. Close may be
// called more than once.
func (g *Group) Close() {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	g.close()
}

func (g *Group) close() {
	for i := range g.fds {
		g.drop(i, absent)
	}
	g.gone = true
}
