package agent

import (
	"path"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
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
	sample   cimeter.Sample
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
	}
}
