package attrib_test

import (
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// The histograms of a stage and of a build lead to the build that was observed
// last, by the key of its record, with what was observed and when it ended.
func TestLedger_exemplars(t *testing.T) {
	table := tally.New(tally.Options{})
	l := newLedger(table)
	walker := series.NewWalker(table, t0)
	walker.Fine()
	build := func(key string, begin, seconds float64) *cimeter.Record {
		s := l.Open(key, "/"+key, uint64(begin), at(begin), true)
		mustBind(t, l, s, at(begin), identity(key, "test", cimeter.RoleBuild))
		l.Advance(s, cpu(seconds/2, 64<<20))
		l.Close(s, at(begin+seconds), cimeter.Opt[int]{})
		l.SetExit(s, at(begin+seconds), 0)
		l.Gone(key)
		return only(t, l, at(begin+100))
	}
	exemplars := func() map[string]series.Exemplar {
		out := map[string]series.Exemplar{}
		for _, f := range walker.Families() {
			for _, p := range f.Points {
				if p.Buckets != nil && p.Buckets.Exemplar != nil {
					out[f.Name] = *p.Buckets.Exemplar
				}
			}
		}
		return out
	}
	for i, seconds := range []float64{4, 6} {
		begin := float64(1000 * i)
		r := build("drone/"+strings.Repeat("7", i+1), begin, seconds)
		got := exemplars()
		for name, want := range map[string]float64{
			catalog.StageDuration: seconds, catalog.StageMemoryPeak: 64 << 20, catalog.StageCPUCores: 0.5, catalog.BuildDuration: r.Usage.WallSeconds,
		} {
			e := got[name]
			if e.Label != (series.Label{Name: tally.BuildLabel, Value: r.Key}) || e.Value != want || !e.At.Equal(r.EndedAt) {
				t.Errorf("%s: exemplar %+v, want build %s with %v at %v", name, e, r.Key, want, r.EndedAt)
			}
		}
		if len(got) != 4 {
			t.Errorf("exemplars of %d metrics, want of 4: %v", len(got), got)
		}
	}
	// A key that no format can carry whole leads nowhere: the last one stays.
	build("drone/"+strings.Repeat("k", 200), 3000, 5)
	if e := exemplars()[catalog.BuildDuration]; e.Label.Value != "drone/77" {
		t.Errorf("exemplar %+v, want the one before", e)
	}
}
