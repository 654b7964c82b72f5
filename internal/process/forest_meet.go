package process

// makesContainers reports whether a program puts its descendants in containers.
func makesContainers(comm []byte) bool {
	switch string(trim(comm)) {
	case "podman", "conmon", "buildah", "runc", "crun", "youki", "nerdctl":
		return true
	}
	return false
}

// place notes whether a process is in a container by now.
func (f *Forest) place(n *treeNode) {
	if b, err := f.file(n.pid, "cgroup"); err == nil && f.opts.Foreign(b) {
		n.contained = true
	}
}

// meet finds out whether a process that nothing is known of is a runner.
func (f *Forest) meet(pid int) {
	comm, err := f.file(pid, "comm")
	if err != nil {
		return
	}
	kind := f.opts.Runner(trim(comm))
	if _, ok := f.plain[pid]; ok && kind == NoRunner {
		return // one that has got into a container since, a scan finds
	}
	b, err := f.file(pid, "cgroup")
	switch {
	case err != nil:
	case f.opts.Foreign(b):
		delete(f.plain, pid)
		note(f.foreign, pid)
	case kind != NoRunner:
		delete(f.plain, pid)
		f.runner(pid, kind)
	default:
		note(f.plain, pid)
	}
}

// note adds a process to a set that is bounded.
func note(set map[int]struct{}, pid int) {
	if len(set) < maxProcesses {
		set[pid] = struct{}{}
	}
}

// forget forgets what a process that is of no family was found to be.
func (f *Forest) forget(pid int) {
	delete(f.foreign, pid)
	delete(f.plain, pid)
}

// runner notes that pid is a runner.
func (f *Forest) runner(pid int, kind RunnerKind) {
	if len(f.nodes) >= maxProcesses {
		f.stats.Dropped++
		return
	}
	n := f.node(pid)
	n.runner, n.waiting = true, kind == Waits
	f.runners++
	if f.read(n) == nil {
		n.base = n.waited // what it waited for before is nobody's
	}
}
