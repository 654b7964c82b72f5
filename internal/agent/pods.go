package agent

import (
	"slices"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/cgroup"
)

// pod is a Kubernetes pod of which containers exist. Its cgroup counts what they
// used when they are gone, so nothing that its build did is lost, however short.
type pod struct {
	uid      string
	path     string          // of its cgroup; "" where none is known
	inode    uint64          // of that
	segment  *attrib.Segment // of that; nil where it is not counted
	lives    int             // cgroups of its containers, the sandbox's among them
	identity *cimeter.Identity
	torn     bool     // it has containers of several builds: what is left over is nobody's
	waiting  []*known // sandboxes, until it is known whose it is
	network  *live    // the one that has its network
	expires  time.Time
}

// podID is what a pod's own segment has in the place of a container's id.
func podID(uid string) string { return "pod:" + uid }

func (m *meter) podOf(uid string, now time.Time) *pod {
	p := m.pods[uid]
	if p == nil {
		p = &pod{uid: uid}
		m.pods[uid] = p
	}
	p.expires = now.Add(rememberFor)
	return p
}

// intoPod notes that a container's cgroup is one of a pod's, before its first
// reading.
func (m *meter) intoPod(l *live, now time.Time) {
	uid, path, ok := cgroup.Pod(l.path)
	if !ok {
		return
	}
	p := m.podOf(uid, now)
	p.lives++
	l.pod = p
	if p.segment == nil {
		m.openPod(p, path, now)
	}
	if p.segment != nil {
		m.ledger.Within(l.segment, p.segment)
	}
}

// openPod begins to count a pod. Its files are not kept open: they are read twice.
func (m *meter) openPod(p *pod, path string, now time.Time) {
	p.path, p.inode = path, 0
	var s cimeter.Sample
	if !m.readPod(p, &s) {
		return
	}
	if p.segment = m.ledger.Resume(podID(p.uid), p.inode, now); p.segment == nil {
		p.segment = m.ledger.OpenPod(podID(p.uid), path, p.inode, now, &s)
	}
	if p.identity != nil {
		m.bindPod(p, now)
	}
}

// readPod reads a pod's cgroup; false: it is not the one that it was, or gone.
func (m *meter) readPod(p *pod, s *cimeter.Sample) bool {
	g, err := m.host.Group(p.path)
	if err != nil {
		return false
	}
	defer g.Close()
	if p.inode != 0 && p.inode != g.Inode() {
		return false
	}
	p.inode = g.Inode()
	return g.Read(s, cgroup.Full) == nil
}

// outOfPod notes that a container's cgroup is gone. With the last one the pod is
// settled.
func (m *meter) outOfPod(l *live, end time.Time) {
	p := l.pod
	if p == nil {
		return
	}
	if p.network == l {
		p.network = nil
	}
	p.expires = time.Now().Add(rememberFor)
	if p.lives--; p.lives > 0 || p.segment == nil {
		return
	}
	var s cimeter.Sample
	switch {
	case p.torn:
	case m.readPod(p, &s):
		m.gauges.uncaptured.Add(float64(m.ledger.SettlePod(p.segment, &s)) / 1e9)
	default:
		m.ledger.SegmentGap(p.segment, cimeter.Gap{From: end, To: time.Now(), Reason: cimeter.GapMissedEnd})
	}
	m.ledger.Close(p.segment, end, cimeter.Opt[int]{})
	p.segment = nil
}

// claimPod notes that a container of the pod belongs to a build: so does the pod.
func (m *meter) claimPod(k *known, now time.Time) {
	p := m.podOfKnown(k, now)
	if p == nil {
		return
	}
	if p.identity != nil {
		p.torn = p.torn || p.identity.Build.Key != k.identity.Build.Key
		return
	}
	p.identity = &cimeter.Identity{
		Build: k.identity.Build, Group: k.identity.Group, Role: cimeter.RolePod, Stage: attrib.StagePod, Alongside: true,
	}
	m.bindPod(p, now)
	waiting := p.waiting
	p.waiting = nil
	for _, k := range waiting {
		m.bindSandbox(k, p, now)
	}
}

func (m *meter) bindPod(p *pod, now time.Time) {
	if p.segment == nil || p.segment.Bound() {
		return
	}
	if err := m.ledger.Bind(p.segment, now, attrib.StagePod, *p.identity); err != nil {
		m.log.Warn("pod not booked on the build of its containers", "pod", p.uid, "err", err)
	}
}

// sandbox gives a sandbox to the build of its pod, once that is known.
func (m *meter) sandbox(k *known, now time.Time) {
	k.stand = ofPod
	p := m.podOfKnown(k, now)
	switch {
	case p == nil:
	case p.identity != nil:
		m.bindSandbox(k, p, now)
	case !slices.Contains(p.waiting, k):
		p.waiting = append(p.waiting, k)
	}
}

func (m *meter) bindSandbox(k *known, p *pod, now time.Time) {
	k.stand, k.identity = ours, *p.identity
	k.bind(m, now)
	if !k.gone && k.stand == ours {
		m.ledger.Known(k.identity.Build.Key, k.id)
	}
}

// podOfKnown is the pod that a container is in; nil where none is known.
func (m *meter) podOfKnown(k *known, now time.Time) *pod {
	switch {
	case k.running != nil && k.running.pod != nil:
		return k.running.pod
	case k.container.Pod != nil && k.container.Pod.UID != "":
		return m.podOf(k.container.Pod.UID, now)
	}
	return nil
}

// attachesFor reports whether the network of l is to be looked for as its own. A
// pod's network is its sandbox's, whichever of its containers is seen first.
func (m *meter) attachesFor(l *live) bool {
	k := m.know(l.id)
	switch {
	case k.container.Pod == nil:
		return l.pod == nil || k.stand != nothing && k.stand != waiting // told by who knows no pods
	case k.container.Sandbox:
		return true
	case k.stand == waiting || k.stand == nothing:
		return false // its inspection tells of the network
	}
	l.netDone = true
	if k.container.NetworkMode == "host" {
		m.ledger.SetNotMetered(l.segment, "network_bytes", "host network")
	} else {
		m.ledger.SetNotMetered(l.segment, "network_bytes", attrib.NetworkOfPod)
	}
	return false
}

// readPodNetwork reads the network of a pod one of whose containers has ended: a
// runtime may take it away before it ends the sandbox.
func (m *meter) readPodNetwork(l *live) {
	if p := l.pod; p != nil && p.network != nil && p.network != l && !p.network.closed {
		n := p.network
		if n.net.ReadNow(&n.sample) == nil {
			m.ledger.Advance(n.segment, &n.sample)
		}
	}
}

// pauses reports whether a container is the sandbox of a pod that is counted. It does
// nothing but hold the pod's network, and what it uses the pod's own counters have,
// too: it is read once in a while only. On a node half of all containers are such.
func (m *meter) pauses(l *live) bool {
	return l.pod != nil && l.pod.segment != nil && m.know(l.id).container.Sandbox
}

// pauseEvery is how many times rarer than a container's dear files a sandbox is read.
const pauseEvery = 6

// readNetworkOf books what the last reading of all networks shows of one.
func (m *meter) readNetworkOf(l *live) {
	if l.net == nil {
		return
	}
	received, _ := l.sample.Counter(cimeter.NetworkReceiveBytes)
	sent, _ := l.sample.Counter(cimeter.NetworkTransmitBytes)
	if l.net.Read(&l.sample) != nil {
		return
	}
	r, _ := l.sample.Counter(cimeter.NetworkReceiveBytes)
	if s, _ := l.sample.Counter(cimeter.NetworkTransmitBytes); r != received || s != sent {
		m.advance(l)
	}
}

// missedEnd marks that a container ended after its last reading. A sandbox does
// nothing for its pod, and ends with it.
func (m *meter) missedEnd(l *live, from, to time.Time) {
	if !m.know(l.id).container.Sandbox {
		m.ledger.SegmentGap(l.segment, cimeter.Gap{From: from, To: to, Reason: cimeter.GapMissedEnd})
	}
}

// forgetPods drops those of which nothing is left.
func (m *meter) forgetPods(now time.Time) {
	for uid, p := range m.pods {
		if p.lives == 0 && now.After(p.expires) && !slices.ContainsFunc(p.waiting, func(k *known) bool { return k.running != nil }) {
			delete(m.pods, uid)
		}
	}
}

// notice tells engines without events of a container whose cgroup came or went.
func (m *meter) notice(k *known, running bool) {
	for _, f := range m.engines {
		if n, ok := f.Engine.(noticer); ok && (k.engine == nil || k.engine == f) {
			n.Noticed(k.id, running)
		}
	}
}

// noticer is an engine that is told of the cgroups of containers, so that it need
// not ask all the time. Noticed never waits; the container may be another engine's.
type noticer interface {
	Noticed(id string, running bool)
}
