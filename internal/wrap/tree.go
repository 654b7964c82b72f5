package wrap

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/cimeter/cimeter"
)

// tree meters a command by its processes: exactly by wait4(2) what has ended
// and was waited for, by /proc what lives. Orphans are reparented to this
// process, a subreaper, and so are waited for, too. What a process spends whose
// parent lets the kernel reap it unseen (SIGCHLD ignored) is lost at its end.
type tree struct {
	proc string
	self int // this process

	mu     sync.Mutex
	orphan spent    // of the orphans that were waited for
	first  uint64   // start of the command, in ticks since boot; 0 before it is known
	seen   counters // the highest so far
	buf    []byte
}

// counters are cumulative and never fall, whatever a process that ends unseen
// takes with it.
type counters struct{ user, system uint64 }

// reaped notes what an orphan spent.
func (t *tree) reaped(s spent) {
	t.mu.Lock()
	t.orphan.add(s)
	t.mu.Unlock()
}

// began notes the pid of the command.
func (t *tree) began(pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st, ok := t.stat(pid); ok {
		t.first = st.start
	}
}

func (t *tree) sample(s *cimeter.Sample, _ bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	live := t.descendants()
	user, system := uint64(t.orphan.user), uint64(t.orphan.system)
	var anon uint64
	for _, p := range live {
		user += p.user * nanosPerTick
		system += p.system * nanosPerTick
		anon += t.anonymous(p.pid)
	}
	t.set(s, user, system)
	s.SetGauge(cimeter.MemoryAnon, anon)
	s.SetGauge(cimeter.Processes, uint64(len(live)))
}

func (t *tree) last(s, late *cimeter.Sample, e ending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.err != nil {
		return
	}
	all := e.spent
	all.add(t.orphan)
	user, system := uint64(all.user), uint64(all.system)
	for _, p := range t.descendants() {
		user += p.user * nanosPerTick
		system += p.system * nanosPerTick
	}
	t.set(s, user, system)
	all.setIO(late)
}

func (t *tree) left() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, p := range t.descendants() {
		if p.state != 'Z' {
			n++
		}
	}
	return n
}

func (t *tree) close() {}

func (t *tree) set(s *cimeter.Sample, user, system uint64) {
	t.seen.user, t.seen.system = max(t.seen.user, user), max(t.seen.system, system)
	s.SetCounter(cimeter.CPUUser, t.seen.user)
	s.SetCounter(cimeter.CPUSystem, t.seen.system)
	s.SetCounter(cimeter.CPUTotal, t.seen.user+t.seen.system)
}

// nanosPerTick is one tick of USER_HZ, 100 on every architecture of Go's.
const nanosPerTick = 10_000_000

// process is what is used of /proc/PID/stat. Times are ticks and include those
// of the children it waited for.
type process struct {
	pid, parent  int
	state        byte
	user, system uint64
	start        uint64 // ticks since boot
}

// maxProcesses bounds one scan; it is the kernel's own bound of pids (PID_MAX_LIMIT).
const maxProcesses = 4 << 20

// descendants returns the living (and not yet waited for) descendants of this
// process that are not older than the command.
func (t *tree) descendants() []process {
	d, err := os.Open(t.proc)
	if err != nil {
		return nil
	}
	names, _ := d.Readdirnames(-1)
	_ = d.Close()
	children := make(map[int][]process)
	for _, name := range names[:min(len(names), maxProcesses)] {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := t.stat(pid); ok && p.start >= t.first {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	var all []process
	for todo := []int{t.self}; len(todo) > 0; todo = todo[1:] {
		for _, p := range children[todo[0]] {
			all = append(all, p)
			todo = append(todo, p.pid)
		}
		delete(children, todo[0]) // a reused pid must not make a circle
	}
	return all
}

func (t *tree) stat(pid int) (process, bool) {
	b, ok := t.read(pid, "stat")
	if !ok {
		return process{}, false
	}
	return parseStat(b)
}

// read reads a small file of a process into the tree's buffer.
func (t *tree) read(pid int, name string) ([]byte, bool) {
	f, err := os.Open(filepath.Join(t.proc, strconv.Itoa(pid), name))
	if err != nil {
		return nil, false
	}
	defer f.Close()
	if t.buf == nil {
		t.buf = make([]byte, 4096)
	}
	n, err := f.Read(t.buf)
	return t.buf[:n], err == nil
}

// anonymous returns the bytes of a process's resident memory that no file
// backs: resident less shared of statm, in pages.
func (t *tree) anonymous(pid int) uint64 {
	b, ok := t.read(pid, "statm")
	f := bytes.Fields(b)
	if !ok || len(f) < 3 {
		return 0
	}
	resident, err := strconv.ParseUint(string(f[1]), 10, 64)
	shared, err2 := strconv.ParseUint(string(f[2]), 10, 64)
	if err != nil || err2 != nil || shared > resident {
		return 0
	}
	return (resident - shared) * uint64(os.Getpagesize())
}

// parseStat parses /proc/PID/stat (proc_pid_stat(5)); the name in parentheses
// may hold anything, parentheses and spaces included.
//
//	4242 (a b) S 4241 4242 4242 0 -1 4194560 101 0 0 0 7 3 2 1 20 0 1 0 123456 ...
func parseStat(b []byte) (process, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return process{}, false
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return process{}, false
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	if err != nil || pid <= 0 {
		return process{}, false
	}
	p := process{pid: pid, state: f[0][0]}
	// Field n of the manual is f[n-3].
	for _, v := range []struct {
		field int
		into  *uint64
	}{{14, &p.user}, {16, &p.user}, {15, &p.system}, {17, &p.system}, {22, &p.start}} {
		n, err := strconv.ParseUint(string(f[v.field-3]), 10, 64)
		if err != nil {
			return process{}, false
		}
		*v.into += n
	}
	if p.parent, err = strconv.Atoi(string(f[1])); err != nil || p.parent < 0 {
		return process{}, false
	}
	return p, true
}
