package attrib_test

import (
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/tally"
)

// A container that waited for its build, and was there before the agent, has spent
// nothing of it before it began.
func TestLedger_Restart(t *testing.T) {
	l := newLedger(tally.New(tally.Options{}))
	s := l.Open("runner", "/runner", 1, at(0), false)
	l.Advance(s, cpu(50, 800)) // where counting begins
	l.Advance(s, cpu(53, 800))
	l.Restart(s, at(3600))
	l.Advance(s, cpu(54, 800)) // the kernel's peak does not fall
	mustBind(t, l, s, at(3601), identity("k", "job", cimeter.RoleBuild))
	l.Restart(s, at(3602)) // it is of a build: nothing is forgotten
	l.Advance(s, cpu(56, 800))
	l.Close(s, at(3605), cimeter.Some(0))
	l.Gone("runner")
	r := only(t, l, at(3700))
	if !r.Complete || !r.StartedAt.Equal(at(3600)) || r.Usage.WallSeconds != 5 {
		t.Errorf("from %v, %v s, gaps %+v: want 5 s from %v", r.StartedAt, r.Usage.WallSeconds, r.Gaps, at(3600))
	}
	near(t, "cpu", r.Usage.CPUSeconds.Total.Value, 3)
	if m := r.Stages[0].Usage.MemoryBytes; m != nil && m.Peak.Known {
		t.Errorf("peak %+v, which was reached before the build began", m.Peak)
	}
	near(t, "job", r.Stages[0].Usage.CPUSeconds.Total.Value, 3)
}
