package agent

import (
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
)

// A pod's network is looked for once: as its sandbox's, whichever of its containers is
// seen first.
func TestMeter_attachesFor(t *testing.T) {
	uid := &cimeter.Pod{UID: "u1"}
	for name, c := range map[string]struct {
		known cimeter.Container
		stand stand
		inPod bool
		want  bool
	}{
		"no pod":                                {known: cimeter.Container{}, stand: ours, want: true},
		"a pod's sandbox":                       {known: cimeter.Container{Pod: uid, Sandbox: true}, stand: ofPod, inPod: true, want: true},
		"a pod's container":                     {known: cimeter.Container{Pod: uid, NetworkMode: "container:s1"}, stand: ours, inPod: true},
		"a pod's container, of no build":        {known: cimeter.Container{Pod: uid, NetworkMode: "container:s1"}, stand: others, inPod: true},
		"a pod's container, in the host's":      {known: cimeter.Container{Pod: uid, NetworkMode: "host"}, stand: ours, inPod: true},
		"a pod's container, not inspected":      {known: cimeter.Container{Pod: uid}, stand: waiting, inPod: true},
		"in a pod's cgroup, of nobody yet":      {known: cimeter.Container{}, stand: nothing, inPod: true},
		"in a pod's cgroup, of a Docker Engine": {known: cimeter.Container{}, stand: ours, inPod: true, want: true},
	} {
		m := &meter{Agent: &Agent{ledger: attrib.New(attrib.Options{})}, known: map[string]*known{"c1": {id: "c1", container: c.known, stand: c.stand}}}
		l := &live{id: "c1", segment: m.ledger.Open("c1", "/kubepods/podu1/c1", 1, time.Now(), true)}
		if c.inPod {
			l.pod = &pod{uid: "u1"}
		}
		if got := m.attachesFor(l); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// A pod is of the build that its first container belongs to; with another one's beside
// it what its containers did not show is nobody's, and stays so.
func TestMeter_claimPod(t *testing.T) {
	m := &meter{Agent: &Agent{ledger: attrib.New(attrib.Options{})}, known: map[string]*known{}, pods: map[string]*pod{}}
	for i, key := range []string{"a", "a", "b", "a"} {
		k := &known{stand: ours, container: cimeter.Container{Pod: &cimeter.Pod{UID: "u1"}}}
		k.identity.Build.Key = key
		m.claimPod(k, time.Now())
		if p := m.pods["u1"]; p.identity == nil || p.identity.Build.Key != "a" || p.torn != (i >= 2) {
			t.Errorf("after container %d, of build %s: torn %t, %+v", i, key, p.torn, p.identity)
		}
	}
}
