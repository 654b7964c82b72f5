package process

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxProcesses bounds the processes that a Forest follows: the default
	// kernel.pid_max of a small machine.
	maxProcesses = 32 << 10
	// maxOpen bounds the descriptors that are kept: beyond it a process's file
	// is opened for each reading.
	maxOpen = 8 << 10
	// maxLooks is how many processes of a family are looked at for what it is:
	// a login shell may start dozens of programs before a build's own.
	maxLooks = 256
	// againAfter is the shortest time between two readings of a parent whose
	// child was gone before it could be read.
	againAfter = 5 * time.Millisecond
	// bornWithin is how far the time of a birth may lie from that of its event:
	// the kernel tells the former in ticks. A number is not used again so soon.
	bornWithin = 3 * tick
	// idleRounds is after how many rounds an idle process is read all the same:
	// its memory may have been taken from it.
	idleRounds = 10
	// ioRounds is every how many rounds a busy process's account of IO is read.
	ioRounds = 5
)

// ForestOptions say what a Forest follows. All functions must be set; they are
// called by the Forest's own methods.
type ForestOptions struct {
	// Runner tells by a program's name (at most 15 bytes, as in /proc/PID/comm)
	// whether it is a CI runner.
	Runner func(comm []byte) RunnerKind
	// Events says that events will be told: it pays to know all processes in
	// containers, for what those start is not looked at then.
	Events bool
	// Foreign reports whether a process with this /proc/PID/cgroup is in a
	// container: it is the container's then.
	Foreign func(cgroup []byte) bool
	// Born is told of each family.
	Born func(*Family)
	// Look is asked to find out what a family is, by one of its processes.
	Look func(f *Family, pid int)
	// Orphan is told of a process that has no parent of its own and is of no
	// family; it returns the family that it is to join, or nil.
	Orphan func(pid int) *Family
	// Ended is told when nobody of a family is left. Its totals are final.
	Ended func(*Family)
}

// RunnerKind is what a program is to builds.
type RunnerKind uint8

// The kinds of programs.
const (
	NoRunner RunnerKind = iota
	Runs                // what it starts is builds
	Waits               // it starts the programs that run builds
)

// Forest follows the processes of many builds at once: the families of
// processes that CI runners start. What happens is told by events ([Forest.Fork],
// [Forest.Exec], [Forest.Exit]) or found by looking ([Forest.Scan]).
//
// A process's own CPU time is its clock's (clock_getcpuclockid(3)), in
// nanoseconds. What its dead children used is the larger of two lower bounds:
// what those had used when they were read for the last time, which with events is
// at their end if their parent has not waited yet; and what the parent itself has
// got by waiting, in steps of 10 ms.
type Forest struct {
	fs   *FS
	proc int // descriptor of the proc file system
	opts ForestOptions

	nodes     map[int]*treeNode
	free      []*treeNode
	families  map[*Family]struct{}
	runners   int
	open      int
	foreign   map[int]struct{} // processes in containers: their children are, too
	plain     map[int]struct{} // others that are no runners: nor are their children, until they run another program
	seen      map[int]sight    // all processes of the machine, at the last scan
	fresh     []newcomer       // scratch of a scan
	looking   bool             // see Round
	walked    []int            // scratch of a walk
	threads   []int            // scratch of a walk
	unread    []*Family        // whose first process was gone before it could be read
	scans     uint32
	rounds    int
	noShares  bool          // the kernel does not tell what processes share
	shareLeft time.Duration // see shares
	missed    uint64
	stats     ForestStats
	buf       []byte
}

// ForestStats count what a Forest did, since it was made.
type ForestStats struct {
	Processes uint64 // that were followed
	Read      uint64 // that were read at their end
	Gone      uint64 // that their parent had waited for before: its account has them
	Dropped   uint64 // that were not followed because there were too many
}

// NewForest returns an empty forest. Close it.
func (fs *FS) NewForest(o ForestOptions) (*Forest, error) {
	fd, err := retry(func() (int, error) { return unix.Open(fs.proc, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, kind(err)
	}
	return &Forest{
		fs: fs, proc: fd, opts: o, buf: make([]byte, 32<<10),
		nodes: make(map[int]*treeNode), families: make(map[*Family]struct{}),
		foreign: make(map[int]struct{}), plain: make(map[int]struct{}), seen: make(map[int]sight),
	}, nil
}

// Close gives all descriptors back.
func (f *Forest) Close() {
	for _, n := range f.nodes {
		f.shut(n)
	}
	unix.Close(f.proc)
}

// Lives reports whether process pid is followed and lives.
func (f *Forest) Lives(pid int) bool { return f.nodes[pid] != nil }

// Runs reports whether the first process of a family lives.
func (f *Forest) Runs(family *Family) bool {
	n := f.nodes[family.Root]
	return n != nil && n.family == family && f.clock(n)
}

// Runners returns how many runners live.
func (f *Forest) Runners() int { return f.runners }

// Processes returns how many processes are followed, runners included.
func (f *Forest) Processes() int { return len(f.nodes) }

// Stats returns what it has counted.
func (f *Forest) Stats() ForestStats { return f.stats }

// Missed returns the nanoseconds of CPU time that runners got by waiting for
// their children and that no family showed. It never falls.
func (f *Forest) Missed() uint64 { return f.missed }

// Fork notes that parent made pid, at a time of the kernel's monotonic clock. Like
// Exec and Exit it reports whether the event is of a process that is followed.
func (f *Forest) Fork(parent, pid int, at time.Duration) bool {
	if old := f.nodes[pid]; old != nil {
		if old.born > at-bornWithin {
			return true // a scan has found it before its event was read
		}
		f.settle(old, f.parentOf(old, 0), 0) // its end was not told
	}
	p := f.nodes[parent]
	if p == nil || p.waiting {
		if _, ok := f.foreign[parent]; ok {
			note(f.foreign, pid)
		} else if _, ok := f.plain[parent]; ok {
			note(f.plain, pid)
		}
		return false
	}
	f.add(p, pid, at)
	return true
}

// add makes pid a process of its parent's family, or the first of a new one.
func (f *Forest) add(p *treeNode, pid int, at time.Duration) *treeNode {
	if len(f.nodes) >= maxProcesses {
		f.stats.Dropped++
		return nil
	}
	n := f.node(pid)
	n.parent, n.born = p.pid, at
	p.kids = true
	if !p.runner {
		n.contained, n.claimed = p.contained, p.claimed
		f.join(n, p.family)
		return n
	}
	family := &Family{Root: pid, Runner: p.pid, Started: at, parent: p, looks: maxLooks}
	f.families[family] = struct{}{}
	f.join(n, family)
	f.opts.Born(family)
	return n
}

func (f *Forest) join(n *treeNode, family *Family) {
	n.family = family
	family.living++
	f.stats.Processes++
}

// Adopt returns a new family without a runner, whose first process is pid: for
// ForestOptions.Orphan to return.
func (f *Forest) Adopt(pid int) *Family {
	family := &Family{Root: pid, looks: maxLooks}
	f.families[family] = struct{}{}
	return family
}

// Exec notes that pid runs another program now.
func (f *Forest) Exec(pid int, at time.Duration) bool {
	n := f.nodes[pid]
	if n == nil {
		if _, ok := f.foreign[pid]; !ok {
			f.meet(pid)
		}
		return f.nodes[pid] != nil
	}
	if n.runner {
		return true
	}
	n.shared, n.shareRound, n.divided = 0, 0, false // another program
	family := n.family
	if family.looks > 0 {
		family.looks--
		f.opts.Look(family, pid)
	}
	if !family.containers {
		comm, err := f.file(pid, "comm")
		family.containers = err == nil && makesContainers(comm)
	}
	if family.containers {
		f.place(n)
	}
	return true
}

// Exit notes that pid has ended, at a time of the kernel's monotonic clock, with
// a status as wait(2) gives it. parent is who will wait for it, 0 when not known.
// With at 0 it is only known to have ended by now.
func (f *Forest) Exit(pid, parent, code int, at time.Duration) bool {
	n := f.nodes[pid]
	if n == nil {
		f.forget(pid)
		return false
	}
	first := !n.runner && n.family.Root == pid && at != 0
	if first {
		n.family.Code, n.family.Coded = code, true
	}
	waits := f.parentOf(n, parent)
	readable := f.clock(n)
	if readable && (n.kids || n.threads > 1 || waits == nil) {
		if f.read(n) == nil && n.threads > 1 {
			n.headless = true // its first thread ended before the others
			return true
		}
	}
	if readable {
		f.stats.Read++
		if waits == nil {
			f.readIO(n)
		}
	} else {
		f.stats.Gone++
		f.again(waits)
	}
	if first {
		n.family.unread = !readable && n.family.parent != nil
	}
	f.settle(n, waits, at)
	return true
}

// Settled is to be called when all events that wait have been told. A family
// whose first process was gone before it could be read gets what its runner's account
// shows beyond what is known of the runner's other children, unless there are two.
func (f *Forest) Settled() {
	for _, family := range f.unread {
		r, of := family.parent, 0
		for _, other := range f.unread {
			if other.parent == r {
				of++
			}
		}
		if of == 1 && f.nodes[r.pid] == r && f.read(r) == nil {
			if known := r.base + r.after + r.missed; r.waited > known {
				family.kept.cpu += r.waited - known
				r.base += r.waited - known
			}
		}
	}
	for i, family := range f.unread {
		f.unread[i] = nil
		if family.unread = false; family.living == 0 {
			f.end(family)
		}
	}
	f.unread = f.unread[:0]
}

// parentOf returns the process of n's family that waits for it, nil if none does.
func (f *Forest) parentOf(n *treeNode, parent int) *treeNode {
	if parent == 0 {
		parent = n.parent
	}
	if p := f.nodes[parent]; p != nil && p != n && p.family == n.family && !p.runner {
		return p
	}
	return nil
}

// again reads a parent that waited for a child before that could be read.
func (f *Forest) again(p *treeNode) {
	if p == nil || now()-p.readAt < againAfter {
		return
	}
	f.clock(p)
	_ = f.read(p) // gone as well: its own end tells
}

// settle books a process that has ended and lets it go.
func (f *Forest) settle(n, waits *treeNode, at time.Duration) {
	delete(f.nodes, n.pid)
	f.shut(n)
	if n.runner {
		f.runners--
		f.recycle(n)
		return
	}
	family, v := n.family, n.own+n.children()
	switch {
	case waits != nil:
		waits.ended(v, at)
		if n.contained && !waits.contained {
			family.outside += v // it is in that one's account, too
		}
	case n.contained:
	default:
		family.kept.add(n)
		family.kept.cpu += v
		if r := family.parent; r != nil && n.pid == family.Root && f.nodes[r.pid] == r {
			r.ended(v, at)
		}
	}
	if n.pid == family.Root {
		if family.RootEnded = at; at == 0 {
			family.RootEnded = now()
		}
	}
	if family.living--; family.unread && n.pid == family.Root {
		f.unread = append(f.unread, family) // see Settled
	} else if family.living == 0 && !family.unread {
		f.end(family)
	}
	f.recycle(n)
}

// end tells of a family's end.
func (f *Forest) end(family *Family) {
	delete(f.families, family)
	family.Ended = now()
	family.sum(totals{resident: family.told.resident, threads: family.told.threads})
	f.opts.Ended(family)
}

// Drop lets a family go: it is of no build, or what is left of it is not
// waited for. Its processes and their children are not looked at any more.
func (f *Forest) Drop(family *Family) {
	f.unread = slices.DeleteFunc(f.unread, func(u *Family) bool { return u == family })
	for pid, n := range f.nodes {
		if n.family != family {
			continue
		}
		delete(f.nodes, pid)
		f.shut(n)
		f.recycle(n)
		note(f.foreign, pid)
	}
	delete(f.families, family)
}
