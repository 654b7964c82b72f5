package cgroup

import (
	"math/bits"

	"github.com/cimeter/cimeter"
)

// modes are user and system CPU time in nanoseconds.
type modes struct{ user, system uint64 }

// setModes divides total, nanoseconds of CPU time of a v1 cgroup, into user and
// system time by the ticks of cpuacct.stat, whose 10 ms each are too coarse to
// give out: as the kernel does itself for processes and on v2 (cputime_adjust,
// kernel/sched/cputime.c). Their sum is total, and neither ever falls.
func (g *Group) setModes(s *cimeter.Sample, total uint64) {
	if !g.hasTicks {
		return
	}
	g.told = g.told.advance(g.ticks, total)
	s.SetCounter(cimeter.CPUUser, g.told.user)
	s.SetCounter(cimeter.CPUSystem, g.told.system)
}

// advance returns the division of total by ticks that goes on from m.
func (m modes) advance(ticks modes, total uint64) modes {
	if total < m.user+m.system {
		return m // the kernel stepped back: wait until it has caught up
	}
	system := share(total, ticks.system, ticks.user)
	system = max(system, m.system)
	user := total - min(system, total)
	if user < m.user {
		user = m.user
		system = total - user
	}
	return modes{user: user, system: system}
}

// share returns total × part / (part + rest); none of both is none.
func share(total, part, rest uint64) uint64 {
	if part == 0 {
		return 0
	}
	sum, carry := bits.Add64(part, rest, 0)
	if carry != 0 {
		return total / 2
	}
	hi, lo := bits.Mul64(total, part)
	q, _ := bits.Div64(hi, lo, sum) // part ≤ sum: the quotient fits
	return q
}
