package attrib_test

import (
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/tally"
)

func podIdentity(key string) cimeter.Identity {
	id := identity(key, attrib.StagePod, cimeter.RolePod)
	id.Alongside = true
	return id
}

// A pod is booked for what none of its containers is, across a restart in which one
// goes on, one began, and one came and went.
func TestLedger_pod(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	pod := l.OpenPod("pod:u", "/kubepods/podu", 3, at(0), cpu(50, 0)) // what it had used before is nobody's
	mustBind(t, l, pod, at(0), podIdentity("k"))
	child := func(l *attrib.Ledger, pod *attrib.Segment, id string, inode uint64, from float64, born bool) *attrib.Segment {
		s := l.Open(id, "/kubepods/podu/"+id, inode, at(from), born)
		l.Within(s, pod)
		return s
	}
	first := child(l, pod, "first", 4, 0, true)
	l.Advance(first, cpu(2, 10)) // before it is known whose it is
	mustBind(t, l, first, at(1), identity("k", "first", cimeter.RoleBuild))
	l.SetNotMetered(first, "network_bytes", attrib.NetworkOfPod)
	var network cimeter.Sample
	network.SetCounter(cimeter.NetworkReceiveBytes, 7)
	network.SetCounter(cimeter.NetworkTransmitBytes, 8)
	l.Advance(pod, &network)
	l.Close(first, at(2), cimeter.Some(0))
	goes := child(l, pod, "goes", 5, 2, true)
	mustBind(t, l, goes, at(2), identity("k", "second", cimeter.RoleBuild))
	l.Advance(goes, cpu(1, 10))
	snapshot, err := l.Checkpoint("k")
	if err != nil {
		t.Fatal(err)
	}
	state, err := snapshot.Marshal()
	if err != nil {
		t.Fatal(err)
	}

	table := tally.New(tally.Options{})
	m := newLedger(table)
	if err := m.Restore(state, at(10)); err != nil {
		t.Fatal(err)
	}
	pod, goes = m.Resume("pod:u", 3, at(10)), m.Resume("goes", 5, at(10))
	if pod == nil || goes == nil {
		t.Fatal("not resumed")
	}
	m.Within(goes, pod)
	m.Abandon(at(10))
	began := child(m, pod, "began", 6, 10, false)
	m.Advance(began, cpu(4, 10)) // while nobody looked, and it is its own
	mustBind(t, m, began, at(10), identity("k", "third", cimeter.RoleBuild))
	m.Advance(goes, cpu(6, 10))
	m.Close(goes, at(11), cimeter.Some(0))
	m.Close(began, at(11), cimeter.Some(0))
	// The pod: 2 + 6 + 4 of these three, 3 of one that nobody saw, 0.25 of last moments.
	end := cpu(50+2+6+4+3+0.25, 0)
	end.SetGauge(cimeter.MemoryPeak, 4096)
	attributed := m.AttributedCPU()
	if got := m.SettlePod(pod, end); got != 3.25e9 {
		t.Errorf("%d ns left over, want 3.25 s", got)
	}
	if got := m.AttributedCPU() - attributed; got != 3.25e9 {
		t.Errorf("%d ns of it attributed, want all", got)
	}
	if v, _ := table.Stage(tally.Labels{CI: "drone", Project: "group/app", Machine: "ci-7", Runner: "r1", Stage: attrib.StagePod}).Counter(cimeter.CPUTotal); v != 0 {
		t.Errorf("the counter shows %d ns, want none: it rose while nobody looked", v)
	}
	if got := m.SettlePod(pod, end); got != 0 {
		t.Errorf("%d ns left over when it is settled again, want none", got)
	}
	m.Close(pod, at(12), cimeter.Opt[int]{})
	for _, c := range []string{"first", "goes", "began"} {
		m.Gone(c)
	}
	r := only(t, m, at(30))
	near(t, "the build's CPU", r.Usage.CPUSeconds.Total.Value, 2+6+4+3.25)
	if last := r.Stages[len(r.Stages)-1]; last.Name != attrib.StagePod || !last.Alongside {
		t.Errorf("last stage %+v, want the pod's, alongside", last)
	} else {
		near(t, "the pod's CPU", last.Usage.CPUSeconds.Total.Value, 3.25)
	}
	if p := r.Usage.MemoryBytes; p == nil || p.Peak != cimeter.Some[uint64](4096) {
		t.Errorf("memory %+v, want the pod's own peak of 4096 bytes", p)
	}
	if r.Result != "success" {
		t.Errorf("result %q, want success", r.Result)
	}
	if n := r.Usage.NetworkBytes; n == nil || *n != (cimeter.ReceiveTransmit[uint64]{Receive: 7, Transmit: 8}) || r.Usage.NotMetered["network_bytes"] != "" {
		t.Errorf("network %+v, not metered %v: want the pod's", n, r.Usage.NotMetered)
	}
	if got := r.Stages[0].Usage.NotMetered["network_bytes"]; got != attrib.NetworkOfPod {
		t.Errorf("network of a container: %q, want where it is counted", got)
	}
}

// A pod that was read before its containers is owed nothing for it.
func TestLedger_pod_readEarly(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	pod := l.OpenPod("pod:u", "/kubepods/podu", 3, at(0), cpu(0, 0))
	s := l.Open("c", "/kubepods/podu/c", 4, at(0), true)
	l.Within(s, pod)
	l.Advance(s, cpu(5, 0))
	if got := l.SettlePod(pod, cpu(4.5, 0)); got != 0 {
		t.Errorf("%d ns left over, want none", got)
	}
	if got := l.SettlePod(pod, cpu(5.5, 0)); got != 5e8 {
		t.Errorf("%d ns left over, want half a second", got)
	}
}
