package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/cimeter/cimeter"
)

// maxTree bounds the processes that a Tree follows at once: the default
// kernel.pid_max of a small machine.
const maxTree = 32 << 10

// Tree follows a process and its descendants where there is no cgroup to do so.
// It keeps what those have used that ended. It is found by looking ([Tree.Scan]),
// so it is a lower bound:
//
//   - A process that lived between two scans shows only in the times of the
//     parent that waited for it, and so in the total when that parent is seen
//     afterwards, or when its own parent waited for it, and so on.
//   - A process that was seen and ended counts with what it had used when it was
//     last seen, or with what its parent knows after waiting, never with both.
//   - A process that left its parent (a daemon) before any scan saw it is missed,
//     unless Reaper adopted it.
//
// The caller that waits for the root has the kernel's exact account in its
// rusage: the larger of the two is the better.
type Tree struct {
	fs     *FS
	root   int
	start  uint64
	reaper int
	limit  int // maxTree

	live map[int]*node
	kept amounts // of the ended, and in no living process's own account
	high amounts // largest total ever told
	io   bool    // an account of IO could be read

	// scratch, used again by each scan
	stats    map[int]Stat
	children map[int][]int
	order    []int
}

// amounts is what adds up over processes.
type amounts [6]uint64

const (
	user       = iota // nanoseconds
	system            // nanoseconds
	readBytes         // bytes
	writeBytes        // bytes
	readCalls
	writeCalls
)

func (a *amounts) add(b amounts) {
	for i := range a {
		a[i] += b[i]
	}
}

// less returns a - b, 0 where b is larger.
func (a amounts) less(b amounts) amounts {
	for i := range a {
		a[i] -= min(a[i], b[i])
	}
	return a
}

// node is a process of the tree.
type node struct {
	start  uint64
	parent *node   // nil: its parent is not of the tree
	now    amounts // its own and those of all children it waited for
	// owed is what children had used that ended since the account was before.
	// Of that, now may have got its part by waiting.
	before amounts
	owed   amounts
	unsure bool // a child ended while being read: now may or may not have it
	kids   []*node
	ended  bool
	known  bool // its account was read

	resident uint64
	threads  int
	hidden   bool
}

// Totals is what a tree has used so far, and holds now.
type Totals struct {
	UserTime      time.Duration
	SystemTime    time.Duration
	IO            cimeter.Opt[IO] // not known when no process's account may be read
	Hidden        int             // living processes whose IO may not be read
	Processes     int             // living, those that ended and are not waited for included
	Threads       int
	ResidentBytes uint64 // sum over the living: a page that several share counts for each, so it can exceed what they take
	Untracked     int    // living processes left out because there are too many
}

// NewTree returns the tree of process root. Processes that reaper, if it is not
// 0, is the parent of belong to it too: a caller that adopts orphans
// (PR_SET_CHILD_SUBREAPER) and starts nothing else gives its own pid. It fails
// with [cimeter.ErrGone] when there is no such process.
func (fs *FS) NewTree(root, reaper int) (*Tree, error) {
	start, err := fs.StartTime(root)
	if err != nil {
		return nil, err
	}
	return &Tree{
		fs: fs, root: root, start: start, reaper: reaper, limit: maxTree,
		live:     make(map[int]*node),
		stats:    make(map[int]Stat),
		children: make(map[int][]int),
	}, nil
}

// Scan looks at all processes once and returns the totals, which never fall but
// for those that tell of now. It costs about 10 µs for each process of the
// machine. After the last process of the tree has ended it returns the same
// totals without an error.
func (t *Tree) Scan() (Totals, error) {
	if err := t.look(); err != nil {
		return Totals{}, err
	}
	// Who has ended is settled before any account is read: an account that is
	// read afterwards has got from waiting all that it will get of them. And a
	// parent's account is read before its children's: if a child is there to be
	// read, its parent has not waited for it yet.
	var ended []*node
	for pid, n := range t.live {
		if s, ok := t.stats[pid]; !ok || s.StartTime != n.start {
			ended = append(ended, n)
			delete(t.live, pid)
		}
	}
	untracked := t.arrange()
	var failed error
	for _, pid := range t.order {
		n := t.live[pid]
		s, err := t.fs.Stat(pid)
		if err == nil && s.StartTime != t.stats[pid].StartTime {
			err = cimeter.ErrGone
		}
		if err != nil && !errors.Is(err, cimeter.ErrGone) {
			failed = err // its last values stand
			continue
		}
		if err != nil {
			if n != nil { // seen before
				if n.parent != nil {
					n.parent.unsure = true
				}
				ended = append(ended, n)
				delete(t.live, pid)
			}
			continue
		}
		if n == nil {
			n = &node{start: s.StartTime}
			t.live[pid] = n
		}
		t.read(pid, n, s)
	}
	t.settle(ended)
	return t.totals(untracked), failed
}

// look reads the stat of every process there is.
func (t *Tree) look() error {
	d, err := os.Open(t.fs.proc)
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	clear(t.stats)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		s, err := t.fs.Stat(pid)
		if errors.Is(err, cimeter.ErrGone) || errors.Is(err, cimeter.ErrUnauthorized) {
			continue
		}
		if err != nil {
			return err
		}
		t.stats[pid] = s
	}
	return nil
}

// arrange sets order to the pids of the tree, parents first, and returns how
// many there are too many.
func (t *Tree) arrange() (untracked int) {
	clear(t.children)
	for pid, s := range t.stats {
		t.children[s.Parent] = append(t.children[s.Parent], pid)
	}
	t.order = t.order[:0]
	in := make(map[int]bool)
	enter := func(pid int) {
		switch {
		case in[pid]:
		case len(t.order) == t.limit:
			untracked++
		default:
			in[pid] = true
			t.order = append(t.order, pid)
		}
	}
	if s, ok := t.stats[t.root]; ok && s.StartTime == t.start {
		enter(t.root)
	}
	if t.reaper != 0 {
		for _, pid := range t.children[t.reaper] {
			enter(pid)
		}
	}
	for pid := range t.live { // those whose parent ended
		if _, ok := t.live[t.stats[pid].Parent]; !ok {
			enter(pid)
		}
	}
	for i := 0; i < len(t.order); i++ {
		for _, pid := range t.children[t.order[i]] {
			enter(pid)
		}
	}
	return untracked
}

// read takes over the account of a process.
func (t *Tree) read(pid int, n *node, s Stat) {
	n.now[user] = uint64(s.UserTime + s.ChildrenUserTime)
	n.now[system] = uint64(s.SystemTime + s.ChildrenSystemTime)
	n.resident, n.threads = s.ResidentBytes, s.Threads
	n.parent = t.live[s.Parent]
	io, err := t.fs.IO(pid)
	n.hidden = err != nil
	if err == nil {
		t.io = true
		n.now[readBytes], n.now[writeBytes] = io.ReadBytes, io.WriteBytes
		n.now[readCalls], n.now[writeCalls] = io.ReadCalls, io.WriteCalls
	}
	if !n.known {
		n.known = true
		n.before = n.now
	}
}

// settle books what ended processes had used: on the parent's account if it has
// grown by as much, else as kept.
func (t *Tree) settle(ended []*node) {
	for _, n := range ended {
		n.ended = true
	}
	for _, n := range ended {
		if p := n.parent; p != nil && p.ended {
			p.kids = append(p.kids, n)
		}
	}
	for _, n := range ended {
		p := n.parent
		if p != nil && p.ended {
			continue // counts with its parent
		}
		value := n.value()
		if p == nil {
			t.kept.add(value)
			continue
		}
		p.owed.add(value)
	}
	for _, n := range t.live {
		if n.parent != nil && n.parent.ended {
			n.parent = nil
		}
		if n.unsure {
			n.unsure = false // the next scan's account has it for certain
			continue
		}
		t.kept.add(n.owed.less(n.now.less(n.before)))
		n.owed, n.before = amounts{}, n.now
	}
}

// value is what an ended process and its ended children have used.
func (n *node) value() amounts {
	for _, k := range n.kids {
		n.owed.add(k.value())
	}
	n.kids = nil
	v := n.now
	v.add(n.owed.less(n.now.less(n.before)))
	return v
}

func (t *Tree) totals(untracked int) Totals {
	sum := t.kept
	out := Totals{Processes: len(t.live), Untracked: untracked}
	for _, n := range t.live {
		sum.add(n.now)
		out.ResidentBytes += n.resident
		out.Threads += n.threads
		if n.hidden {
			out.Hidden++
		}
	}
	for i := range sum {
		t.high[i] = max(t.high[i], sum[i])
	}
	out.UserTime, out.SystemTime = time.Duration(t.high[user]), time.Duration(t.high[system])
	if t.io {
		out.IO = cimeter.Some(IO{
			ReadBytes: t.high[readBytes], WriteBytes: t.high[writeBytes],
			ReadCalls: t.high[readCalls], WriteCalls: t.high[writeCalls],
		})
	}
	return out
}

// Set stores in s what a sample has a place for: CPU time, bytes of IO where
// known, and tasks. Memory it leaves out: the sum of resident pages is not what
// a cgroup would be charged.
func (o Totals) Set(s *cimeter.Sample) {
	s.SetCounter(cimeter.CPUUser, uint64(o.UserTime))
	s.SetCounter(cimeter.CPUSystem, uint64(o.SystemTime))
	s.SetCounter(cimeter.CPUTotal, uint64(o.UserTime+o.SystemTime))
	if io, ok := o.IO.Get(); ok {
		s.SetCounter(cimeter.IOReadBytes, io.ReadBytes)
		s.SetCounter(cimeter.IOWriteBytes, io.WriteBytes)
	}
	s.SetGauge(cimeter.Processes, uint64(o.Threads))
}
