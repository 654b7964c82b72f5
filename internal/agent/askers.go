package agent

import (
	"slices"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
)

const (
	// maxClients bounds the processes of a container that are looked at for one
	// that is a client of an engine.
	maxClients = 128
	// maxAskers bounds those of all containers in one look: the meter has no
	// longer than a runtime takes to remove a cgroup.
	maxAskers = 1024
	// childCost is how many of those a process counts that is found by its parent:
	// that takes a look into three files.
	childCost = 3
)

// clients are the programs that have containers or images made. Those of remote need
// no socket for it: the engine may be anywhere.
var (
	clients = [...]string{"docker", "docker-buildx", "docker-compose", "buildctl", "podman", "buildah", "nerdctl", "dagger", "skaffold", "pack"}
	remote  = [...]string{"docker", "docker-buildx", "docker-compose", "buildctl", "dagger", "skaffold"}
)

// engines are the programs that run what those ask for. A build that has one of its
// own and no socket asks that.
var engines = [...]string{"dockerd", "buildkitd", "dagger-engine"}

// askers returns which builds have a process now that is a client of an engine, by
// its name, which whoever wrote the build chose. Those with an engine's socket must be
// among keys; far asks for those without one, too. Builds without containers have what
// their user has: sockets as well. all is false when there are more processes than are
// looked at.
func (m *meter) askers(keys []string, far bool) (with []string, all bool) {
	var (
		buf     [maxClients]int
		distant []string // builds with a client and no socket
		own     []string // builds with an engine
		left    = maxAskers
	)
	add := func(to *[]string, key string) {
		if !slices.Contains(*to, key) {
			*to = append(*to, key)
		}
	}
	for _, k := range m.known {
		key := k.identity.Build.Key
		if k.stand != ours || k.running == nil || k.running.closed || !far && !(k.socket && slices.Contains(keys, key)) {
			continue
		}
		for _, pid := range k.running.group.ProcsBelow(buf[:0], len(buf)) {
			if left--; left < 0 {
				return nil, false
			}
			name, err := m.procs.Name(pid)
			switch {
			case err != nil:
			case k.socket && slices.Contains(keys, key) && slices.Contains(clients[:], name):
				add(&with, key)
			case slices.Contains(remote[:], name):
				add(&distant, key)
			case slices.Contains(engines[:], name):
				add(&own, key)
			}
		}
	}
	m.eachShell(func(sh *shell) {
		if sh.segment.BuildKey() == "" || left < 0 {
			return
		}
		for _, pid := range m.procs.AppendBelow(buf[:0], sh.family.Root, len(buf)) {
			left -= childCost
			if name, err := m.procs.Name(pid); err == nil && slices.Contains(clients[:], name) {
				add(&with, sh.segment.BuildKey())
				return
			}
		}
	})
	if left < 0 {
		return nil, false
	}
	for _, key := range distant {
		if far && !slices.Contains(own, key) {
			add(&with, key)
		}
	}
	return with, true
}

// nobodys returns what is known of a container that no runner made; nil when it is a
// build's, or not known yet.
func (m *meter) nobodys(l *live) *known {
	if k := m.known[l.id]; k != nil && k.stand == others && k.running == l {
		return k
	}
	return nil
}

// shared returns what is known of the container l, where that is one of nobody's in which
// builds may have things made; nil when it is not, or all of it is one build's.
func (m *meter) shared(l *live) *known {
	k := m.nobodys(l)
	if k == nil {
		return nil
	}
	if k.beside.key != "" {
		m.tellLive(k, l, time.Time{}) // that build may be over
	}
	if k.beside.key != "" {
		return nil
	}
	return k
}

// lookIntoOthers watches for what is nested in a container that no runner made: an
// engine in it may be one that builds share.
func (m *meter) lookIntoOthers(k *known) {
	if k.stand == others && k.running != nil {
		k.running.withKnown = false // what came while it was asked for is told again
		m.lookInto(k.running)
	}
}

// sharedBy notes that the container k holds an engine which builds have asked for
// something. What it does itself from now on is theirs together.
func (m *meter) sharedBy(k *known, l *live) {
	if k.beside.by != "" {
		return
	}
	_ = l.group.Read(&l.sample, cgroup.Fast) // gone: what it showed last is what it used before
	k.beside.by = cimeter.Unattributed
	l.besideTold, _ = l.sample.Counter(cimeter.CPUTotal)
}
