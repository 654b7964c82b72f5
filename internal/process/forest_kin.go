package process

import "time"

// toldWithin is how long after a process's start its birth may be told, on a busy
// machine. Its number cannot have gone round to another one meanwhile.
const toldWithin = time.Second

// maxAbove bounds how far up a process is looked for in its ancestors.
const maxAbove = 64

// Of returns the family that process pid was born into; nil is none, or none that
// can be shown. What is not known yet of its ancestors is read of the kernel and
// taken up, as by a scan. What a process says of itself (ForestOptions.Orphan)
// makes it, and what it starts, no member here. All events that wait must have
// been told.
func (f *Forest) Of(pid int) *Family {
	p := f.above(pid)
	if p == nil {
		return nil
	}
	for i := len(f.fresh) - 1; i >= 0; i-- { // ancestors first
		c := f.fresh[i]
		f.take(p, c)
		if p = f.nodes[c.pid]; p == nil {
			return nil // there are too many
		}
	}
	if p.runner || p.contained || p.claimed || f.nodes[p.pid] != p {
		return nil
	}
	return p.family
}

// above goes from pid up to the nearest process that is followed, and leaves
// those below it in f.fresh, youngest first; nil: there is none. A parent was its
// child's before and after it was read, so its number cannot have gone to another.
func (f *Forest) above(pid int) *treeNode {
	f.fresh = f.fresh[:0]
	for len(f.fresh) < maxAbove && pid > 1 {
		a, ok := f.stat(pid)
		if !ok {
			return nil
		}
		if last := len(f.fresh) - 1; last >= 0 {
			c := f.fresh[last]
			if again, ok := f.stat(c.pid); !ok || again.parent != pid || again.start != c.start || a.start > c.start {
				return nil
			}
		}
		if n := f.nodes[pid]; n != nil {
			if n.waiting && len(f.fresh) > 0 || !f.sameAs(n, a.start) {
				return nil
			}
			return n
		}
		if _, ok := f.foreign[pid]; ok {
			return nil // a container's, or of a family that was let go
		}
		f.fresh = append(f.fresh, newcomer{pid: pid, parent: a.parent, start: a.start, threads: a.threads})
		pid = a.parent
	}
	return nil
}

// stat reads a process's account; its name is not valid.
func (f *Forest) stat(pid int) (a account, ok bool) {
	b, err := f.file(pid, "stat")
	ok = err == nil && parseAccount(b, &a) == nil
	a.comm = nil
	return a, ok
}

// sameAs reports whether n is the process of its number that was started then: an
// end that was not told leaves n behind.
func (f *Forest) sameAs(n *treeNode, start uint64) bool {
	if n.start != 0 {
		return n.start == start
	}
	// Known by the event of its birth alone, since the last round. The kernel notes
	// the start first, in ticks, and tells of it when it comes to run again.
	late := n.born - f.startOf(start)
	return late > -tick/2 && late < toldWithin
}
