package process

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// Family is a process that a runner started, with all its descendants, those
// that left it included (daemons). Times are of the kernel's monotonic clock.
type Family struct {
	Root      int    // pid of its first process
	Runner    int    // pid of the runner, 0: it has none
	Start     uint64 // of the first process, see FS.StartTime; 0: not read yet
	Started   time.Duration
	RootEnded time.Duration // 0 while the first process lives
	Ended     time.Duration // 0 while any process lives
	Code      int           // of the first process, as wait(2) gives it
	Coded     bool          // Code is known
	Tag       any           // the caller's

	parent     *treeNode // the runner
	living     int
	looks      int // left to find out what it is
	containers bool
	kept       totals // of those that ended and that no process of the family waited for
	outside    uint64 // of that, and of others' waiting: CPU time of processes in containers
	told       totals
	round      totals // scratch of a round
	ioKnown    bool
	// Bytes that its processes had resident, added up over rounds; and of those, the
	// processes' of which it is known what they share.
	whole, divided uint64
	unread         bool // its first process was gone before it could be read: see Forest.Settled
}

// Known says that the caller knows what the family is: it is not looked at any more.
func (f *Family) Known() { f.looks = 0 }

// LookAtMost says that the caller needs to see at most n more of its processes.
func (f *Family) LookAtMost(n int) { f.looks = min(f.looks, n) }

// Proved says that the family is a build's: what its runner waits for is held
// against what its families show.
func (f *Family) Proved() {
	if f.parent != nil {
		f.parent.proved = true
	}
}

// Living returns how many processes of the family live.
func (f *Family) Living() int { return f.living }

// totals adds up over processes.
type totals struct {
	cpu          uint64 // nanoseconds
	user, system uint64 // nanoseconds, as ticks of 10 ms told
	read, write  uint64 // bytes
	resident     uint64 // bytes, less what is shared as far as known
	threads      uint64

	whole, divided uint64 // see Family
}

// add adds what a process's files told at their last reading.
func (t *totals) add(n *treeNode) {
	t.user += n.user
	t.system += n.system
	t.read += n.io.ReadBytes
	t.write += n.io.WriteBytes
}

// sum brings the family's totals up to date; living is of those that live.
func (f *Family) sum(living totals) {
	t := &f.told
	cpu := living.cpu + f.kept.cpu
	cpu = max(cpu-min(cpu, f.outside), t.cpu)
	user, system := living.user+f.kept.user, living.system+f.kept.system
	// What rose since is divided as the ticks of the whole are: those are exact
	// in the long run only.
	rise := cpu - t.cpu
	if ticks := user + system; ticks > 0 {
		s := uint64(float64(rise) * float64(system) / float64(ticks))
		t.system += s
		t.user += rise - s
	} else {
		t.user += rise
	}
	t.cpu = cpu
	t.read = max(t.read, living.read+f.kept.read)
	t.write = max(t.write, living.write+f.kept.write)
	t.resident, t.threads = living.resident, living.threads
}

// Set stores in s what the family has used, as of the last round or its end, and
// what it held at the last round, if one has seen it: CPU time; bytes of IO, where
// they may be read; memory, which is the sum of what its processes have resident, a
// page that several share divided between them as far as Proportional says so; and
// threads. A network of its own it has not.
func (f *Family) Set(s *cimeter.Sample) {
	s.SetCounter(cimeter.CPUTotal, f.told.cpu)
	s.SetCounter(cimeter.CPUUser, f.told.user)
	s.SetCounter(cimeter.CPUSystem, f.told.system)
	if f.ioKnown {
		s.SetCounter(cimeter.IOReadBytes, f.told.read)
		s.SetCounter(cimeter.IOWriteBytes, f.told.write)
	}
	if f.told.threads > 0 {
		s.SetGauge(cimeter.MemoryCurrent, f.told.resident)
		s.SetGauge(cimeter.Processes, f.told.threads)
	}
}

// treeNode is a process that is followed.
type treeNode struct {
	pid, parent int
	start       uint64 // ticks since the machine was started; 0: not read yet
	born        time.Duration
	family      *Family
	fd          int // of its stat file; -1: not open
	runner      bool
	waiting     bool // a runner that only starts runners
	proved      bool // a runner: a build was seen below it
	kids        bool // it has, or had, children
	dirty       bool // a child ended since its account was read
	contained   bool // it is in a container
	headless    bool // its first thread has ended
	claimed     bool // it is of its family by what it says alone, or below such a one
	rounds      int

	own uint64 // nanoseconds
	// What its children used that ended is max(base, waited) + after: base is
	// of those told until readAt, after of those told since.
	waited, base, after uint64
	readAt              time.Duration
	missed              uint64 // a runner: of Forest.missed, its part

	user, system uint64 // nanoseconds, those of children it waited for included
	io           IO
	resident     uint64 // bytes
	threads      int

	// What of resident it shares with others, in bytes, as it was told in a round when
	// it had shareOf resident; divided: it was told.
	shared, shareOf uint64
	shareRound      int // 0: not asked yet
	divided         bool
}

// children returns what ended children used, in nanoseconds.
func (n *treeNode) children() uint64 { return max(n.base, n.waited) + n.after }

// ended notes that a child ended that had used v.
func (n *treeNode) ended(v uint64, at time.Duration) {
	n.kids, n.dirty = true, true
	if at > n.readAt && at != 0 {
		n.after += v
		return
	}
	n.base += v
}

func (f *Forest) node(pid int) *treeNode {
	var n *treeNode
	if last := len(f.free) - 1; last >= 0 {
		n, f.free = f.free[last], f.free[:last]
	} else {
		n = new(treeNode)
	}
	*n = treeNode{pid: pid, fd: -1}
	f.forget(pid)
	f.nodes[pid] = n
	return n
}

// recycle keeps a node for the next process. A runner's is not: families point to it.
func (f *Forest) recycle(n *treeNode) {
	if !n.runner && len(f.free) < maxProcesses {
		f.free = append(f.free, n)
	}
}

func (f *Forest) shut(n *treeNode) {
	if n.fd >= 0 {
		unix.Close(n.fd)
		n.fd = -1
		f.open--
	}
}

// clock reads a process's own CPU time; false: it is gone.
func (f *Forest) clock(n *treeNode) bool {
	own, ok := clock(n.pid)
	n.own = max(n.own, uint64(own))
	return ok
}

// clock reads the CPU time of a process's threads; false: it is gone.
func clock(pid int) (time.Duration, bool) {
	var t unix.Timespec
	// The clock of another process: ~pid, and 2 for CPUCLOCK_SCHED (linux/posix-timers.h).
	if unix.ClockGettime(int32(^pid<<3|2), &t) != nil {
		return 0, false
	}
	return time.Duration(t.Nano()), true
}

// Monotonic is the kernel's monotonic clock, which events and families tell
// times by.
func Monotonic() time.Duration { return now() }

func now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // never fails
	return time.Duration(t.Nano())
}
