package process

import (
	"bytes"
	"fmt"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// Round brings the totals of all families up to date. looking says that no events
// tell of ends: processes that are gone have ended then. Nothing is allocated.
func (f *Forest) Round(looking bool) {
	f.rounds++
	f.looking = looking
	for family := range f.families {
		family.round = totals{}
	}
	for _, n := range f.nodes {
		if n.runner {
			f.account(n)
			continue
		}
		f.update(n)
	}
	for family := range f.families {
		family.sum(family.round)
		family.whole += family.round.whole
		family.divided += family.round.divided
	}
	f.shares()
}

// Refresh brings the totals of one family up to date, as Round does for all.
func (f *Forest) Refresh(family *Family) {
	family.round = totals{}
	for _, n := range f.nodes {
		if n.family == family {
			f.update(n)
		}
	}
	if family.living > 0 {
		family.sum(family.round)
	}
}

// account reads what a runner waited for, and counts what no family showed.
func (f *Forest) account(n *treeNode) {
	if f.read(n) != nil || !n.proved {
		return
	}
	if known := n.base + n.after + n.missed; n.waited > known {
		f.missed += n.waited - known
		n.missed += n.waited - known
	}
}

// update reads a process that lives and adds it to its family.
func (f *Forest) update(n *treeNode) {
	before := n.own
	if !f.clock(n) {
		if n.headless || f.looking {
			f.settle(n, f.parentOf(n, 0), 0)
			return
		}
		// Its end is about to be told.
	} else if n.rounds++; n.own != before || n.dirty || n.fd < 0 || n.rounds%idleRounds == 0 {
		first := n.rounds == 1
		if f.read(n) == nil && first && !n.contained {
			f.place(n)
		}
		if first || (f.rounds+n.pid)%ioRounds == 0 {
			f.readIO(n)
		}
	}
	if n.contained {
		return
	}
	t := &n.family.round
	t.add(n)
	t.cpu += n.own + n.children()
	t.resident += n.memory()
	t.whole += n.resident
	if n.divided {
		t.divided += n.resident
	}
	t.threads += uint64(n.threads)
}

// read reads a process's stat.
func (f *Forest) read(n *treeNode) error {
	if n.fd < 0 {
		fd, errno := f.openFile(n.pid, "stat")
		if errno != 0 {
			return errno
		}
		n.fd = fd
		f.open++
	}
	size, errno := pread(n.fd, f.buf)
	if f.open > maxOpen {
		f.shut(n)
	}
	if errno != 0 {
		return errno
	}
	var a account
	if err := parseAccount(f.buf[:size], &a); err != nil {
		return err
	}
	if n.start != 0 && n.start != a.start {
		return cimeter.ErrGone // another process has its number
	}
	if n.family != nil && n.family.Root == n.pid {
		n.family.Start = a.start
	}
	n.start, n.parent, n.threads, n.resident = a.start, a.parent, a.threads, a.resident*uint64(unix.Getpagesize())
	n.user = max(n.user, (a.user+a.childrenUser)*uint64(tick))
	n.system = max(n.system, (a.system+a.childrenSystem)*uint64(tick))
	if !n.runner {
		n.base, n.after = max(n.base, n.waited)+n.after, 0
	}
	n.waited = max(n.waited, (a.childrenUser+a.childrenSystem)*uint64(tick))
	n.readAt, n.dirty = now(), false
	return nil
}

// readIO reads a process's account of IO, with that of children it waited for.
func (f *Forest) readIO(n *treeNode) {
	b, err := f.file(n.pid, "io")
	if err != nil {
		return
	}
	if io, err := parseIO(b); err == nil && !n.runner {
		n.io.ReadBytes = max(n.io.ReadBytes, io.ReadBytes)
		n.io.WriteBytes = max(n.io.WriteBytes, io.WriteBytes)
		n.family.ioKnown = true
	}
}

// file reads the beginning of a file of a process into the forest's buffer.
func (f *Forest) file(pid int, name string) ([]byte, error) { return f.begin(f.openFile(pid, name)) }

// fileOf is file for one of a thread.
func (f *Forest) fileOf(pid, tid int, name string) ([]byte, error) {
	var path [64]byte
	b := append(strconv.AppendInt(path[:0], int64(pid), 10), "/task/"...)
	b = append(append(strconv.AppendInt(b, int64(tid), 10), '/'), name...)
	return f.begin(f.openPath(append(b, 0)))
}

// begin reads the beginning of a file and closes it.
func (f *Forest) begin(fd int, errno syscall.Errno) ([]byte, error) {
	if errno != 0 {
		return nil, kind(errno)
	}
	size, errno := pread(fd, f.buf)
	unix.Close(fd)
	if errno != 0 {
		return nil, kind(errno)
	}
	return f.buf[:size], nil
}

// openFile opens a file of a process without allocating.
func (f *Forest) openFile(pid int, name string) (int, syscall.Errno) {
	var path [64]byte
	b := append(strconv.AppendInt(path[:0], int64(pid), 10), '/')
	return f.openPath(append(append(b, name...), 0))
}

// openPath opens a path below the proc file system that ends with a NUL.
func (f *Forest) openPath(path []byte) (int, syscall.Errno) {
	fd, _, errno := syscall.Syscall6(syscall.SYS_OPENAT, uintptr(f.proc), uintptr(unsafe.Pointer(&path[0])), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	return int(fd), errno
}

func pread(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.Syscall6(syscall.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	return int(n), errno
}

// trim takes the newline off a name.
func trim(comm []byte) []byte { return bytes.TrimRight(comm, "\n") }

// account is what is needed of /proc/PID/stat. Times are in ticks.
type account struct {
	comm                         []byte // valid until the buffer is used again
	parent                       int
	user, system                 uint64
	childrenUser, childrenSystem uint64
	threads                      int
	start                        uint64
	resident                     uint64 // pages
}

// parseAccount reads a line of /proc/PID/stat (see parseStat) without allocating.
func parseAccount(b []byte, a *account) error {
	open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || shut < open {
		return fmt.Errorf("no name in brackets: %w", cimeter.ErrInvalid)
	}
	a.comm = b[open+1 : shut]
	rest := b[shut+1:]
	var fields [numFields]uint64
	for i := range fields {
		var field []byte
		if field, rest = nextField(rest); len(field) == 0 {
			return fmt.Errorf("%d fields behind the name, want at least %d: %w", i, numFields, cimeter.ErrInvalid)
		}
		fields[i] = decimal(field) // the state and negative ones are not used
	}
	a.parent, a.threads = int(int32(fields[fieldParent])), int(int32(fields[fieldThreads]))
	a.user, a.system = fields[fieldUserTime], fields[fieldSystemTime]
	a.childrenUser, a.childrenSystem = fields[fieldChildrenUserTime], fields[fieldChildrenSystemTime]
	a.start, a.resident = fields[fieldStartTime], fields[fieldResident]
	return nil
}

// nextField takes a field off b; it is empty when there is none.
func nextField(b []byte) (field, rest []byte) {
	i := 0
	for i < len(b) && (b[i] == ' ' || b[i] == '\n') {
		i++
	}
	j := i
	for j < len(b) && b[j] != ' ' && b[j] != '\n' {
		j++
	}
	return b[i:j], b[j:]
}

// decimal reads a number of the kernel's; 0 for what is none.
func decimal(b []byte) (v uint64) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0
		}
		v = v*10 + uint64(c-'0')
	}
	return v
}

// boot returns how much longer ago than the monotonic clock tells the machine
// was started: the time that it was suspended.
func boot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // never fails
	return time.Duration(t.Nano())
}
