package wrap

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// Options are what a run needs to know. Command, Env, Getenv, Proc, Pid and
// Open must be set.
type Options struct {
	Command []string // argv; Command[0] is looked for in PATH
	Env     []string // of the command
	Getenv  func(string) string
	Dir     string // working directory, for its name only; "" when not known
	Machine string // name of this machine
	Pid     int    // of this process

	Stage   string // name of the stage that the command is; "" when nothing was said
	Project string // "" when nothing was said
	Name    string // of the build; "" is the command's base name

	Proc string // the proc file system
	// Open opens the counters of the cgroup at path, relative to the mount
	// points of those hierarchies that have it, and tells its limits.
	Open func(path string) (Group, cimeter.Limits, error)
}

// Report is what is known of a run that is over.
type Report struct {
	Record cimeter.Record
	Status syscall.WaitStatus // as wait(2) gave it
	Nested bool               // a run around this one has the stages
	Left   int                // processes that the command left running; they were counted until its end
	Missed []string           // what was not measured and why; empty when all was
}

// Run runs o.Command with this process's descriptors, terminal, signals and
// everything else, waits for it, and returns what it spent. The error is a
// [*StartError], or says that the command could not be waited for; nothing that
// goes wrong with metering is an error.
func Run(o Options) (*Report, error) {
	if len(o.Command) == 0 {
		return nil, fmt.Errorf("no command: %w", cimeter.ErrInvalid)
	}
	runtime.LockOSThread() // the command dies with the thread that started it
	defer runtime.UnlockOSThread()
	rep := &Report{}
	outer, nested := outerMailbox(o.Getenv(DirVariable))
	rep.Nested = nested
	ns := pidNamespace(o.Proc)
	name := nestName(o.Pid, ns)
	box, err := newMailbox(name)
	rep.miss("stages of runs inside", err)
	defer box.remove()

	nst := o.prepare(rep, name)
	t := &tree{proc: o.Proc, self: o.Pid}
	path, pathSet := variable(o.Env, "PATH")
	st := &starter{argv: o.Command, env: withVariable(o.Env, DirVariable, box.dir), files: find(o.Command[0], path, pathSet), nest: nst}
	if nst != nil {
		defer nst.remove()
	} else {
		// Orphans of the command come to this process, which then learns what they spent.
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		st.reap = t.reaped
	}
	inherited := inheritedFiles(o.Proc)
	sig := catch()
	started := time.Now()
	c, missed, err := st.start()
	if err != nil {
		return nil, startError(o.Command[0], err)
	}
	rep.Missed = append(rep.Missed, missed...)
	standAside()
	sig.forward(c)
	letGo(inherited)

	// The counters are opened while the command begins: they began with its
	// cgroup. All is done by this thread, as far as it can be: on a busy machine
	// each change of threads costs a command that is over at once a millisecond.
	m := newMeter(t, started)
	var limits *cimeter.Limits
	if g := o.open(nst, rep); g != nil {
		m.source, limits = g, g.limits
	} else {
		t.began(c.pid)
	}
	m.watch(func() {
		if nst != nil {
			nst.sweep(ns)
		}
		box.sweep(ns)
	})
	e := st.wait(c.pid)
	end := time.Now()
	m.stop()
	sig.end()
	if c.pidfd >= 0 {
		_ = unix.Close(c.pidfd)
	}
	orphans := m.source.left()
	rep.Left, rep.Status = settled(orphans, m.source.left), e.status
	m.finish(e, end)
	m.source.close()

	inner, dropped := box.take()
	if dropped > 0 {
		rep.Missed = append(rep.Missed, fmt.Sprintf("%d stages of runs inside", dropped))
	}
	whole := m.usage(end.Sub(started))
	controlled := nst != nil && nst.io
	if orphans > 0 && e.status.Signaled() && !controlled {
		// It did not wait for what it had started, and wait4 tells next to nothing.
		whole.IOBytes = nil
	}
	if !believable(&whole, inner) {
		rep.Missed = append(rep.Missed, "stages of runs inside (they claim more than was spent)")
		inner = nil
	}
	if !reconcile(&whole, inner, controlled) {
		rep.Missed = append(rep.Missed, "disk by stage (runs inside counted it otherwise)")
	}
	rep.Record = makeRecord(&o, m, whole, limits, inner, e, end, rep.Left)
	if nested {
		rep.miss("stage in the run around", outer.put(rep.Record.Stages))
	}
	if e.err != nil {
		return rep, e.err
	}
	return rep, nil
}

// settled returns how many processes are left of n, some 30 ms later where there
// are any: what the command's end ends is given the time to.
func settled(n int, left func() int) int {
	for wait := time.Millisecond; n > 0 && wait <= 16*time.Millisecond; wait *= 2 {
		time.Sleep(wait)
		n = left()
	}
	return n
}

// prepare makes cgroups for the command, nil when it is to be metered by its
// processes.
func (o *Options) prepare(rep *Report, name string) *nest {
	hs, err := readHierarchies(o.Proc)
	var n *nest
	if err == nil {
		n, err = makeNest(hs, name)
	}
	if err != nil {
		rep.miss(missedCgroup, err)
		return nil
	}
	if !n.has("memory") {
		rep.Missed = append(rep.Missed, "memory ("+why(n.missed, "no memory controller for a cgroup of its own")+")")
	}
	return n
}

// missedCgroup is what the processes of a command do not tell.
const missedCgroup = "memory with its peak, pressure, kills for memory"

// open opens the counters of the cgroups in n, nil when they cannot tell CPU time.
func (o *Options) open(n *nest, rep *Report) *groups {
	if n == nil {
		return nil
	}
	if !n.countsCPU() {
		rep.miss(missedCgroup, errNotJoined)
		return nil
	}
	g := &groups{nest: n, io: n.io}
	var errs []error
	for _, p := range n.paths() {
		one, l, err := o.Open(p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		g.open = append(g.open, one)
		if l != (cimeter.Limits{}) {
			g.limits = tighter(g.limits, l)
		}
	}
	// One that cannot be read costs no more than what only it counts.
	var s cimeter.Sample
	g.sample(&s, false)
	if _, ok := s.Counter(cimeter.CPUTotal); !ok {
		rep.miss(missedCgroup, append(errs, errNoCPU)[0])
		g.close()
		return nil
	}
	if _, ok := s.Gauge(cimeter.MemoryCurrent); !ok && len(errs) > 0 && n.has("memory") {
		rep.miss("memory", errs[0])
	}
	return g
}

// errNoCPU says that the cgroups are there but tell no CPU time.
var errNoCPU = errors.New("the cgroup tells no CPU time")

var errNotJoined = errors.New("the command could not be put into its cgroup")

// why joins reasons, or is otherwise when there are none.
func why(reasons []string, otherwise string) string {
	if len(reasons) == 0 {
		return otherwise
	}
	return strings.Join(slices.Compact(reasons), ", ")
}

// tighter returns the smaller of two sets of limits, member by member.
func tighter(a *cimeter.Limits, b cimeter.Limits) *cimeter.Limits {
	if a == nil {
		return &b
	}
	if b.CPUCores.Known && (!a.CPUCores.Known || b.CPUCores.Value < a.CPUCores.Value) {
		a.CPUCores = b.CPUCores
	}
	if b.MemoryBytes.Known && (!a.MemoryBytes.Known || b.MemoryBytes.Value < a.MemoryBytes.Value) {
		a.MemoryBytes, a.MemorySetBy = b.MemoryBytes, b.MemorySetBy
	}
	return a
}

func (r *Report) miss(what string, err error) {
	if err != nil {
		r.Missed = append(r.Missed, fmt.Sprintf("%s (%v)", what, err))
	}
}

// variable returns the value of name in env.
func variable(env []string, name string) (string, bool) {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// withVariable returns env with name set to value, or without it for "".
func withVariable(env []string, name, value string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if k, _, _ := strings.Cut(kv, "="); k != name {
			out = append(out, kv)
		}
	}
	if value != "" {
		out = append(out, name+"="+value)
	}
	return out
}
