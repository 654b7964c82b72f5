package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

func stageRow(at int64, names ...string) *Row {
	r := &Row{Key: "k", Project: "p", Name: "n", At: at}
	for i, name := range names {
		r.Stages = append(r.Stages, StageRow{Name: name, WallUS: int64(i + 1), CPUUS: -1, MemPeak: int64(i) - 1, IO: 5, Net: -1})
	}
	return r
}

func TestStageTotals(t *testing.T) {
	a, b, c := stageRow(dayUS+1, "build", "test", "build"), stageRow(dayUS+2, "test"), stageRow(3*dayUS, "x")
	all := NewStageTotals([]*Row{c, a})
	if len(all) != 2 || all[0].At != dayUS || all[1].At != 3*dayUS || len(all[0].Stages) != 2 {
		t.Fatalf("got %+v", all)
	}
	one, err := all[0].Merged(nil)
	if err != nil {
		t.Fatal(err)
	}
	more := NewStageTotals([]*Row{b})
	two, err := more[0].Merged(one)
	if err != nil {
		t.Fatal(err)
	}
	both := NewStageTotals([]*Row{a, b})
	want, err := both[0].Merged(nil)
	if err != nil || !reflect.DeepEqual(two, want) {
		t.Errorf("one after the other %q, together %q, %v", two, want, err)
	}
	var got []Rollup
	if err := eachStage(two, func(r *Rollup) { got = append(got, *r) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].C != "build" || got[0].Builds != 2 || got[0].WallUS != 4 || got[0].MemPeak != 1 || got[1].Builds != 2 || got[1].LastAt != dayUS+2 {
		t.Errorf("got %+v", got)
	}
	// What is replaced leaves nothing behind.
	gone := NewStageTotals([]*Row{stageRow(dayUS+5, "other")}, a, b)
	left, err := gone[0].Merged(two)
	got = nil
	if err = errors.Join(err, eachStage(left, func(r *Rollup) { got = append(got, *r) })); err != nil || len(got) != 1 || got[0].C != "other" {
		t.Errorf("left %+v, %v", got, err)
	}
}

// Forged records of ever other stages do not make a job's totals grow for ever.
func TestStageTotals_bound(t *testing.T) {
	var data []byte
	for n := range 3 {
		var names []string
		for i := range 900 {
			names = append(names, fmt.Sprintf("stage-%d-%d", n, i))
		}
		totals := NewStageTotals([]*Row{stageRow(1, names...)})
		var err error
		if data, err = totals[0].Merged(data); err != nil {
			t.Fatal(err)
		}
	}
	stages, runs := 0, int64(0)
	if err := eachStage(data, func(r *Rollup) { stages++; runs += r.Builds }); err != nil || stages != maxStageNames+1 || runs != 2700 {
		t.Errorf("%d stages of %d runs, %v", stages, runs, err)
	}
}

func FuzzStageTotals(f *testing.F) {
	totals := NewStageTotals([]*Row{stageRow(dayUS+1, "build", "")})
	data, err := totals[0].Merged(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		if err := eachStage(data, func(*Rollup) { n++ }); err != nil && !errors.Is(err, cimeter.ErrInvalid) {
			t.Error(err)
		}
		if n > len(data) {
			t.Errorf("%d stages in %d bytes", n, len(data))
		}
	})
}

// counting is a back end with so many totals of stages.
type counting struct {
	Queryer
	n          int
	statements int
}

func (q *counting) Dialect() Dialect { return SQLite }

func (q *counting) Query(_ context.Context, text string, args []any, row func(scan func(dest ...any) error) error) error {
	q.statements++
	if !strings.Contains(text, "count(*)") {
		return nil
	}
	return row(func(dest ...any) error {
		*dest[0].(*int) = min(q.n, args[len(args)-1].(int))
		return nil
	})
}

// Groups by stage of all projects are answered while they are few; else a project
// is wanted, and nothing is read.
func TestStageGroups_many(t *testing.T) {
	query := GroupQuery{By: ByStage, From: time.Unix(0, 0), To: time.Unix(86400, 0)}
	if _, err := GroupTotals(t.Context(), &counting{n: maxStageTotals}, query); err != nil {
		t.Error(err)
	}
	many := &counting{n: 450_000}
	if _, err := GroupTotals(t.Context(), many, query); !errors.Is(err, cimeter.ErrInvalid) || !strings.Contains(err.Error(), "want a project") || many.statements != 1 {
		t.Errorf("%v after %d statements: want it refused after a count", err, many.statements)
	}
	query.Project = "group/app"
	if _, err := GroupTotals(t.Context(), many, query); err != nil {
		t.Error(err)
	}
}
