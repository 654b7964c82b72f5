package process

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// sight is how a process was seen at a scan.
type sight struct {
	inode uint64 // of its folder: another process of the same number has another
	scan  uint32
	met   uint32 // how often it was looked at for what it is
}

// keepNewcomers is how many newcomers a scan keeps room for.
const keepNewcomers = 512

// maxPid is over the largest number of a process (PID_MAX_LIMIT, 2^22).
const maxPid = 1 << 24

// meetEvery is every how many scans all processes are looked at for what they
// are: one that nothing is known of may have become a runner. Each is looked at
// twice at once: it may have been between its fork and its exec.
const meetEvery = 64

// newcomer is a process that the last scan did not see.
type newcomer struct {
	pid, parent int
	start       uint64
	threads     int
	kind        RunnerKind
}

// Scan looks at all processes of the machine: at those it has not seen before
// for what they are, and for those of its own that are gone. again asks for a
// look at all processes of families that nothing is known of yet. It takes about
// 1 µs for each process and 10 µs more for each new one.
func (f *Forest) Scan(again bool) error {
	f.scans++
	f.fresh = f.fresh[:0]
	if _, err := unix.Seek(f.proc, 0, 0); err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for {
		n, err := unix.Getdents(f.proc, f.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("list processes: %w", err)
		}
		if n == 0 {
			break
		}
		f.entries(f.buf[:n])
	}
	for pid, s := range f.seen {
		if s.scan != f.scans {
			delete(f.seen, pid)
			f.forget(pid)
			if n := f.nodes[pid]; n != nil {
				f.settle(n, f.parentOf(n, 0), 0)
			}
		}
	}
	for pid, n := range f.nodes { // those that ended before any scan saw them
		if _, ok := f.seen[pid]; !ok {
			f.settle(n, f.parentOf(n, 0), 0)
		}
	}
	f.meetAll()
	if cap(f.fresh) > keepNewcomers {
		f.fresh = nil // of the first scan: there will never be as many again
	}
	if again {
		f.lookAgain()
	}
	return nil
}

// direntHead is the length of struct linux_dirent64 before the name: inode and
// offset uint64, length uint16, type uint8 (getdents64(2)).
const direntHead = 19

// entries takes the entries of the proc file system that are processes.
func (f *Forest) entries(b []byte) {
	for len(b) >= direntHead {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size < direntHead || size > len(b) {
			return
		}
		pid, inode := number(b[direntHead:size]), binary.NativeEndian.Uint64(b)
		b = b[size:]
		if pid == 0 {
			continue
		}
		old, known := f.seen[pid]
		same := known && old.inode == inode
		if same && old.met >= 2 && f.scans%meetEvery != 0 {
			f.seen[pid] = sight{inode, f.scans, old.met}
			continue
		}
		f.seen[pid] = sight{inode, f.scans, old.met + 1}
		if known && !same {
			f.forget(pid)
			f.seen[pid] = sight{inode, f.scans, 1}
		}
		f.fresh = append(f.fresh, newcomer{pid: pid})
	}
}

// number reads a name that ends with a NUL; 0 for one that is no number of a process.
func number(name []byte) (n int) {
	for _, c := range name {
		switch {
		case c == 0:
			return n
		case c < '0' || c > '9' || n > maxPid:
			return 0
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// meetAll finds out what the newcomers are.
func (f *Forest) meetAll() {
	kept := f.fresh[:0]
	for _, c := range f.fresh {
		b, err := f.file(c.pid, "stat")
		var a account
		if err != nil || parseAccount(b, &a) != nil {
			continue // ended since
		}
		if n := f.nodes[c.pid]; n != nil {
			if n.start == 0 || n.start == a.start {
				continue // its folder was only forgotten by the kernel
			}
			f.settle(n, f.parentOf(n, 0), 0)
		}
		c.parent, c.start, c.threads, c.kind = a.parent, a.start, a.threads, f.opts.Runner(a.comm)
		kept = append(kept, c)
	}
	f.fresh = kept
	// A parent was started before its children; those of one tick are gone
	// through once more.
	slices.SortFunc(kept, func(a, b newcomer) int {
		if a.start != b.start {
			if a.start < b.start {
				return -1
			}
			return 1
		}
		return a.pid - b.pid
	})
	for range 2 {
		for _, c := range kept {
			f.meetOne(c)
		}
	}
}

func (f *Forest) meetOne(c newcomer) {
	if f.nodes[c.pid] != nil {
		return
	}
	if p := f.nodes[c.parent]; p != nil && !p.waiting {
		f.take(p, c)
		return
	}
	if _, ok := f.foreign[c.parent]; ok {
		f.forget(c.pid)
		note(f.foreign, c.pid)
		return
	}
	if _, ok := f.foreign[c.pid]; ok || c.kind == NoRunner && c.parent != 1 && !f.opts.Events || c.pid == 1 {
		return
	}
	b, err := f.file(c.pid, "cgroup")
	switch {
	case err != nil || len(b) == 0:
	case f.opts.Foreign(b):
		f.forget(c.pid)
		note(f.foreign, c.pid)
	case c.kind != NoRunner:
		f.runner(c.pid, c.kind)
	case c.parent == 1 && len(f.nodes) < maxProcesses:
		if family := f.opts.Orphan(c.pid); family != nil {
			n := f.node(c.pid)
			n.parent, n.start, n.born, n.claimed = 1, c.start, f.startOf(c.start), true
			f.join(n, family)
			if family.Root == c.pid {
				family.Started, family.Start = n.born, c.start
				f.opts.Born(family)
			}
			return
		}
		fallthrough
	default:
		note(f.plain, c.pid)
	}
}

// take makes a newcomer a process of its parent's family.
func (f *Forest) take(p *treeNode, c newcomer) {
	n := f.add(p, c.pid, f.startOf(c.start))
	if n == nil {
		return
	}
	n.start, n.threads = c.start, c.threads
	if n.family.Root == c.pid {
		n.family.Start = c.start
	}
	f.place(n)
	if n.family.looks > 0 {
		n.family.looks--
		f.opts.Look(n.family, c.pid)
	}
}

// startOf turns ticks since the machine was started into a time of the
// monotonic clock.
func (f *Forest) startOf(ticks uint64) time.Duration {
	return max(1, now()-boot()+time.Duration(ticks)*tick)
}

// lookAgain looks at the processes of families that nothing is known of: they
// may run another program by now.
func (f *Forest) lookAgain() {
	for _, n := range f.nodes {
		if n.runner || n.family.looks <= 0 {
			continue
		}
		n.family.looks--
		f.opts.Look(n.family, n.pid)
	}
}
