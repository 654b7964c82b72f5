package series_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func table() *tally.Table {
	t := tally.New(tally.Options{})
	t.Info(catalog.BuildInfo, "1.0.0", "7e4d", "go1.26")
	s := t.Stage(tally.Labels{CI: "gitlab", Project: "group/app", Machine: "ci-7", Runner: "s_a1b2", Stage: "step_script"})
	s.Add(cimeter.CPUUser, 12_345_678_901)
	s.Add(cimeter.IOWriteBytes, 1<<53)
	s.Add(cimeter.OOMKills, 1)
	s.Add(cimeter.OOMKillsNested, 2)
	var sample cimeter.Sample
	sample.SetGauge(cimeter.MemoryWorkingSet, 64<<20)
	sample.SetGauge(cimeter.MemorySwap, 0)
	s.Share().Set(&sample)
	s.Ended(5.8, cimeter.Some(uint64(100<<20)), cimeter.Some(0.4))
	s.Ended(7200, cimeter.Opt[uint64]{}, cimeter.Opt[float64]{})
	t.Stage(tally.Labels{}).Add(cimeter.IOReadOperations, 41)
	t.Stage(tally.Labels{CI: "drone", Project: "a\xffb"}).Add(cimeter.CPUUser, 1)
	b := t.Build(tally.BuildLabels{CI: "gitlab", Project: "group/app", Machine: "ci-7", Runner: "s_a1b2"})
	b.Started()
	b.Started()
	b.Ended("success", 42.5, cimeter.Some(0.25))
	t.Value(catalog.MachineCPU, "ci-7", "builds").Set(1234.5)
	t.Value(catalog.AgentCoverage).Set(0.998)
	t.SetInfo(catalog.ContainerInfo, "c1", "gitlab", "group/app", "ci-7", "s_a1b2", "0942", "gitlab/gitlab.example.com/4242")
	return t
}

// What outputs are given is what a scrape shows: the same families, label sets
// and numbers, by the parser that Prometheus' own programs use.
func TestWalker_showsWhatAScrapeShows(t *testing.T) {
	tb := table()
	w := series.NewWalker(tb, start)
	for round := range 3 {
		got, want := flatten(w.Families()), scraped(t, tb)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if v, ok := got[name]; !ok || v != want[name] {
				t.Errorf("round %d: %s is %q, want %q", round, name, v, want[name])
			}
			delete(got, name)
		}
		for name := range got {
			t.Errorf("round %d: %s is not in a scrape", round, name)
		}
		// Cells that come later, and an info that goes.
		tb.Stage(tally.Labels{CI: "drone", Stage: fmt.Sprint("s", round)}).Add(cimeter.CPUSystem, 5)
		tb.Build(tally.BuildLabels{CI: "drone", Project: fmt.Sprint("p", round)}).Started()
		tb.RemoveInfo(catalog.ContainerInfo, "c1")
		tb.SetInfo(catalog.ContainerInfo, fmt.Sprint(round), "gitlab", "p", "m", "r", fmt.Sprint(round), "k")
	}
}

func TestWalker_keysAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range series.NewWalker(table(), start).Families() {
		for _, p := range f.Points {
			if p.Key != series.Key(f.Name, p.Labels) || seen[p.Key] {
				t.Errorf("%s %v: key %q is another's or there twice", f.Name, p.Labels, p.Key)
			}
			if !p.Start.Equal(start) {
				t.Errorf("%s: start %v, want %v", f.Name, p.Start, start)
			}
			seen[p.Key] = true
		}
	}
}

// A flush of many series makes few objects: points by the family, nothing for a
// series but its histogram.
func TestWalker_allocations(t *testing.T) {
	tb := tally.New(tally.Options{Budget: 1 << 20})
	for i := range 300 {
		s := tb.Stage(tally.Labels{CI: "gitlab", Project: fmt.Sprint(i)})
		for c := range cimeter.NumCounters {
			s.Add(c, uint64(i))
		}
	}
	w := series.NewWalker(tb, start)
	w.Families()
	if n := testing.AllocsPerRun(5, func() { w.Families() }); n > 120 {
		t.Errorf("%v allocations for 300 label sets, want at most 120", n)
	}
}

func flatten(families []series.Family) map[string]string {
	out := map[string]string{}
	for _, f := range families {
		for _, p := range f.Points {
			labels := map[string]string{}
			for _, l := range p.Labels {
				labels[l.Name] = l.Value
			}
			value := fmt.Sprint(p.Value)
			if b := p.Buckets; b != nil {
				n, cumulative := uint64(0), ""
				for i, c := range b.Counts[:len(b.Bounds)] {
					n += c
					cumulative += fmt.Sprint(b.Bounds[i], ":", n, " ")
				}
				value = fmt.Sprint(cumulative, b.Count(), " ", b.Sum)
			}
			out[f.Name+fmt.Sprint(labels)] = value
		}
	}
	return out
}

func scraped(t *testing.T, tb *tally.Table) map[string]string {
	t.Helper()
	var b bytes.Buffer
	if err := prometheus.New(tb).Encode(&b, prometheus.Text); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&b)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			out[name+fmt.Sprint(labels)] = value(f.GetType(), m)
		}
	}
	return out
}

func value(kind dto.MetricType, m *dto.Metric) string {
	switch kind {
	case dto.MetricType_COUNTER:
		return fmt.Sprint(m.Counter.GetValue())
	case dto.MetricType_HISTOGRAM:
		s := ""
		for _, b := range m.Histogram.Bucket[:len(m.Histogram.Bucket)-1] {
			s += fmt.Sprint(b.GetUpperBound(), ":", b.GetCumulativeCount(), " ")
		}
		return fmt.Sprint(s, m.Histogram.GetSampleCount(), " ", m.Histogram.GetSampleSum())
	}
	return fmt.Sprint(m.Gauge.GetValue())
}
