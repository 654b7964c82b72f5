package agent

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/cgroup"
)

const (
	// maxHolds bounds the lives of containers with an engine's socket that are
	// remembered after their end.
	maxHolds = 256
	// holdFor is how long they are: a client that ends at once may have had made
	// what is told of a moment later.
	holdFor = 5 * time.Second
)

// beside is what is known of something that was made beside the containers of
// builds: by which build, and by which evidence. The zero value is no build's.
type beside struct {
	key string
	by  cimeter.Attribution
}

// hold is the time in which a container of a build had an engine's socket.
type hold struct {
	key      string
	from, to time.Time // to is zero while it runs
}

// socketPaths are the folders that hold engines' sockets.
var socketPaths = [...]string{"/", "/run", "/var", "/var/run", "/run/docker", "/var/run/docker", "/run/podman", "/run/containerd", "/run/buildkit"}

// hasSocket reports whether what is mounted gives a container an engine's socket.
func hasSocket(mounts []cimeter.Mount) bool {
	return slices.ContainsFunc(mounts, func(mt cimeter.Mount) bool {
		if mt.Volume != "" {
			return false
		}
		src := path.Clean(mt.Source)
		switch path.Base(src) {
		case "docker.sock", "podman.sock", "containerd.sock", "buildkitd.sock":
			return true
		}
		return slices.Contains(socketPaths[:], src)
	})
}

// volumes are the names of the volumes among the mounts.
func volumes(mounts []cimeter.Mount) []string {
	var names []string
	for _, mt := range mounts {
		if mt.Volume != "" && len(names) < maxVolumes {
			names = append(names, strings.Clone(mt.Volume))
		}
	}
	return names
}

// maxVolumes bounds the volumes of a container that are remembered.
const maxVolumes = 32

// anyShell reports whether a build runs without containers.
func (m *meter) anyShell() (any bool) {
	m.eachShell(func(*shell) { any = true })
	return any
}

// holds reports whether any container of a build has an engine's socket, or had
// one lately, or a build has none: whether what is beside may be a build's.
func (m *meter) holds(now time.Time) bool {
	for _, k := range m.known {
		if k.stand == ours && k.socket {
			return true
		}
	}
	return m.anyShell() || slices.ContainsFunc(m.held, func(h hold) bool { return now.Sub(h.to) < holdFor })
}

// released notes that a container with an engine's socket ended.
func (m *meter) released(k *known, l *live, now time.Time) {
	if !k.socket || k.stand != ours {
		return
	}
	m.held = slices.DeleteFunc(m.held, func(h hold) bool { return now.Sub(h.to) > holdFor })
	if len(m.held) < maxHolds {
		m.held = append(m.held, hold{key: k.identity.Build.Key, from: l.born, to: now})
	}
}

// candidates are the builds that had an engine's socket at t.
func (m *meter) candidates(t time.Time) []string {
	var keys []string
	add := func(h hold) {
		if !t.Before(h.from.Add(-time.Second)) && (h.to.IsZero() || !t.After(h.to)) && !slices.Contains(keys, h.key) {
			keys = append(keys, h.key)
		}
	}
	for _, k := range m.known {
		if k.stand == ours && k.socket && k.running != nil {
			from := k.running.born
			if s := k.container.StartedAt; !s.IsZero() && s.Before(from) {
				from = s // it ran before the agent did
			}
			add(hold{key: k.identity.Build.Key, from: from})
		}
	}
	for _, h := range m.held {
		add(h)
	}
	return keys
}

// whose tells which build had something made at t that is beside its containers:
// a container, or, k being nil, what runs in the cgroup p ("" not known) and is no
// container that an engine tells of. Only builds that had an engine's socket then are
// candidates, those without containers that have a client running, and of the latter
// kind of thing also those whose client reaches an engine over the network. The best
// evidence that speaks for one of them alone decides.
func (m *meter) whose(t time.Time, k *known, p string) beside {
	keys := m.candidates(t)
	if len(keys) == 0 && k != nil && !m.anyShell() {
		return beside{}
	}
	for _, e := range []struct {
		by    cimeter.Attribution
		share func(*known) bool
	}{
		{cimeter.AttributedCgroupParent, func(o *known) bool { return sameParent(o, p) }},
		{cimeter.AttributedNetwork, func(o *known) bool { return k != nil && sharesNetwork(&k.container, o) }},
		{cimeter.AttributedVolume, func(o *known) bool { return k != nil && sharesVolume(k.volumes, o.volumes) }},
	} {
		if key, ok := m.only(e.share); ok && slices.Contains(keys, key) {
			return beside{key: key, by: e.by}
		}
	}
	with, all := m.askers(keys, k == nil)
	switch {
	case !all:
		return beside{by: cimeter.Unattributed}
	case len(with) == 1:
		return beside{key: with[0], by: cimeter.AttributedClient}
	case len(with) == 0 && len(keys) == 1:
		return beside{key: keys[0], by: cimeter.AttributedSole}
	case len(with) == 0 && len(keys) == 0:
		return beside{}
	}
	return beside{by: cimeter.Unattributed}
}

// only returns the build of the containers for which share holds, false where they
// are of several, or none.
func (m *meter) only(share func(*known) bool) (key string, ok bool) {
	for _, o := range m.known {
		if o.stand != ours || !share(o) {
			continue
		}
		if key != "" && key != o.identity.Build.Key {
			return "", false
		}
		key = o.identity.Build.Key
	}
	return key, key != ""
}

// sameParent reports whether the container o was asked to be below a cgroup of its
// own choice, and the cgroup p is, too.
func sameParent(o *known, p string) bool {
	if p == "" || o.container.CgroupParent == "" || o.running == nil {
		return false
	}
	parent := path.Dir(p)
	if _, ok := cgroup.BuildStep(p); ok && path.Base(parent) == "buildkit" {
		parent = path.Dir(parent) // BuildKit makes a folder of its own there
	}
	return path.Dir(o.running.path) == parent
}

// sharesNetwork reports whether the container c is in the network of the container
// o, or in a network that is not the engine's usual one and that o is in.
func sharesNetwork(c *cimeter.Container, o *known) bool {
	if id, ok := strings.CutPrefix(c.NetworkMode, "container:"); ok {
		return id == o.id
	}
	return slices.ContainsFunc(c.Networks, func(n string) bool {
		switch n {
		case "bridge", "host", "none", "default", "podman":
			return false
		}
		return slices.Contains(o.container.Networks, n)
	})
}

func sharesVolume(a, b []string) bool {
	return slices.ContainsFunc(a, func(v string) bool { return slices.Contains(b, v) })
}

// holding looks anew at containers that are no build's, now that k is known to have
// an engine's socket: after a start of the agent they may be told of first.
func (m *meter) holding(k *known, now time.Time) {
	for _, o := range m.known {
		if o.stand == others && o.running != nil && o.beside.by == "" && !k.container.StartedAt.IsZero() &&
			o.container.CreatedAt.Add(time.Second).After(k.container.StartedAt) {
			m.ask(o, now)
		}
	}
}

// placeBeside looks whose a container is that is none of a build's own.
func (m *meter) placeBeside(k *known, now time.Time) {
	k.beside = beside{}
	if k.engine == nil {
		return // no engine that is followed has it: neither has a build's socket made it
	}
	made := k.container.CreatedAt
	if made.IsZero() || made.After(now) {
		made = now
	}
	p := ""
	if k.running != nil {
		p = k.running.path
	}
	k.beside = m.whose(made, k, p)
}

// tellLive tells what a container beside builds has used; end is zero while it runs.
func (m *meter) tellLive(k *known, l *live, end time.Time) {
	if k.beside.by == "" {
		return
	}
	p := part(l.path, l.inode, cimeter.PartContainer, l.id, l.born, end, &l.sample)
	m.tellBeside(&k.beside, &l.besideTold, &p)
}

// tellBeside tells what something beside builds has used to the build that it was
// attributed to, while that runs, and counts it; told is what was counted of it.
func (m *meter) tellBeside(b *beside, told *uint64, p *attrib.Piece) {
	if b.key != "" {
		p.Attribution = b.by
		if !m.ledger.Piece(b.key, nil, p) {
			b.key, b.by = "", cimeter.Unattributed // its build is over
		}
	}
	if v := m.gauges.beside[b.by]; v != nil && p.CPU.Value > *told {
		v.Add(float64(p.CPU.Value-*told) / 1e9)
		*told = p.CPU.Value
	}
}

// tellBesides tells what all containers beside builds have used.
func (m *meter) tellBesides() {
	for _, l := range m.lives {
		if l.closed || l.segment.Bound() {
			continue
		}
		if k := m.known[l.id]; k != nil {
			m.tellLive(k, l, time.Time{})
		}
	}
}
