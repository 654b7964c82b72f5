package attrib_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/tally"
)

// piece is what was read of a cgroup: seconds of CPU, bytes of peak.
func piece(n int, by cimeter.Attribution, cpu float64, peak uint64, from, to time.Time) *attrib.Piece {
	return &attrib.Piece{
		Path: fmt.Sprint("/docker/c1/docker/", n), Inode: uint64(n), Kind: cimeter.PartContainer, ID: fmt.Sprint("id-", n), Attribution: by,
		Started: from, Ended: to, CPU: cimeter.Some(uint64(cpu * 1e9)), Peak: cimeter.Some(peak), Kills: cimeter.Some(uint64(0)),
	}
}

// A nested part is shown with its own figures and changes nothing of the totals;
// one beside the build is neither in them nor in the counters, but in coverage.
func TestLedger_parts(t *testing.T) {
	table := tally.New(tally.Options{})
	l := newLedger(table)
	s := l.Open("c1", "/docker/c1", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "compile", cimeter.RoleBuild))
	l.Tick(at(0), cimeter.Some(uint64(100e9)))
	l.Advance(s, cpu(3, 100))
	none := time.Time{}
	if l.Piece("other", s, piece(1, cimeter.AttributedNested, 1, 7, at(0), none)) {
		t.Error("a part of a build that does not run")
	}
	for _, p := range []*attrib.Piece{
		piece(1, cimeter.AttributedNested, 1, 70, at(0.5), none),
		piece(1, cimeter.AttributedNested, 2, 60, at(0.5), none), // a peak does not fall
		piece(1, cimeter.AttributedNested, 2.5, 80, at(0.5), at(1)),
	} {
		if !l.Piece("k", s, p) {
			t.Fatal("the build does not run")
		}
	}
	l.Piece("k", nil, piece(9, cimeter.AttributedSole, 1, 50, at(0.7), none))
	l.Piece("k", nil, piece(9, cimeter.AttributedSole, 4, 50, at(0.7), none))
	late := piece(3, cimeter.AttributedNested, 10, 90, at(0.1), none)
	late.Late = true
	l.Piece("k", s, late)
	late.CPU = cimeter.Some(uint64(10.25e9))
	l.Piece("k", s, late)
	l.Tick(at(2), cimeter.Some(uint64(110e9)))
	l.Close(s, at(2), cimeter.Some(0))
	l.Gone("c1")
	if got := l.BesideCPU(); got != 4e9 {
		t.Errorf("beside %d ns, want 4 s", got)
	}
	if got := l.AttributedCPU(); got != 3e9 {
		t.Errorf("attributed %d ns, want the build's own 3 s", got)
	}
	r := only(t, l, at(10))
	near(t, "the build's CPU time", r.Usage.CPUSeconds.Total.Value, 3)
	near(t, "coverage", r.Coverage.Value, 0.7) // 3 s of it and 4 s beside, of 10 s
	want := []cimeter.Part{
		{ID: "id-3", Stage: "compile", Within: "c1", Counted: true, Attribution: cimeter.AttributedNested, Confidence: cimeter.Certain,
			StartedAt: at(0.1), EndedAt: at(2), CPUSeconds: cimeter.Some(0.25), MemoryPeakBytes: cimeter.Some(uint64(90))},
		{ID: "id-1", Stage: "compile", Within: "c1", Counted: true, Attribution: cimeter.AttributedNested, Confidence: cimeter.Certain,
			StartedAt: at(0.5), EndedAt: at(1), CPUSeconds: cimeter.Some(2.5), MemoryPeakBytes: cimeter.Some(uint64(80))},
		{ID: "id-9", Attribution: cimeter.AttributedSole, Confidence: cimeter.Possible,
			StartedAt: at(0.7), EndedAt: at(2), CPUSeconds: cimeter.Some(4.0), MemoryPeakBytes: cimeter.Some(uint64(50))},
	}
	if len(r.Parts) != len(want) {
		t.Fatalf("%d parts, want %d: %+v", len(r.Parts), len(want), r.Parts)
	}
	for i := range want {
		want[i].Kind, want[i].OOMKills = cimeter.PartContainer, cimeter.Some(uint64(0))
		if r.Parts[i] != want[i] {
			t.Errorf("part %d:\n got %+v\nwant %+v", i, r.Parts[i], want[i])
		}
	}
}

// Those who run in a container make as many cgroups in it as they like. A record
// has a bounded number of parts, and their sum is that of all.
func TestLedger_manyParts(t *testing.T) {
	for _, running := range []int{0, 20, 400} {
		l := newLedger(tally.New(tally.Options{}))
		s := l.Open("c1", "/docker/c1", 1, at(0), true)
		mustBind(t, l, s, at(0), identity("k", "compile", cimeter.RoleBuild))
		const n = 400
		var total float64
		for i := range n {
			use := float64((i*37)%n) + 1
			total += use
			l.Piece("k", s, piece(i, cimeter.AttributedNested, use/2, uint64(i), at(1), time.Time{}))
			if i >= running {
				l.Piece("k", s, piece(i, cimeter.AttributedNested, use, uint64(i), at(1), at(2)))
			}
		}
		for i := range running { // end in the end
			l.Piece("k", s, piece(i, cimeter.AttributedNested, float64((i*37)%n)+1, uint64(i), at(1), at(3)))
		}
		snapshot, err := l.Checkpoint("k")
		if err != nil {
			t.Fatal(err)
		}
		state, err := snapshot.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if len(state) > 128<<10 {
			t.Errorf("a checkpoint of %d bytes", len(state))
		}
		l.Close(s, at(4), cimeter.Some(0))
		l.Gone("c1")
		r := only(t, l, at(10))
		var sum float64
		count := 0
		for _, p := range r.Parts {
			sum += p.CPUSeconds.Value
			count += max(1, p.Count)
		}
		near(t, "the parts' sum", sum, total)
		if len(r.Parts) > 34 || count != n {
			t.Errorf("%d parts of %d containers, want 33 of %d", len(r.Parts), count, n)
		}
		if last := r.Parts[len(r.Parts)-1]; last.Count < n-40 || last.ID != "" || last.MemoryPeakBytes.Value == 0 {
			t.Errorf("the sum is %+v", last)
		}
	}
}

// Parts go on in the next process: the counters of their cgroups did.
func TestLedger_partsCheckpoint(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c1", "/docker/c1", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "compile", cimeter.RoleBuild))
	l.Piece("k", s, piece(1, cimeter.AttributedNested, 1, 10, at(0), time.Time{}))
	l.Piece("k", nil, piece(2, cimeter.AttributedVolume, 1, 10, at(0.1), time.Time{}))
	snapshot, err := l.Checkpoint("k")
	if err != nil {
		t.Fatal(err)
	}
	l.Piece("k", s, piece(1, cimeter.AttributedNested, 50, 10, at(0), time.Time{})) // changes nothing of the snapshot
	state, err := snapshot.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	m := newLedger(tally.New(tally.Options{}))
	if err := m.Restore(state, at(5)); err != nil {
		t.Fatal(err)
	}
	if s = m.Resume("c1", 1, at(5)); s == nil {
		t.Fatal("not resumed")
	}
	m.Piece("k", s, piece(1, cimeter.AttributedNested, 3, 10, at(5), at(6)))
	m.Piece("k", nil, piece(2, cimeter.AttributedVolume, 5, 10, at(5), time.Time{}))
	if got := m.BesideCPU(); got != 0 {
		t.Errorf("%d ns beside, want none: the earlier process may have told of it", got)
	}
	m.Piece("k", nil, piece(2, cimeter.AttributedVolume, 7, 10, at(5), time.Time{}))
	if got := m.BesideCPU(); got != 2e9 {
		t.Errorf("%d ns beside, want the 2 s since", got)
	}
	m.Close(s, at(8), cimeter.Some(0))
	m.Gone("c1")
	r := only(t, m, at(20))
	if len(r.Parts) != 2 || r.Parts[0].CPUSeconds != cimeter.Some(3.0) || r.Parts[1].CPUSeconds != cimeter.Some(7.0) ||
		r.Parts[1].Confidence != cimeter.Strong || r.Parts[1].Counted || !r.Parts[0].StartedAt.Equal(at(0)) {
		t.Errorf("parts %+v", r.Parts)
	}
}

// Where the kernel begins a new peak at a boundary, each stage has its own, also one
// that is lower; the build has the highest. After a restart of the agent the peak is
// that of the cgroup's life again, and only what exceeds it is the stage's.
func TestLedger_ownPeaks(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c1", "/docker/c1", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "first", cimeter.RoleBuild))
	enter := func(l *attrib.Ledger, s *attrib.Segment, stage string, t time.Time, last *cimeter.Sample) {
		l.Advance(s, last)
		last.SetGauge(cimeter.MemoryPeak, 0)
		l.Enter(s, t, stage, cimeter.BoundaryCommand, last)
	}
	high := cpu(1, 900)
	enter(l, s, "second", at(1), high)
	l.Advance(s, cpu(2, 300))
	enter(l, s, "third", at(2), cpu(3, 200))
	l.Advance(s, cpu(4, 100))
	snapshot, err := l.Checkpoint("k")
	if err != nil {
		t.Fatal(err)
	}
	state, err := snapshot.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	m := newLedger(tally.New(tally.Options{}))
	if err := m.Restore(state, at(3)); err != nil {
		t.Fatal(err)
	}
	if s = m.Resume("c1", 1, at(3)); s == nil {
		t.Fatal("not resumed")
	}
	for _, use := range []float64{5, 6} {
		last := cpu(use, 100)
		last.SetGauge(cimeter.MemoryPeak, 900) // of its life
		m.Advance(s, last)
	}
	m.Close(s, at(4), cimeter.Some(0))
	m.Gone("c1")
	r := only(t, m, at(10))
	got := map[string]uint64{}
	for _, s := range r.Stages {
		if s.Usage.MemoryBytes != nil {
			got[s.Name] = s.Usage.MemoryBytes.Peak.Value
		}
	}
	if got["first"] != 900 || got["second"] != 300 || got["third"] != 100 || r.Usage.MemoryBytes.Peak.Value != 900 {
		t.Errorf("peaks %v, of the build %v, want 900, 300, 100 and 900", got, r.Usage.MemoryBytes.Peak)
	}
}

// A cgroup that is made again under the same name is another part.
func TestLedger_parts_sameName(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c1", "/docker/c1", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "compile", cimeter.RoleBuild))
	for i, use := range []float64{3, 1} {
		p := piece(7, cimeter.AttributedNested, use, 10, at(float64(i)), at(float64(i)+0.5))
		p.Inode = uint64(i)
		l.Piece("k", s, p)
	}
	l.Close(s, at(4), cimeter.Some(0))
	r := only(t, l, at(100))
	if len(r.Parts) != 2 || r.Parts[0].CPUSeconds.Value != 3 || r.Parts[1].CPUSeconds.Value != 1 {
		t.Errorf("parts %+v, want one of 3 s and one of 1 s", r.Parts)
	}
}
