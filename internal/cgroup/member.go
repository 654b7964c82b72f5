package cgroup

// PathOf returns the path of a process's cgroup, as Host.Group takes it, out of
// what /proc/PID/cgroup tells of the process: that in v2, or on v1 and hybrid
// hosts that of the controllers which are metered. ok is false when it is not
// there, not visible from the reader's cgroup namespace, or removed.
func (h *Host) PathOf(ms []Membership) (path string, ok bool) {
	hr := &h.hierarchies[h.procs]
	for _, m := range ms {
		if hr.v2 != (m.Hierarchy == 0) || !hr.v2 && !m.Has(hr.controllers[0]) {
			continue
		}
		outside := m.Path == "/.." || len(m.Path) >= 4 && m.Path[:4] == "/../"
		return m.Path, !outside && !m.Deleted
	}
	return "", false
}
