package prometheus_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/tally"
)

// smallTable has every kind of metric, label values that need escaping, and
// readings that are absent.
func smallTable() *tally.Table {
	t := tally.New(tally.Options{})
	t.Info(catalog.BuildInfo, "1.0.0", "7e4d", "go1.26")

	s := t.Stage(tally.Labels{CI: "gitlab", Project: "group/app", Machine: "ci-7", Runner: "s_a1b2", Stage: "step_script"})
	s.Add(cimeter.CPUUser, 12_345_678_901)
	s.Add(cimeter.CPUSystem, 2_000_000_000)
	s.Add(cimeter.CPUThrottled, 0)
	s.Add(cimeter.IOReadBytes, 0)
	s.Add(cimeter.IOWriteBytes, 1<<60)
	s.Add(cimeter.NetworkReceiveBytes, 1500)
	s.Add(cimeter.MemorySomePressure, 1)
	s.Add(cimeter.OOMKills, 1)
	s.Add(cimeter.OOMKillsNested, 2)
	var sample cimeter.Sample
	sample.SetGauge(cimeter.MemoryWorkingSet, 64<<20)
	sample.SetGauge(cimeter.MemoryAnon, 60<<20)
	sample.SetGauge(cimeter.MemorySwap, 0)
	s.Share().Set(&sample)
	s.Share().Set(&sample)
	s.Ended(5.8, cimeter.Some(uint64(100<<20)), cimeter.Some(0.4))
	s.Ended(7200, cimeter.Opt[uint64]{}, cimeter.Opt[float64]{})

	odd := t.Stage(tally.Labels{CI: "drone", Project: `14" re\gistry`, Stage: "line\nfeed\ttab \xff\xffC ä"})
	odd.Add(cimeter.CPUUser, 1)
	t.Stage(tally.Labels{}).Add(cimeter.IOReadOperations, 41)

	b := t.Build(tally.BuildLabels{CI: "gitlab", Project: "group/app", Machine: "ci-7", Runner: "s_a1b2"})
	b.Started()
	b.Started()
	b.Ended("success", 42.5, cimeter.Some(0.25))
	t.Build(tally.BuildLabels{}).Started()

	t.Value(catalog.MachineCPU, "ci-7", "builds").Set(1234.5)
	t.Value(catalog.MachineCPU, "ci-7", "other").Set(1e-7)
	t.Value(catalog.AgentCoverage).Set(0.998)
	t.Value(catalog.AgentEngineUp, "docker").Set(1)
	t.Value(catalog.AgentGaps, "missed_end")
	t.SetInfo(catalog.ContainerInfo, "c1", "gitlab", "group/app", "ci-7", "s_a1b2", "0942", "gitlab/gitlab.example.com/4242")
	return t
}

// largeTable has about n series of counters and gauges.
func largeTable(n int) *tally.Table {
	t := tally.New(tally.Options{Budget: 10 * n})
	var sample cimeter.Sample
	for g := range cimeter.NumGauges {
		sample.SetGauge(g, 123_456_789)
	}
	for i := range n / 21 { // 16 counters and 5 gauges
		s := t.Stage(tally.Labels{
			CI: "gitlab", Project: fmt.Sprintf("group-%d/application", i/12), Machine: "ci-build-machine-7",
			Runner: "s_0123456789ab", Stage: fmt.Sprintf("stage_%d", i%12),
		})
		for c := range cimeter.NumCounters {
			s.Add(c, 1_234_567_890_123+uint64(i)*7_001)
		}
		s.Share().Set(&sample)
	}
	return t
}

func encode(t testing.TB, e *prometheus.Encoder, f prometheus.Format) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := e.Encode(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
