package agent

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
	"github.com/cimeter/cimeter/internal/watch"
)

// maxParents bounds the parents of containers' cgroups whose counters are kept.
const maxParents = 64

// parent is the cgroup above containers': its counters keep what they used when
// they are gone, and so tell what no segment has shown.
type parent struct {
	group    *cgroup.Group
	base     uint64 // its CPU time when it was first seen, nanoseconds
	captured uint64 // CPU time of its containers that was read since, nanoseconds
	told     uint64
	// unsure is set while a container of it was missed altogether and the
	// difference is not accounted for: it may be that one's.
	unsure bool
	sample cimeter.Sample
}

// parentOf returns the parent of a container's cgroup, nil where that holds
// other things too (a slice of systemd).
func (g *gauges) parentOf(m *meter, cgroupPath string) *parent {
	dir := path.Dir(cgroupPath)
	if p, ok := g.parents[dir]; ok {
		return p
	}
	if dir == "/" || strings.HasSuffix(dir, ".slice") || len(g.parents) >= maxParents {
		return nil
	}
	group, err := m.host.Group(dir)
	if err != nil {
		return nil
	}
	p := &parent{group: group}
	if err := group.Read(&p.sample, cgroup.Fast); err != nil {
		group.Close()
		return nil
	}
	p.base, _ = p.sample.Counter(cimeter.CPUTotal)
	g.parents[dir] = p
	return p
}

// capture holds the parents' counters against what was read of their children.
func (g *gauges) capture(m *meter) {
	for dir, p := range g.parents {
		if err := p.group.Read(&p.sample, cgroup.Fast); err != nil {
			p.group.Close()
			delete(g.parents, dir) // made again: begins anew
			continue
		}
		used, _ := p.sample.Counter(cimeter.CPUTotal)
		used -= min(used, p.base)
		if used > p.captured+p.told {
			g.uncaptured.Add(float64(used-p.captured-p.told) / 1e9)
			p.told = used - p.captured
		}
		p.unsure = false
	}
}

// recoverWithin is the age of a last reading up to which it is tried to tell what
// a container used after it.
const recoverWithin = 5 * time.Second

// recoverLost tells what a container used between its last reading and its end,
// which was missed. It waits until no event is left that could tell of another
// container that has used some of it.
func (m *meter) recoverLost() {
	if len(m.lost) == 0 {
		return
	}
	more := false
	if err := m.watch.Wait(0, func(e watch.Event) { more = true; m.happened(e) }); err != nil || more {
		return // once more after the next wait
	}
	if len(m.lost) == 1 {
		m.recover(m.lost[0])
	}
	clear(m.lost)
	m.lost = m.lost[:0]
}

// recover books what a container used that its parent has and no container has
// shown, as long as it can be nobody else's.
func (m *meter) recover(l *live) {
	p := l.parent
	if p.unsure || time.Since(l.read) > recoverWithin || p.group.Read(&p.sample, cgroup.Fast) != nil {
		return
	}
	used, _ := p.sample.Counter(cimeter.CPUTotal)
	// The siblings are read after the parent: what they use meanwhile makes the
	// rest smaller, never larger.
	for _, s := range m.lives {
		if s.parent != p || s.closed {
			continue
		}
		err := s.group.Read(&s.sample, cgroup.Fast)
		m.book(s, err)
		if err != nil {
			return // another end was missed: which used what cannot be told
		}
	}
	if m.strangers(path.Dir(l.path)) {
		return
	}
	rest := used - min(used, p.base+p.captured+p.told)
	if rest == 0 {
		return
	}
	p.captured += rest
	for _, c := range []cimeter.Counter{cimeter.CPUTotal, cimeter.CPUUser} {
		if v, ok := l.sample.Counter(c); ok || c == cimeter.CPUTotal {
			l.sample.SetCounter(c, v+rest)
		}
	}
	m.ledger.Advance(l.segment, &l.sample)
	m.gauges.recovered.Add(float64(rest) / 1e9)
}

// strangers reports whether a parent has containers that the meter does not
// know (yet).
func (m *meter) strangers(parent string) bool {
	entries, err := os.ReadDir(filepath.Join(m.host.WatchDir(), parent))
	if err != nil {
		return true
	}
	for _, e := range entries {
		if _, ok := cgroup.ContainerID(e.Name()); ok && m.paths[path.Join(parent, e.Name())] == nil {
			return true
		}
	}
	return false
}
