package process

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// Walk looks for new children of the processes that are followed, by the
// kernel's lists of children (/proc/PID/task/TID/children). It costs some 10 µs for
// each of those, where a Scan costs some for each process of the machine, but
// finds neither runners nor processes that have left their parent. False: the
// kernel has no such lists (CONFIG_PROC_CHILDREN).
func (f *Forest) Walk(again bool) bool {
	f.walked = f.walked[:0]
	for pid, n := range f.nodes {
		if !n.waiting {
			f.walked = append(f.walked, pid)
		}
	}
	found := len(f.walked) == 0
	for i := 0; i < len(f.walked); i++ { // it grows by those that are found
		if n := f.nodes[f.walked[i]]; n != nil {
			found = f.walk(n) || found
		}
	}
	if again {
		f.lookAgain()
	}
	return found
}

// walk looks at the children of one process; false: it has no list of them.
func (f *Forest) walk(n *treeNode) (found bool) {
	f.threads = f.threads[:0]
	if n.threads > 1 {
		f.listThreads(n.pid)
	}
	if len(f.threads) == 0 {
		f.threads = append(f.threads, n.pid)
	}
	f.fresh = f.fresh[:0]
	for _, tid := range f.threads {
		b, err := f.fileOf(n.pid, tid, "children")
		if err != nil {
			continue
		}
		found = true
		for field, rest := nextField(b); len(field) > 0; field, rest = nextField(rest) {
			if pid := int(decimal(field)); pid > 0 && f.nodes[pid] == nil {
				f.fresh = append(f.fresh, newcomer{pid: pid, parent: n.pid})
			}
		}
	}
	for _, c := range f.fresh {
		b, err := f.file(c.pid, "stat")
		var a account
		if err != nil || parseAccount(b, &a) != nil || a.parent != n.pid || f.nodes[n.pid] != n {
			continue // ended, or left, since
		}
		if _, ok := f.foreign[c.pid]; ok {
			continue
		}
		c.start, c.threads = a.start, a.threads
		f.take(n, c)
		f.walked = append(f.walked, c.pid)
	}
	return found
}

// listThreads lists the threads of a process.
func (f *Forest) listThreads(pid int) {
	fd, errno := f.openFile(pid, "task")
	if errno != 0 {
		return
	}
	defer unix.Close(fd)
	for {
		size, err := unix.Getdents(fd, f.buf)
		if err != nil || size == 0 {
			return
		}
		for b := f.buf[:size]; len(b) >= direntHead; {
			length := int(binary.NativeEndian.Uint16(b[16:]))
			if length < direntHead || length > len(b) {
				return
			}
			if tid := number(b[direntHead:length]); tid > 0 && !slices.Contains(f.threads, tid) {
				f.threads = append(f.threads, tid)
			}
			b = b[length:]
		}
	}
}
