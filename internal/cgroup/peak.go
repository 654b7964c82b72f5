package cgroup

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ResetPeak begins a new peak of memory: from now on Read tells the most that was in
// use since. The kernel keeps it for the one descriptor that it was asked through
// (memory.peak since Linux 6.12); other readers see the cgroup's own peak as before.
// false: the kernel does not have that (v1, whose peak is one for all, and older
// kernels), or does not allow it, and nothing has changed.
func (g *Group) ResetPeak() bool {
	h := g.h
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.files {
		f := &h.files[i]
		if f.kind != kindMemoryPeak || !h.hierarchies[f.hierarchy].v2 || g.gone || g.fds[i] < 0 {
			continue
		}
		fd, starved, errno := h.openFile(unix.AT_FDCWD, g.folder(f.hierarchy)+"/"+f.name, syscall.O_RDWR)
		if errno != 0 {
			return false
		}
		if starved {
			h.takeSpare()
		}
		// Any text will do (Documentation/admin-guide/cgroup-v2.rst).
		if n, err := syscall.Write(fd, []byte("reset\n")); err != nil || n == 0 || !g.statFolder(f.hierarchy) {
			_ = syscall.Close(fd)
			return false
		}
		g.drop(i, absent)
		g.keep(i, fd)
		return true
	}
	return false
}
