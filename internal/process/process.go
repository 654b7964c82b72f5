// Package process reads what the kernel tells of single processes: their birth
// (to guard against reused pids), their cgroup, their command line for matching,
// named variables of their environment, what they used, and their death through
// a pidfd.
//
// It owns no state but that of a [Tree] and of a [Forest]: it never stores a
// command line, never lets a variable out that was not asked for by name, starts
// no goroutine, logs nothing, and makes one try. A process that ended is [cimeter.ErrGone], and one
// that we may not look at is [cimeter.ErrUnauthorized].
//
// Entry points: [Open] and [OpenPidfd]. An FS may be used from several
// goroutines at once, a Tree or a Forest from one at a time.
package process

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// tick is a tick of the times in /proc/PID/stat: USER_HZ is 100 on every
// architecture that Go knows.
const tick = time.Second / 100

const (
	maxCmdline = 4 << 10  // enough for a program and the arguments that stages are told by
	maxEnviron = 1 << 20  // half of what execve allows for arguments and environment together by default
	maxSmall   = 64 << 10 // cgroup, stat, io: a cgroup path is at most 4 KiB for each of about 15 hierarchies
)

// FS is a proc file system.
type FS struct{ proc string }

// Open returns the proc file system mounted at proc; "" is /proc. Nothing is
// read yet.
func Open(proc string) *FS {
	if proc == "" {
		proc = "/proc"
	}
	return &FS{proc: proc}
}

// OpenPidfd opens a descriptor that becomes readable when process pid ends
// (pidfd_open(2), Linux 5.3). It fails with [cimeter.ErrGone] when there is no
// such process, with [cimeter.ErrInvalid] when pid is not that of a process
// (but of a thread, or not positive) and with [cimeter.ErrUnsupported] when the
// kernel has no pidfds. A process that ended and was not waited for can be
// opened. The caller closes it.
func OpenPidfd(pid int) (fd int, err error) {
	fd, err = unix.PidfdOpen(pid, 0)
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		err = fmt.Errorf("%w (%v)", cimeter.ErrInvalid, err)
	case errors.Is(err, unix.ENOSYS):
		err = fmt.Errorf("%w (%v)", cimeter.ErrUnsupported, err)
	default:
		err = kind(err)
	}
	return -1, fmt.Errorf("open pidfd of process %d: %w", pid, err)
}

// StartTime returns when the process was started, in ticks (1/100 s) since the
// machine was: with the pid it names a process for good.
func (fs *FS) StartTime(pid int) (ticks uint64, err error) {
	s, err := fs.Stat(pid)
	return s.StartTime, err
}

// Used is what a process has used since it was started.
type Used struct {
	CPU       time.Duration // of all its threads and of the children that it waited for; of these in steps of 10 ms
	StartTime uint64        // ticks (1/100 s) since the machine was started
}

// Used tells what a process has used.
func (fs *FS) Used(pid int) (Used, error) {
	s, err := fs.Stat(pid)
	if err != nil {
		return Used{}, err
	}
	own := s.UserTime + s.SystemTime
	if ns, ok := clock(pid); ok { // each of the two is rounded down
		own = min(max(own, ns), own+2*tick)
	}
	return Used{CPU: own + s.ChildrenUserTime + s.ChildrenSystemTime, StartTime: s.StartTime}, nil
}

// Ticks is now, as a process's start time is told.
func Ticks() uint64 { return uint64(boot() / tick) }

// Since is how long ago the given tick began.
func Since(ticks uint64) time.Duration { return boot() - time.Duration(ticks)*tick }

// Stat reads /proc/PID/stat.
func (fs *FS) Stat(pid int) (Stat, error) {
	var buf [1024]byte
	b, err := fs.append(buf[:0], pid, "stat", maxSmall)
	if err != nil {
		return Stat{}, err
	}
	s, err := parseStat(b)
	if err != nil {
		return Stat{}, fmt.Errorf("parse stat of process %d: %w", pid, err)
	}
	return s, nil
}

// AppendCmdline appends the first 4 KiB of the process's command line to dst:
// its arguments, each with a NUL behind it. It is empty for a kernel thread and
// for a process that ended. A command line may hold secrets and is the
// process's own to write: match it, never store or show it.
func (fs *FS) AppendCmdline(dst []byte, pid int) ([]byte, error) {
	return fs.append(dst, pid, "cmdline", maxCmdline)
}

// Cgroup reads /proc/PID/cgroup: a line "id:controllers:path" for each
// hierarchy, paths as seen from our cgroup namespace (cgroups(7)).
func (fs *FS) Cgroup(pid int) ([]byte, error) {
	return fs.append(nil, pid, "cgroup", maxSmall)
}

// IO is /proc/PID/io (proc_pid_io(5)). It counts the process and those of its
// children that it has waited for.
type IO struct {
	ReadBytes  uint64 // bytes that it made block devices read
	WriteBytes uint64 // bytes that it made dirty for block devices, those never written out (truncated) included
	ReadCalls  uint64 // system calls that read, of pipes and sockets too: not operations of a disk
	WriteCalls uint64 // system calls that write, likewise
}

// IO reads /proc/PID/io. For a process of another user it needs SYS_PTRACE and
// DAC_READ_SEARCH, and fails with [cimeter.ErrUnauthorized] otherwise.
func (fs *FS) IO(pid int) (IO, error) {
	var buf [512]byte
	b, err := fs.append(buf[:0], pid, "io", maxSmall)
	if err != nil {
		return IO{}, err
	}
	io, err := parseIO(b)
	if err != nil {
		return IO{}, fmt.Errorf("parse io of process %d: %w", pid, err)
	}
	return io, nil
}

// append appends at most limit bytes of a process's file to dst.
func (fs *FS) append(dst []byte, pid int, name string, limit int) ([]byte, error) {
	b, err := appendFile(dst, fs.proc+"/"+strconv.Itoa(pid)+"/"+name, limit)
	if err != nil {
		return dst, fmt.Errorf("read %s of process %d: %w", name, pid, kind(err))
	}
	return b, nil
}

// appendFile appends at most limit bytes of a file to dst. When dst must grow,
// what it held is wiped.
func appendFile(dst []byte, path string, limit int) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return dst, err
	}
	defer unix.Close(fd)
	old := len(dst)
	for len(dst)-old < limit {
		if len(dst) == cap(dst) {
			grown := make([]byte, len(dst), 2*cap(dst)+512)
			copy(grown, dst)
			clear(dst[old:])
			dst = grown
		}
		room := dst[len(dst):min(cap(dst), old+limit)]
		n, err := retry(func() (int, error) { return unix.Read(fd, room) })
		if err != nil {
			clear(dst[old:])
			return dst[:old], err
		}
		if n == 0 {
			break
		}
		dst = dst[:len(dst)+n]
	}
	return dst, nil
}

// retry calls f until no signal interrupts it.
func retry(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// kind gives err the root package's error that says what it means, if any.
func kind(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("%w (%v)", cimeter.ErrGone, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (%v)", cimeter.ErrUnauthorized, err)
	}
	return err
}
