package summary_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/summary"
)

// spread is the example on one machine, and what it did on another from a minute before
// its end on, where neither memory nor network was read.
func spread() []*cimeter.Record {
	r, o := example(), example()
	r.Key, r.Machine = "jenkins/ci.example.com/app/17", "ci-7"
	o.Key, o.Machine, o.Stages = r.Key+"/@x", "ci-8\x1b[2J\n/close", nil
	o.StartedAt = r.EndedAt.Add(-time.Minute)
	o.EndedAt = r.EndedAt.Add(time.Minute)
	o.Usage = cimeter.Usage{WallSeconds: 120, CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(60.5)}, IOBytes: &cimeter.ReadWrite[uint64]{Read: 1 << 20, Write: 2 << 20}}
	return []*cimeter.Record{r, o}
}

func TestTogether(t *testing.T) {
	parts := spread()
	a, b := &parts[0].Usage, &parts[1].Usage
	u := summary.Together(parts)
	if want := parts[1].EndedAt.Sub(parts[0].StartedAt).Seconds(); u.WallSeconds != want {
		t.Errorf("%g seconds, want %g", u.WallSeconds, want)
	}
	if want := a.CPUSeconds.Total.Value + 60.5; u.CPUSeconds.Total != cimeter.Some(want) {
		t.Errorf("CPU %v, want %g", u.CPUSeconds.Total, want)
	}
	if u.MemoryBytes.Peak != a.MemoryBytes.Peak || *u.NetworkBytes != *a.NetworkBytes {
		t.Errorf("what one machine alone knows: %+v, %+v", u.MemoryBytes, u.NetworkBytes)
	}
	if got, want := *u.IOBytes, (cimeter.ReadWrite[uint64]{Read: a.IOBytes.Read + b.IOBytes.Read, Write: a.IOBytes.Write + b.IOBytes.Write}); got != want {
		t.Errorf("disk %+v, want %+v", got, want)
	}
	back := summary.Together([]*cimeter.Record{parts[1], parts[0]})
	if fmt.Sprint(back.WallSeconds, back.CPUSeconds, *back.MemoryBytes, *back.IOBytes) != fmt.Sprint(u.WallSeconds, u.CPUSeconds, *u.MemoryBytes, *u.IOBytes) {
		t.Errorf("in another order: %+v, want %+v", back, u)
	}
	if none := summary.Together(nil); none.CPUSeconds.Total.Known || none.MemoryBytes != nil {
		t.Errorf("of nothing: %+v", none)
	}
}

// A build of several machines is the first part that came, with what all of them spent.
func TestWhole(t *testing.T) {
	parts := spread()
	first, second := parts[0], parts[1]
	second.Key = first.Key + "/@ci-8"
	second.StartedAt = first.StartedAt.Add(-30 * time.Second)
	first.QueuedAt, first.Complete, second.Complete = first.StartedAt.Add(-10*time.Second), true, false
	first.Usage.OOMKills, second.Usage.OOMKills = cimeter.Some[uint64](1), cimeter.Some[uint64](2)
	second.Gaps = []cimeter.Gap{{Reason: cimeter.GapAgentRestart}}
	second.Stages = []cimeter.Stage{{Name: "on the other", StartedAt: second.StartedAt}}
	before := fmt.Sprint(*first, *second)
	for _, order := range [][]*cimeter.Record{{first, second}, {second, first}} {
		r := summary.Whole(order)
		if r.Key != first.Key || r.Machine != first.Machine || !r.StartedAt.Equal(second.StartedAt) || !r.EndedAt.Equal(second.EndedAt) || r.StartedAt.Sub(r.QueuedAt) != 10*time.Second {
			t.Errorf("%s on %s, queued %s, from %s to %s", r.Key, r.Machine, r.QueuedAt, r.StartedAt, r.EndedAt)
		}
		if want := first.Usage.CPUSeconds.Total.Value + 60.5; r.Usage.CPUSeconds.Total != cimeter.Some(want) || r.Usage.OOMKills != cimeter.Some[uint64](3) || r.Usage.WallSeconds != r.EndedAt.Sub(r.StartedAt).Seconds() {
			t.Errorf("usage %+v", r.Usage)
		}
		if len(r.Stages) != len(first.Stages)+1 || r.Stages[len(first.Stages)].Name != "on the other" || r.Complete || len(r.Gaps) != len(first.Gaps)+1 || r.Limits != first.Limits || r.Trace != nil {
			t.Errorf("%d stages, complete %t, gaps %v, limits %v", len(r.Stages), r.Complete, r.Gaps, r.Limits)
		}
	}
	if fmt.Sprint(*first, *second) != before {
		t.Error("its parts were changed")
	}
	if summary.Whole(parts[:1]) != first {
		t.Error("one part is not the whole")
	}
}

func TestPartNames(t *testing.T) {
	parts := spread()
	parts[1].Machine = "ci-8"
	third := *parts[1]
	third.Runner.Name = "app-x1"
	if got := fmt.Sprint(summary.PartNames(append(parts, &third))); got != "[ci-7 ci-8 "+parts[1].Runner.Name+" ci-8 app-x1]" {
		t.Error(got)
	}
}

// Each machine has a row, that of the stages a star, and all of them the last.
func TestText_machines(t *testing.T) {
	parts := spread()
	for _, of := range parts {
		var s strings.Builder
		if err := summary.Text(&s, of, summary.TextOptions{Width: summary.Columns, Machines: parts}); err != nil {
			t.Fatal(err)
		}
		var rows []string
		for l := range strings.SplitSeq(s.String(), "\n") {
			if display.Width(l) > summary.Columns || display.Clean(l) != l || strings.HasPrefix(l, "/") {
				t.Errorf("%q", l)
			}
			if strings.HasPrefix(l, "on ci-") || strings.HasPrefix(l, "* ci-") || strings.HasPrefix(l, "all machines") {
				rows = append(rows, strings.Join(strings.Fields(l)[:2], " "))
			}
		}
		if len(rows) != 3 || !strings.HasPrefix(rows[0], map[bool]string{true: "* ci-7", false: "on ci-7"}[of == parts[0]]) || rows[2] != "all machines" {
			t.Errorf("rows %q in\n%s", rows, s.String())
		}
	}
	var alone, with strings.Builder
	if summary.Text(&alone, parts[0], summary.TextOptions{}) != nil || summary.Text(&with, parts[0], summary.TextOptions{Machines: parts[:1]}) != nil || alone.String() != with.String() {
		t.Errorf("a build of one machine has rows of machines:\n%s", with.String())
	}
	many := make([]*cimeter.Record, 60)
	for i := range many {
		many[i] = parts[i%2]
	}
	with.Reset()
	if err := summary.Text(&with, parts[0], summary.TextOptions{Machines: many}); err != nil || !strings.Contains(with.String(), "... and 40 more machines\n") {
		t.Errorf("%v\n%s", err, with.String())
	}
}
