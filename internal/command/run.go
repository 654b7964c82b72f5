package command

import (
	"fmt"
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
	rep := &Report{}
	outer, nested := outerMailbox(o.Getenv(DirVariable))
	rep.Nested = nested
	box, err := newMailbox()
	rep.miss("stages of runs inside", err)
	defer box.remove()

	src, nst, limits := o.prepare(rep)
	if nst != nil {
		defer nst.remove()
	}

	path, pathSet := variable(o.Env, "PATH")
	st := &starter{argv: o.Command, env: withVariable(o.Env, DirVariable, box.dir), files: find(o.Command[0], path, pathSet), nest: nst}
	if t, ok := src.(*tree); ok {
		st.reap = t.reaped
	}
	inherited := inheritedFiles(o.Proc)
	sig := catch()
	started := time.Now()
	c, missed, err := st.start()
	rep.Missed = append(rep.Missed, missed...)
	if err != nil {
		return nil, startError(o.Command[0], err)
	}
	sig.forward(c)
	letGo(inherited)
	if nst != nil && !nst.countsCPU() {
		rep.Missed = append(rep.Missed, "memory as the kernel accounts it (metered by its processes)")
		src = &tree{proc: o.Proc, self: o.Pid}
	}
	if t, ok := src.(*tree); ok {
		t.began(c.pid)
	}

	m := newMeter(src, started)
	stop, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		m.watch(stop)
	}()
	if nst != nil {
		nst.sweep(pidNamespace(o.Proc))
	}
	e := <-c.done
	end := time.Now()
	close(stop)
	<-watched
	sig.end()
	if c.pidfd >= 0 {
		_ = unix.Close(c.pidfd)
	}
	m.finish(e, end)
	rep.Left, rep.Status = src.left(), e.status
	if g, ok := src.(*groups); ok {
		g.close()
	}

	inner, dropped := box.take()
	if dropped > 0 {
		rep.Missed = append(rep.Missed, fmt.Sprintf("%d stages of runs inside", dropped))
	}
	if whole := m.usage(end.Sub(started)); !believable(&whole, inner) {
		rep.Missed = append(rep.Missed, "stages of runs inside (they claim more than was spent)")
		inner = nil
	}
	rep.Record = makeRecord(&o, m, limits, inner, e, end, rep.Left)
	if nested {
		rep.miss("stage in the run around", outer.put(rep.Record.Stages))
	}
	if e.err != nil {
		return rep, e.err
	}
	return rep, nil
}

// prepare makes what the command is metered by: cgroups, else its processes.
func (o *Options) prepare(rep *Report) (source, *nest, *cimeter.Limits) {
	hs, err := readHierarchies(o.Proc)
	var n *nest
	if err == nil {
		n, err = makeNest(hs, nestName(o.Pid, pidNamespace(o.Proc)))
	}
	if err == nil {
		g := &groups{nest: n}
		var limits *cimeter.Limits
		for _, p := range n.paths() {
			var one Group
			var l cimeter.Limits
			if one, l, err = o.Open(p); err != nil {
				break
			}
			g.open = append(g.open, one)
			if l != (cimeter.Limits{}) {
				limits = tighter(limits, l)
			}
		}
		if err == nil && len(g.open) > 0 {
			if !n.has("memory") {
				rep.Missed = append(rep.Missed, "memory ("+why(n.missed, "no memory controller for a cgroup of its own")+")")
			}
			return g, n, limits
		}
		g.close()
		n.remove()
	}
	rep.Missed = append(rep.Missed, fmt.Sprintf("memory as the kernel accounts it (%v; metered by its processes)", err))
	// Orphans of the command come to this process, which then learns what they spent.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	return &tree{proc: o.Proc, self: o.Pid}, nil, nil
}

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
