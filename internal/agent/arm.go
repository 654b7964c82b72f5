package agent

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/process"
)

// arm watches a process of the container that is not ended; false: none is left.
func (m *meter) arm(l *live, ended int) bool {
	var buf [64]int
	pids, err := l.group.Procs(buf[:0])
	if err != nil {
		return false
	}
	if m.armOne(l, pids, ended) {
		return true
	}
	// Docker in Docker moves its own processes to a cgroup below (v2), too.
	return (ended >= 0 || l.looks > moveAfter) && m.armOne(l, l.group.ProcsBelow(buf[:0], len(buf)), ended)
}

// moveAfter is after how many looks for a first process it is looked for below.
const moveAfter = 4

// armOne watches one of the processes; false: none of them is left.
func (m *meter) armOne(l *live, pids []int, ended int) bool {
	for _, pid := range pids {
		if pid == ended || pid <= 0 {
			continue
		}
		fd, err := process.OpenPidfd(pid)
		if errors.Is(err, cimeter.ErrGone) {
			continue
		}
		if err != nil {
			return true // no descriptor to be had: the rounds look for its end
		}
		if err := m.watch.AddPidfd(fd, l.token); err != nil {
			unix.Close(fd)
			return true
		}
		l.pidfd, l.pid = fd, pid
		return true
	}
	return false
}

func (m *meter) disarm(l *live) {
	if l.pidfd >= 0 {
		m.watch.RemovePidfd(l.pidfd)
		unix.Close(l.pidfd)
		l.pidfd = -1
	}
}

// onlyZombie reports whether the one process that the kernel lists is the one
// whose end was told: older kernels list it until it is reaped.
func (m *meter) onlyZombie(l *live) bool {
	var buf [2]int
	pids, err := l.group.Procs(buf[:0])
	return err == nil && l.pidfd < 0 && len(pids) == 1 && pids[0] == l.pid
}
