package agent

import (
	"errors"
	"time"

	"github.com/cimeter/cimeter"
)

// startedIn looks at a container of a build whose engine says that it began, and that
// no cgroup was seen of: a user's podman has none on cgroup v1, nor has a container that
// is told to run without. The engine knows a process of it.
func (m *meter) startedIn(k *known, now time.Time) {
	switch {
	case k.engine == nil:
	case k.seen >= k.starts:
		k.engine.bare = false
	case k.stand == ours && !k.engine.bare:
		m.ask(k, now)
	}
}

// askedTooSoon reports whether an inspection of a container of a build was answered
// before the container began, and no cgroup of it was seen since.
func (m *meter) askedTooSoon(k *known, c *cimeter.Container) bool {
	return k.stand == ours && k.engine != nil && !k.engine.bare && k.starts > k.seen && !c.Running && c.StartedAt.IsZero()
}

// lookForCgroup notes that a container whose process is pid has no cgroup of its own.
// That process must be in a pid namespace of its own, as a container's is: an engine on
// another machine tells numbers that are others' here.
func (m *meter) lookForCgroup(k *known, pid int) {
	if pid <= 0 || k.running != nil || k.engine == nil || k.bare {
		return
	}
	if own, err := m.procs.OwnPids(pid); err != nil || !own {
		return
	}
	b, err := m.procs.Cgroup(pid)
	if err != nil {
		return
	}
	if _, err = containerOf(b); !errors.Is(err, cimeter.ErrNotFound) {
		return // its cgroup is seen in a moment
	}
	k.bare, k.engine.bare = true, true
	if !k.engine.warned {
		k.engine.warned = true
		m.log.Warn("containers of this engine have no cgroup of their own: builds in them are recorded, and not metered",
			"engine", k.engine.Name, "container", k.id)
	}
}
