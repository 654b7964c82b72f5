package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// Procs appends the ids of the processes in g itself, not below it, to dst: in
// the pid namespace of the proc file system's reader, those outside of it left
// out. It allocates only when dst must grow. A threaded cgroup of v2, whose
// processes belong to the root of its threaded tree, has none. The error wraps
// cimeter.ErrGone when the cgroup is removed.
func (g *Group) Procs(dst []int) ([]int, error) {
	h := g.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.gone {
		return dst, fmt.Errorf("list processes of cgroup %s: %w", g.path, cimeter.ErrGone)
	}
	last := len(h.files) - 1 // cgroup.procs, see chooseFiles
	fd := int(g.fds[last])
	if fd >= 0 && h.hierarchies[h.procs].v2 {
		dst, errno := h.readProcs(fd, dst)
		return dst, g.procsError(errno)
	}
	var errno syscall.Errno
	if fd >= 0 { // v1: what is kept is the folder
		dst, errno = h.openProcs(fd, h.files[last].name, dst)
	} else {
		dst, errno = h.openProcs(unix.AT_FDCWD, g.folder(h.procs)+"/cgroup.procs", dst)
	}
	if errno == 0 && fd == deferred {
		h.degraded++
	}
	return dst, g.procsError(errno)
}

func (g *Group) procsError(errno syscall.Errno) error {
	switch errno {
	case 0, syscall.EOPNOTSUPP:
		return nil
	case syscall.ENODEV, syscall.ENOENT:
		return fmt.Errorf("list processes of cgroup %s: %w", g.path, cimeter.ErrGone)
	}
	return fmt.Errorf("list processes of cgroup %s: %w", g.path, errno)
}

// openProcs is readProcs by open, read and close.
func (h *Host) openProcs(dir int, path string, dst []int) ([]int, syscall.Errno) {
	fd, starved, errno := h.openFile(dir, path, syscall.O_RDONLY)
	if errno != 0 {
		h.takeSpare()
		return dst, errno
	}
	dst, errno = h.readProcs(fd, dst)
	_ = syscall.Close(fd)
	if starved {
		h.takeSpare()
	}
	return dst, errno
}

// readProcs appends the ids in a cgroup.procs file to dst. Unlike the files of
// one record it comes in pieces, at whole lines on a kernel file.
//
//	4242
//	4243
func (h *Host) readProcs(fd int, dst []int) ([]int, syscall.Errno) {
	var offset int64
	part := 0 // bytes of an unfinished line at the buffer's start
	for {
		n, err := syscall.Pread(fd, h.buf[part:], offset)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			errno, _ := err.(syscall.Errno)
			return dst, errno
		}
		offset += int64(n)
		b := h.buf[:part+n]
		var rest []byte
		dst, rest = parseProcs(b, n == 0, dst)
		if n == 0 {
			return dst, 0
		}
		part = copy(h.buf, rest)
		if part == len(h.buf) {
			return dst, syscall.EINVAL // no line is that long
		}
	}
}

// parseProcs appends the ids of the whole lines in b to dst and returns the
// unfinished one; with last, the unfinished one counts, too. Lines that are not
// a number and 0, a process of another pid namespace, are left out.
func parseProcs(b []byte, last bool, dst []int) ([]int, []byte) {
	for len(b) > 0 {
		v, n := digits(b)
		end := n
		for end < len(b) && b[end] != '\n' {
			end++
		}
		if end == len(b) && !last {
			return dst, b
		}
		if n > 0 && n == end && v > 0 && v <= maxPid {
			dst = append(dst, int(v))
		}
		b = b[min(end+1, len(b)):]
	}
	return dst, nil
}

// maxPid is PID_MAX_LIMIT of 64-bit kernels (include/linux/threads.h).
const maxPid = 4 << 20

// Populated reports whether a process lives in g or below it. The error wraps
// cimeter.ErrGone when the cgroup is removed.
func (g *Group) Populated() (bool, error) {
	h := g.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.gone {
		return false, fmt.Errorf("read processes of cgroup %s: %w", g.path, cimeter.ErrGone)
	}
	if h.v2 >= 0 {
		path := g.folder(h.v2) + "/cgroup.events"
		b, errno := h.readPath(path)
		if errno == 0 && !g.removed(h.v2) {
			v, known, err := parseKey(b, "populated")
			if err != nil || !known {
				h.count(fmt.Errorf("parse %s: %w", path, err))
			} else if v != 0 || h.layout == "v2" {
				return v != 0, nil
			}
			// Hybrid, and nobody in its folder of the v2 hierarchy: its
			// processes may be in the others only.
		} else if h.layout == "v2" && errno != 0 && errno != syscall.ENOENT && errno != syscall.ENODEV {
			return false, fmt.Errorf("read %s: %w", path, errno)
		}
	}
	if g.removed(h.procs) || !exists(g.folder(h.procs)) {
		return false, fmt.Errorf("read processes of cgroup %s: %w", g.path, cimeter.ErrGone)
	}
	left := maxFolders
	return h.anyProcess(g.folder(h.procs), &left)
}

// maxFolders bounds how many cgroups below one are looked into for processes.
const maxFolders = 10_000

func (h *Host) anyProcess(dir string, left *int) (bool, error) {
	if *left--; *left < 0 {
		return false, fmt.Errorf("look for processes below %s: more than %d cgroups", dir, maxFolders)
	}
	pids, errno := h.openProcs(unix.AT_FDCWD, dir+"/cgroup.procs", nil)
	if errno == 0 && len(pids) > 0 {
		return true, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		if os.IsNotExist(err) {
			return false, nil // removed meanwhile: nobody was in it
		}
		return false, fmt.Errorf("look for processes: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if some, err := h.anyProcess(filepath.Join(dir, e.Name()), left); some || err != nil {
			return some, err
		}
	}
	return false, nil
}

// EventsFile returns the absolute path of g's cgroup.events, which the kernel
// modifies when g becomes populated or empty; "" where there is none. On a
// hybrid host it tells of processes in the v2 hierarchy only.
func (g *Group) EventsFile() string {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	if g.h.v2 < 0 {
		return ""
	}
	if p := g.folder(g.h.v2) + "/cgroup.events"; exists(p) {
		return p
	}
	return ""
}
