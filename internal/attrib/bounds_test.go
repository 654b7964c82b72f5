package attrib_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/attrib"
	"github.com/cimeter/cimeter/internal/tally"
)

// A record stays far below what is kept of one, whatever a build does, and its
// stages add up to it.
func TestLedger_recordIsBounded(t *testing.T) {
	full := func(seconds float64) *cimeter.Sample {
		s := cpu(seconds, 123456789)
		for c := range cimeter.NumCounters {
			if c != cimeter.CPUTotal {
				s.SetCounter(c, uint64(seconds*1e9))
			}
		}
		for g := range cimeter.NumGauges {
			s.SetGauge(g, uint64(seconds*1e6))
		}
		return s
	}
	for name, play := range map[string]func(*attrib.Ledger) float64{
		"stages of a container": func(l *attrib.Ledger) float64 {
			s := l.Open("c", "/c", 1, at(0), true)
			mustBind(t, l, s, at(0), identity("k", "s", cimeter.RoleBuild))
			for i := range 900 {
				sample := full(float64(i + 1))
				l.Advance(s, sample)
				l.Tick(at(float64(i)+0.5), cimeter.Opt[uint64]{})
				l.Enter(s, at(float64(i+1)), fmt.Sprint("stage-", i), cimeter.BoundaryCommand, sample)
			}
			l.Close(s, at(901), cimeter.Some(0))
			l.Gone("c")
			return 900
		},
		"containers, services among them": func(l *attrib.Ledger) float64 {
			for i := range 900 {
				id := fmt.Sprint("c", i)
				who := identity("k", "step", cimeter.RoleBuild)
				if who.Alongside = i%3 == 0; who.Alongside {
					who.Role, who.Stage = cimeter.RoleService, fmt.Sprint("service:", i)
				}
				s := l.Open(id, "/"+id, uint64(i), at(float64(i)), true)
				mustBind(t, l, s, at(float64(i)), who)
				l.Advance(s, full(2))
				l.Close(s, at(float64(i)+0.9), cimeter.Some(0))
				l.Gone(id)
			}
			return 1800
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(tally.New(tally.Options{}))
			want := play(l)
			r := only(t, l, at(4000))
			b, err := json.Marshal(r)
			if err != nil || len(b) > 800<<10 {
				t.Errorf("%d bytes, %v: want 800 KiB at most", len(b), err)
			}
			sum, folded := 0.0, 0
			for _, s := range r.Stages {
				sum += s.Usage.CPUSeconds.Total.Value
				if s.Name == "#other#" || s.Name == "service:#other#" {
					folded++
				}
			}
			near(t, "sum of stages", sum, want)
			near(t, "total", r.Usage.CPUSeconds.Total.Value, want)
			if len(r.Stages) > 260 || folded == 0 {
				t.Errorf("%d stages, %d of them of further ones: want some 256, and the others as one", len(r.Stages), folded)
			}
		})
	}
}

// A stage that a container comes to again is another attempt of it, and one does
// not begin before the reading that ended what was before.
func TestLedger_Enter_again(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("c", "/c", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "get_sources", cimeter.RoleBuild))
	l.Advance(s, cpu(1, 500))
	l.Tick(at(2), cimeter.Opt[uint64]{})
	l.Enter(s, at(1), "step_script", cimeter.BoundaryCommand, cpu(1, 500))
	l.Advance(s, cpu(3, 500))
	l.Enter(s, at(4), "get_sources", cimeter.BoundaryCommand, cpu(3, 500))
	l.Advance(s, cpu(7, 500))
	l.Close(s, at(5), cimeter.Some(0))
	l.Gone("c")
	r := only(t, l, at(10))
	if len(r.Stages) != 3 || r.Stages[2].Name != "get_sources" || r.Stages[2].Attempt != 2 {
		t.Fatalf("stages %+v, want get_sources a second time", r.Stages)
	}
	near(t, "its CPU", r.Stages[2].Usage.CPUSeconds.Total.Value, 4)
	if end, begin := r.Stages[0].EndedAt, r.Stages[1].StartedAt; !end.Equal(at(2)) || !begin.Equal(at(2)) {
		t.Errorf("the first ends at %v, the second begins at %v: want the last tick, %v", end, begin, at(2))
	}
}

// unsure is a Stager that knows a name and may learn of a better one.
type unsure struct{ *told }

func (unsure) Stage(int) attrib.StageName {
	return attrib.StageName{Name: "step_script", Attempt: 1, Source: cimeter.BoundaryOrder}
}

// What a stage uses is on its series some seconds after its beginning, also where
// its name may still change.
func TestLedger_unsureName(t *testing.T) {
	table := tally.New(tally.Options{})
	l := attrib.New(attrib.Options{Interval: 1e9, Tally: table, Stager: func(string) attrib.Stager { return unsure{&told{}} }})
	s := l.Open("c", "/c", 1, at(0), true)
	mustBind(t, l, s, at(0), identity("k", "", cimeter.RoleBuild))
	l.Advance(s, cpu(1, 500))
	l.Tick(at(2.5), cimeter.Opt[uint64]{})
	if n := len(table.Stages()); n != 0 {
		t.Errorf("%d label sets after 2.5 s, want none yet", n)
	}
	l.Tick(at(3), cimeter.Opt[uint64]{})
	if cells := table.Stages(); len(cells) != 1 || cells[0].Labels().Stage != "step_script" {
		t.Errorf("%d label sets after 3 s, want that of step_script", len(cells))
	}
}
