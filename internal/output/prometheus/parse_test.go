package prometheus_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/quick"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/tally"
)

// parse reads text as prometheus/common does, names in the old charset only.
func parse(t testing.TB, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("parse: %v in:\n%s", err, text)
	}
	return families
}

// labelsOf returns a sample's labels by name.
func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.Label {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

func TestEncoder_parses(t *testing.T) {
	families := parse(t, encode(t, prometheus.New(smallTable()), prometheus.Text))
	kinds := map[catalog.Kind]dto.MetricType{
		catalog.Counter: dto.MetricType_COUNTER, catalog.Gauge: dto.MetricType_GAUGE,
		catalog.Histogram: dto.MetricType_HISTOGRAM, catalog.Info: dto.MetricType_GAUGE,
	}
	for _, m := range catalog.Metrics() {
		f := families[m.Name]
		if f == nil {
			if m.Scope != catalog.Program {
				t.Errorf("%s: absent", m.Name)
			}
			continue
		}
		if f.GetType() != kinds[m.Kind] || f.GetHelp() != m.Help {
			t.Errorf("%s: %s, %q", m.Name, f.GetType(), f.GetHelp())
		}
		for _, s := range f.Metric {
			if h := s.Histogram; h != nil {
				if n := len(h.Bucket); n != len(m.Buckets)+1 || h.Bucket[n-1].GetCumulativeCount() != h.GetSampleCount() {
					t.Errorf("%s: %v", m.Name, h)
				}
				for i, b := range m.Buckets {
					if h.Bucket[i].GetUpperBound() != b {
						t.Errorf("%s: bound %g: want %g", m.Name, h.Bucket[i].GetUpperBound(), b)
					}
				}
			}
		}
		delete(families, m.Name)
	}
	for name := range families {
		t.Errorf("%s is not in the catalogue", name)
	}
}

// roundTrip checks that a label set comes back from the parser as the tally has
// it, and that it does not touch the next one.
func roundTrip(t *testing.T, l tally.Labels) {
	t.Helper()
	table := tally.New(tally.Options{})
	want := table.Stage(l)
	want.Add(cimeter.CPUUser, 1_500_000_000)
	plain := tally.Labels{CI: "gitlab", Project: "group/app", Stage: "step_script"}
	table.Stage(plain).Add(cimeter.CPUUser, 3_000_000_000)
	f := parse(t, encode(t, prometheus.New(table), prometheus.Text))[catalog.StageCPU]
	if want.Labels() == plain {
		return
	}
	if f == nil || len(f.Metric) != 2 || f.Metric[0].Counter.GetValue() != 1.5 || f.Metric[1].Counter.GetValue() != 3 {
		t.Fatalf("%q: got %v", l, f)
	}
	got := labelsOf(f.Metric[0])
	b := want.Labels()
	for name, v := range map[string]string{"ci": b.CI, "project": b.Project, "machine": b.Machine, "runner": b.Runner, "stage": b.Stage, "mode": "user"} {
		g, there := got[name]
		if g != v || there != (v != "") {
			t.Errorf("%s: %q (%t): want %q", name, g, there, v)
		}
	}
	if got := labelsOf(f.Metric[1]); len(got) != 4 || got["project"] != "group/app" {
		t.Errorf("%q changed its neighbour to %v", l, got)
	}
}

func TestEncoder_anyLabelRoundTrips(t *testing.T) {
	for _, odd := range []string{
		`MacBook Pro 14" registry R/W`, "/has\nnewline", "\xfftest-api", "\xff\xff\xff\xffC", "1 \xc0\xa7\xc0", "\\", `\\"`, "\\n", "\r", "\x00",
		"a\"} 1\nforged_total{x=\"y", "# EOF", "{}", "é☃😀", "\uFEFF", " ", strings.Repeat("\"", 300),
	} {
		roundTrip(t, tally.Labels{CI: odd, Project: odd, Machine: odd, Runner: odd, Stage: odd})
		roundTrip(t, tally.Labels{Stage: odd})
	}
	if err := quick.Check(func(ci, project, machine, runner, stage string, raw []byte) bool {
		roundTrip(t, tally.Labels{CI: ci, Project: project, Machine: machine, Runner: runner, Stage: stage})
		roundTrip(t, tally.Labels{CI: string(raw), Runner: string(raw)})
		return !t.Failed()
	}, nil); err != nil {
		t.Error(err)
	}
}

func FuzzEncoder_labels(f *testing.F) {
	f.Add("gitlab", "group/app", "ci-7", "s_a1b2", "step_script")
	f.Add("", "\"", "\\", "\n", "\xff")
	f.Add("", "", "", "", "")
	f.Fuzz(func(t *testing.T, ci, project, machine, runner, stage string) {
		roundTrip(t, tally.Labels{CI: ci, Project: project, Machine: machine, Runner: runner, Stage: stage})
	})
}

// While builds run, no scrape shows less than the one before it, and each
// histogram agrees with itself.
func TestEncoder_neverFallsWhileWritten(t *testing.T) {
	const builds = 300
	table := tally.New(tally.Options{Budget: 3000})
	e := prometheus.New(table)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := range builds {
				write(table, string(rune('a'+w)), i)
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	last := map[string]float64{}
	for running := true; running; {
		select {
		case <-done:
			running = false // and scrape once more
		default:
		}
		for name, f := range parse(t, encode(t, e, prometheus.Text)) {
			for _, m := range f.Metric {
				check(t, last, name, m)
			}
		}
		if t.Failed() {
			break
		}
	}
	wg.Wait()
	m := parse(t, encode(t, e, prometheus.Text))
	total := 0.0
	for _, s := range m[catalog.StageCPU].Metric {
		total += s.Counter.GetValue()
	}
	if total != 2*builds {
		t.Errorf("all stages together used %g s: want %d", total, 2*builds)
	}
}

// write plays one build of one second of CPU.
func write(table *tally.Table, project string, i int) {
	b := table.Build(tally.BuildLabels{CI: "gitlab", Project: project})
	b.Started()
	s := table.Stage(tally.Labels{CI: "gitlab", Project: project, Stage: string(rune('a' + i%100))})
	share := s.Share()
	var sample cimeter.Sample
	for range 10 {
		s.Add(cimeter.CPUUser, 100_000_000)
		s.Add(cimeter.OOMKillsNested, 1)
		sample.SetGauge(cimeter.MemoryAnon, uint64(i))
		share.Set(&sample)
	}
	share.Release()
	s.Ended(float64(i), cimeter.Some(uint64(i)<<20), cimeter.Some(1.0))
	b.Ended("success", float64(i), cimeter.Some(1.0))
	id := string(rune('a' + i%7))
	table.SetInfo(catalog.ContainerInfo, id, "", project, "", "", id, "b")
	table.RemoveInfo(catalog.ContainerInfo, id)
	table.Value(catalog.AgentRounds).Add(1)
}

// check compares a counter, or all of a histogram, with the last scrape's.
func check(t *testing.T, last map[string]float64, name string, m *dto.Metric) {
	t.Helper()
	rises := func(part string, v float64) {
		key := name + part + model.Metric(toModel(m)).String()
		if v < last[key] {
			t.Errorf("%s fell from %g to %g", key, last[key], v)
		}
		last[key] = v
	}
	switch {
	case m.Counter != nil:
		rises("", m.Counter.GetValue())
	case m.Histogram != nil:
		before := uint64(0)
		for _, b := range m.Histogram.Bucket {
			n := b.GetCumulativeCount()
			if n < before {
				t.Errorf("%s: a bucket has %d, the one before it %d", name, n, before)
			}
			before = n
			rises(model.SampleValue(b.GetUpperBound()).String(), float64(n))
		}
		if before != m.Histogram.GetSampleCount() {
			t.Errorf("%s: +Inf has %d, the count is %d", name, before, m.Histogram.GetSampleCount())
		}
		rises("sum", m.Histogram.GetSampleSum())
	}
}

func toModel(m *dto.Metric) model.Metric {
	metric := model.Metric{}
	for n, v := range labelsOf(m) {
		metric[model.LabelName(n)] = model.LabelValue(v)
	}
	return metric
}
