package cgroup

import (
	"fmt"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// Options says where to look. The zero value is the host's own.
type Options struct {
	Root string // cgroup file systems are mounted here or below; default /sys/fs/cgroup
	Proc string // default /proc
	Sys  string // default /sys
	// MaxDescriptors bounds the descriptors kept open. Default: half of
	// RLIMIT_NOFILE, which leaves the rest of the program as many. What is over
	// it is read by open, read and close.
	MaxDescriptors int
}

// Bounds of the buffer that all files are read into: the first holds any file
// of a usual host, the last is procfs's customary cap for kernel files.
const (
	firstBuffer = 16 << 10
	maxBuffer   = 1 << 20
)

// Host is the cgroup hierarchies of one machine.
type Host struct {
	proc, sys   string
	hierarchies []hierarchy
	v2          int // index of the v2 hierarchy, -1 without
	watch       int // index of the hierarchy whose folders tell births
	procs       int // index of the hierarchy that tells which processes are in a group
	layout      string

	mu        sync.Mutex // guards what follows, and every Group
	files     []file
	buf       []byte // what was read last
	name      []byte // path of the file opened last, with a 0 at its end
	ios       []deviceIO
	devices   devices
	ioCounts  bool // v1: block IO is known to be counted
	open      int  // descriptors kept
	limit     int  // at most so many
	spare     int  // a descriptor to give up when there are no more; -1 without
	errors    uint64
	degraded  uint64
	lastError error
	machine   int // descriptor of the root's CPU file, -1 without
	// read is pread at offset 0, replaced in tests of odd kernels.
	read func(fd int, b []byte, yields bool) (int, syscall.Errno)
}

// Open finds the hierarchies under o.Root. The error wraps
// cimeter.ErrUnsupported when there are none.
func Open(o Options) (*Host, error) {
	for _, d := range []struct {
		s    *string
		base string
	}{{&o.Root, "/sys/fs/cgroup"}, {&o.Proc, "/proc"}, {&o.Sys, "/sys"}} {
		if *d.s == "" {
			*d.s = d.base
		}
		abs, err := filepath.Abs(*d.s)
		if err != nil {
			return nil, fmt.Errorf("open cgroups in %s: %w", *d.s, err)
		}
		*d.s = abs
	}
	if real, err := filepath.EvalSymlinks(o.Root); err == nil {
		o.Root = real // as mountinfo names it
	}
	hs, err := findHierarchies(o.Root, o.Proc)
	if err != nil {
		return nil, err
	}
	h := &Host{
		proc: o.Proc, sys: o.Sys, hierarchies: hs, v2: -1, watch: -1, procs: -1,
		buf: make([]byte, firstBuffer), devices: devices{sys: o.Sys}, limit: o.MaxDescriptors,
		spare: -1, machine: -1, read: pread,
	}
	v1 := false
	for i := range hs {
		if hs[i].v2 {
			h.v2 = i
		} else {
			v1 = true
		}
	}
	switch {
	case !v1:
		h.layout, h.watch, h.procs = "v2", h.v2, h.v2
	case h.v2 >= 0:
		h.layout = "hybrid"
	default:
		h.layout = "v1"
	}
	if v1 {
		// The last joined is watched, so that the others exist by then; those
		// joined earlier have the first process earlier.
		h.watch = h.firstV1("blkio", "pids", "memory", "cpuacct", "cpu")
		h.procs = h.firstV1("cpuacct", "memory", "pids", "cpu", "blkio")
	}
	if h.limit <= 0 {
		var r syscall.Rlimit
		h.limit = 512
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err == nil {
			h.limit = int(min(r.Cur/2, 1<<20))
		}
	}
	h.files = h.chooseFiles()
	if len(h.files) > maxFiles {
		return nil, fmt.Errorf("open cgroups in %s: %d files for a group: want at most %d", o.Root, len(h.files), maxFiles)
	}
	h.takeSpare()
	h.probeBlockIO()
	return h, nil
}

// Close gives up the Host's own descriptors. Groups are closed by themselves.
func (h *Host) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, fd := range []*int{&h.spare, &h.machine} {
		if *fd >= 0 {
			_ = syscall.Close(*fd)
			*fd = -1
		}
	}
}

// of returns the index of the hierarchy that has controller c: v1 where it is
// mounted so, else v2; -1 where no hierarchy has it.
func (h *Host) of(c string) int {
	if i := h.firstV1(c); i >= 0 || h.v2 < 0 {
		return i
	}
	if c == "blkio" {
		c = "io"
	}
	for _, have := range h.hierarchies[h.v2].controllers {
		if have == c {
			return h.v2
		}
	}
	return -1
}

// firstV1 returns the index of the v1 hierarchy of the first of cs that has
// one, else -1.
func (h *Host) firstV1(cs ...string) int {
	for _, c := range cs {
		for i := range h.hierarchies {
			for _, have := range h.hierarchies[i].controllers {
				if !h.hierarchies[i].v2 && have == c {
					return i
				}
			}
		}
	}
	return -1
}

// Layout returns "v1", "v2" or "hybrid": v1 controllers beside a cgroup v2
// mount.
func (h *Host) Layout() string { return h.layout }

// WatchDir returns the absolute root folder of the hierarchy whose folders tell
// the birth and death of cgroups. On v1 and hybrid hosts it is that of the
// metered controller which runc joins last: when a folder appears in it, those
// of the other controllers exist.
func (h *Host) WatchDir() string { return h.hierarchies[h.watch].dir }

// Errors returns how many readings turned bad since Open: files that could not
// be read or did not hold what they should. A file that stays bad counts once.
func (h *Host) Errors() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.errors
}

// LastError returns the latest of the errors that Errors counts, nil without.
func (h *Host) LastError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastError
}

// Degraded returns how many reads had to open and close their file, because
// descriptors ran out or MaxDescriptors was reached.
func (h *Host) Degraded() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.degraded
}

// Pressure returns nil when the kernel tells pressure (PSI) of cgroups, else an
// error that wraps cimeter.ErrUnsupported and says why not.
func (h *Host) Pressure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.v2 < 0 {
		return fmt.Errorf("pressure: no cgroup v2 hierarchy is mounted: %w", cimeter.ErrUnsupported)
	}
	path := filepath.Join(h.hierarchies[h.v2].dir, "cpu.pressure")
	b, errno := h.readPath(path)
	switch {
	case errno == syscall.EOPNOTSUPP:
		return fmt.Errorf("pressure: the kernel was started without it (want psi=1 on its command line): %w", cimeter.ErrUnsupported)
	case errno == syscall.ENOENT:
		return fmt.Errorf("pressure: no %s (want Linux 4.20 with CONFIG_PSI): %w", path, cimeter.ErrUnsupported)
	case errno != 0:
		return fmt.Errorf("pressure: read %s: %w", path, errno)
	}
	if _, _, err := parsePressure(b); err != nil {
		return fmt.Errorf("pressure: parse %s: %w", path, err)
	}
	return nil
}

// WholeTree returns nil when the hierarchies are seen from their roots. From
// within a container that has a cgroup namespace or mount of its own only its
// own groups are seen: the error then says so, and wraps
// cimeter.ErrUnsupported.
func (h *Host) WholeTree() error {
	dir := h.WatchDir()
	// Files that the kernel makes in all groups but the root, and the other way
	// round (kernel/cgroup/cgroup.c: cgroup_base_files; cgroup-v1.c:
	// cgroup1_base_files).
	part := exists(dir+"/cgroup.type") || exists(dir+"/notify_on_release") && !exists(dir+"/release_agent")
	if part {
		return fmt.Errorf("cgroups in %s: only a part of the hierarchy is seen: want the host's cgroup namespace and mount (docker run --cgroupns=host -v /sys/fs/cgroup:/sys/fs/cgroup:ro): %w",
			dir, cimeter.ErrUnsupported)
	}
	return nil
}

// count notes an error.
func (h *Host) count(err error) {
	h.errors++
	h.lastError = err
}

// takeSpare opens the descriptor that is given up when there are no more.
func (h *Host) takeSpare() {
	if h.spare < 0 {
		if fd, err := syscall.Open("/", unix.O_PATH|syscall.O_CLOEXEC, 0); err == nil {
			h.spare = fd
		}
	}
}

// openFile opens path below dir (AT_FDCWD and an absolute path, or a folder's
// descriptor and a name). When the process or the machine has no descriptor
// left, the spare one is given up for it and nothing more is kept from then on
// than is open now: starved is true and the caller must close what it got and
// call takeSpare.
func (h *Host) openFile(dir int, path string, flags int) (fd int, starved bool, errno syscall.Errno) {
	for {
		h.name = append(append(h.name[:0], path...), 0)
		fd, errno := openat(dir, h.name, flags|syscall.O_CLOEXEC)
		switch {
		case errno == 0:
			return fd, starved, 0
		case errno == syscall.EINTR:
		case (errno == syscall.EMFILE || errno == syscall.ENFILE) && h.spare >= 0:
			h.limit = min(h.limit, h.open)
			_ = syscall.Close(h.spare)
			h.spare = -1
			starved = true
		default:
			return -1, starved, errno
		}
	}
}

// readPath reads a whole file by open, read and close. The bytes are valid
// until the next read.
func (h *Host) readPath(path string) ([]byte, syscall.Errno) {
	fd, starved, errno := h.openFile(unix.AT_FDCWD, path, syscall.O_RDONLY)
	if errno == 0 {
		defer func() {
			_ = syscall.Close(fd)
			if starved {
				h.takeSpare()
			}
		}()
		return h.readFD(fd, true)
	}
	h.takeSpare()
	return nil, errno
}

// readFD reads what a kernel file has now. A kernel file of this kind is
// rendered whole by one read, if the buffer is large enough: it grows when it
// was filled to the end. The bytes are valid until the next read.
func (h *Host) readFD(fd int, yields bool) ([]byte, syscall.Errno) {
	for {
		n, errno := h.read(fd, h.buf, yields)
		switch {
		case errno == syscall.EINTR:
		case errno != 0:
			return nil, errno
		case n < len(h.buf):
			return h.buf[:n], 0
		case len(h.buf) >= maxBuffer:
			return nil, syscall.EFBIG
		default:
			h.buf = make([]byte, 2*len(h.buf))
		}
	}
}
