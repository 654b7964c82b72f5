package main

import (
	"maps"
	"sync"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// maxPods bounds the pods whose build is remembered: more than a machine runs, with
// those that have just ended.
const maxPods = 1024

// pods tells the builds of containers of pods. The container that holds a pod's
// namespaces has no variables: where those tell the build, another container of the
// pod does.
type pods struct {
	identify ci.Identifier

	mu     sync.Mutex
	builds map[string]cimeter.Identity // by the pod's UID
	uids   []string                    // the oldest first
}

func newPods(identify ci.Identifier) *pods {
	return &pods{identify: ci.InPod(identify), builds: make(map[string]cimeter.Identity)}
}

// Identify is a ci.Identifier.
func (p *pods) Identify(c *cimeter.Container) (cimeter.Identity, bool) {
	id, ok := p.identify(c)
	if !ok || id.Doubt != "" {
		return id, ok
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	uid := c.Pod.UID
	known, found := p.builds[uid]
	switch {
	case c.Sandbox && found:
		id.Build, id.Group, id.Later = known.Build, known.Group, false
	case c.Sandbox || id.Later:
	default:
		if !found {
			p.uids = append(p.uids, uid)
		}
		p.builds[uid] = id
		if len(p.uids) > maxPods {
			delete(p.builds, p.uids[0])
			p.uids = p.uids[1:]
		}
	}
	return id, true
}

// withPod lets rules match labels and annotations of a container's pod as they do
// the container's labels, which come before those of the same name.
func withPod(identify ci.Identifier) ci.Identifier {
	return func(c *cimeter.Container) (cimeter.Identity, bool) {
		all := *c
		all.Labels = make(map[string]string, len(c.Labels)+len(c.Pod.Labels)+len(c.Pod.Annotations))
		maps.Copy(all.Labels, c.Pod.Annotations)
		maps.Copy(all.Labels, c.Pod.Labels)
		maps.Copy(all.Labels, c.Labels)
		return identify(&all)
	}
}
