package attrib_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/tally"
)

// A checkpoint taken up by another ledger ends in the record that the first one
// would have made, but for the gap.
func TestLedger_checkpoint(t *testing.T) {
	table := tally.New(tally.Options{})
	l := newLedger(table)
	done := l.Open("done", "/done", 1, at(0), true)
	mustBind(t, l, done, at(0), identity("k", "first", cimeter.RoleBuild))
	l.Advance(done, cpu(2, 10))
	l.Close(done, at(2), cimeter.Some(0))
	running := l.Open("running", "/running", 7, at(2), true)
	mustBind(t, l, running, at(2), identity("k", "second", cimeter.RoleBuild))
	lost := l.Open("lost", "/lost", 8, at(2), true)
	mustBind(t, l, lost, at(2), identity("k", "third", cimeter.RoleBuild))
	l.Advance(running, cpu(1, 10))
	l.Advance(lost, cpu(0.5, 10))
	l.Tick(at(3.5), cimeter.Opt[uint64]{})
	snapshot, err := l.Checkpoint("k")
	if err != nil {
		t.Fatal(err)
	}
	before, err := snapshot.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	l.Advance(running, cpu(100, 10))
	l.Tick(at(3.9), cimeter.Opt[uint64]{})
	state, err := snapshot.Marshal()
	if err != nil || string(state) != string(before) {
		t.Fatalf("the snapshot changes with the ledger: %v\n%s\n%s", err, before, state)
	}

	after := tally.New(tally.Options{})
	m := newLedger(after)
	if err := m.Restore(state, at(10)); err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(state, at(10)); !errors.Is(err, cimeter.ErrConflict) {
		t.Errorf("restored twice: %v", err)
	}
	if m.Resume("running", 99, at(10)) != nil {
		t.Fatal("resumed another cgroup of the same container")
	}
	s := m.Resume("running", 7, at(10))
	if s == nil {
		t.Fatal("not resumed")
	}
	m.Abandon(at(10))
	born := m.Open("born", "/born", 9, at(10), false) // while nobody looked
	m.Advance(born, cpu(4, 10))
	mustBind(t, m, born, at(10), identity("k", "fourth", cimeter.RoleBuild))
	m.Close(born, at(11), cimeter.Some(0))
	m.Advance(s, cpu(6, 10)) // 5 s while nobody looked
	m.Tick(at(11), cimeter.Opt[uint64]{})
	m.Advance(s, cpu(7, 10))
	m.Close(s, at(12), cimeter.Some(0))
	m.Keep(func(c string) bool { return c != "done" && c != "lost" })
	for _, c := range []string{"running", "born"} {
		m.Gone(c)
	}
	r := only(t, m, at(20))
	near(t, "cpu", r.Usage.CPUSeconds.Total.Value, 2+7+0.5+4)
	if r.Complete || len(r.Stages) != 4 || len(r.Gaps) != 2 {
		t.Errorf("complete %v, %d stages, gaps %+v", r.Complete, len(r.Stages), r.Gaps)
	}
	near(t, "second", r.Stages[1].Usage.CPUSeconds.Total.Value, 7)
	if r.Usage.CPUCores.Max > 2 {
		t.Errorf("maximum %v cores: a rate was taken over the gap", r.Usage.CPUCores.Max)
	}
	v, _ := after.Stage(tally.Labels{CI: "drone", Project: "group/app", Machine: "ci-7", Runner: "r1", Stage: "second"}).Counter(cimeter.CPUTotal)
	if v != 1e9 {
		t.Errorf("the counter shows %d ns, want 1e9: what rose before the restart may be in the earlier process's", v)
	}
}

// told is a Stager that writes down what it is told.
type told struct{ log []string }

func (s *told) Missed() { s.log = append(s.log, "missed") }
func (s *told) Started(seg int, role cimeter.Role, container string) {
	s.log = append(s.log, fmt.Sprintln("started", seg, role, container))
}
func (s *told) Command(seg int, stage string) {
	s.log = append(s.log, fmt.Sprintln("command", seg, stage))
}
func (s *told) JobList(seg int, stage string) {
	s.log = append(s.log, fmt.Sprintln("job list", seg, stage))
}
func (s *told) Ended(seg int, exit cimeter.Opt[int]) {
	s.log = append(s.log, fmt.Sprintln("ended", seg, exit))
}
func (s *told) Finish()                    {}
func (s *told) Stage(int) attrib.StageName { return attrib.StageName{} }

// After a restart a stager knows what it knew.
func TestLedger_Restore_evidence(t *testing.T) {
	ledger := func() (*attrib.Ledger, *told) {
		s := &told{}
		return attrib.New(attrib.Options{Interval: time.Second, Tally: tally.New(tally.Options{}), Stager: func(string) attrib.Stager { return s }}), s
	}
	l, first := ledger()
	a := l.Open("a", "/a", 1, at(0), false)
	mustBind(t, l, a, at(0), identity("k", "", cimeter.RoleHelper))
	l.Command(a, at(0.5), "get_sources")
	l.Close(a, at(1), cimeter.Some(1))
	b := l.Open("b", "/b", 2, at(1), true)
	mustBind(t, l, b, at(1), identity("k", "", cimeter.RoleBuild))
	l.JobList(b, at(1.5), "step_script")
	snapshot, err := l.Checkpoint("k")
	if err != nil {
		t.Fatal(err)
	}
	state, err := snapshot.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	m, second := ledger()
	if err := m.Restore(state, at(10)); err != nil {
		t.Fatal(err)
	}
	if len(first.log) != 6 || !slices.Equal(first.log, second.log) {
		t.Errorf("told %q before, %q after", first.log, second.log)
	}
}

// The clock was set back by an hour between two lives of the agent.
func TestLedger_Restore_clockSetBack(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c", "/c", 1, at(3600), true)
	mustBind(t, l, s, at(3600), identity("k", "s", cimeter.RoleBuild))
	l.Advance(s, cpu(1, 10))
	l.Tick(at(3601), cimeter.Opt[uint64]{})
	snapshot, err := l.Checkpoint("k")
	if err != nil {
		t.Fatal(err)
	}
	state, err := snapshot.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	m := newLedger(tally.New(tally.Options{}))
	if err := m.Restore(state, at(5)); err != nil {
		t.Fatal(err)
	}
	s = m.Resume("c", 1, at(5))
	m.Abandon(at(5))
	m.Advance(s, cpu(2, 10))
	m.Close(s, at(7), cimeter.Some(0))
	m.Gone("c")
	r := only(t, m, at(20))
	if r.Usage.WallSeconds != 2 || r.EndedAt.Before(r.StartedAt) || r.EndedAt.After(at(20)) || r.Stages[0].Usage.WallSeconds != 2 {
		t.Errorf("from %v to %v: %v s; want the 2 s since the restart", r.StartedAt, r.EndedAt, r.Usage.WallSeconds)
	}
	for _, g := range r.Gaps {
		if g.To.Before(g.From) {
			t.Errorf("gap from %v to %v", g.From, g.To)
		}
	}
}

func TestLedger_Enter(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c", "/c", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "get_sources", cimeter.RoleBuild))
	l.SetNotMetered(s, "network_bytes", "host network")
	sample := cpu(1, 500)
	l.Advance(s, sample)
	l.Enter(s, at(2), "step_script", cimeter.BoundaryCommand, sample)
	l.Enter(s, at(2.5), "step_script", cimeter.BoundaryCommand, sample) // goes on
	l.Advance(s, cpu(4, 500))                                           // the kernel's peak was reached before
	l.Close(s, at(5), cimeter.Some(0))
	l.Gone("c")
	r := only(t, l, at(10))
	if len(r.Stages) != 2 || r.Stages[1].Name != "step_script" || r.Stages[1].Boundary != cimeter.BoundaryCommand {
		t.Fatalf("stages %+v", r.Stages)
	}
	near(t, "first", r.Stages[0].Usage.CPUSeconds.Total.Value, 1)
	near(t, "second", r.Stages[1].Usage.CPUSeconds.Total.Value, 3)
	near(t, "second's time", r.Stages[1].Usage.WallSeconds, 3)
	if p := r.Stages[0].Usage.MemoryBytes.Peak; p.Value != 500 {
		t.Errorf("first peak %+v, want the kernel's", p)
	}
	if p := r.Stages[1].Usage.MemoryBytes.Peak; p.Known {
		t.Errorf("second peak %+v: the kernel's may be of the first stage", p)
	}
	for _, u := range []cimeter.Usage{r.Usage, r.Stages[0].Usage, r.Stages[1].Usage} {
		if u.NotMetered["network_bytes"] != "host network" {
			t.Errorf("not metered: %v", u.NotMetered)
		}
	}
}

func FuzzLedger_Restore(f *testing.F) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c", "/c", 1, at(0), true)
	if err := l.Bind(s, at(0), "c", identity("k", "s", cimeter.RoleBuild)); err != nil {
		f.Fatal(err)
	}
	l.Advance(s, cpu(1, 1))
	snapshot, err := l.Checkpoint("k")
	if err != nil {
		f.Fatal(err)
	}
	state, err := snapshot.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(state)
	f.Add([]byte(`{"Version":1,"Build":{"Build":{"key":"k"},"Tracer":{"StepSeconds":-1,"Steps":[{}]}},"Parts":[{}]}`))
	f.Fuzz(func(t *testing.T, state []byte) {
		l := newLedger(tally.New(tally.Options{}))
		if l.Restore(state, at(10)) != nil {
			return
		}
		l.Abandon(at(10))
		l.Tick(at(11), cimeter.Opt[uint64]{})
		records := l.Finish(at(1e6))
		for _, r := range l.Running(at(12)) {
			records = append(records, r.Record)
		}
		for _, r := range records {
			if r.EndedAt.Before(r.StartedAt) {
				t.Errorf("ends %v before it starts %v", r.EndedAt, r.StartedAt)
			}
		}
	})
}

func TestLedger_Restore_bad(t *testing.T) {
	for _, state := range []string{"", "{", `{"Version":99}`, `{"Version":1}`, `{"Version":1,"Build":{"Build":{"key":"k"}},"Segments":[{"Part":4}]}`} {
		if err := newLedger(tally.New(tally.Options{})).Restore([]byte(state), at(0)); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%q: error %v, want invalid", state, err)
		}
	}
}
