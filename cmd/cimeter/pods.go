package main

import (
	"maps"
	"sync"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/jenkins"
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
	first  map[string]string           // UID of the first pod of a build that may have several, by its key
}

func newPods(identify ci.Identifier) *pods {
	return &pods{identify: ci.InPod(identify), builds: make(map[string]cimeter.Identity), first: make(map[string]string)}
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
	if id.Build.CI == jenkins.CI && id.Build.Number != "" {
		p.further(&id, c.Pod)
	}
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

// further gives a pod of a build that this machine has had another pod of a build of
// its own. A pipeline makes its pods one after the other or at once: the build of the
// first may be over long before the last begins.
func (p *pods) further(id *cimeter.Identity, pod *cimeter.Pod) {
	id.Group = pod.UID
	switch first, ok := p.first[id.Build.Key]; {
	case !ok:
		if len(p.first) >= maxPods {
			clear(p.first) // of builds that are over, all but a few
		}
		p.first[id.Build.Key] = pod.UID
	case first != pod.UID:
		id.Build.Key += "/" + pod.Name
	}
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
