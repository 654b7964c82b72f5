package statsd_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/output/statsd"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// fill makes cells of that many label sets of stages: some 35 series each.
func fill(n int) *tally.Table {
	t := tally.New(tally.Options{Budget: 1 << 20})
	for i := range n {
		s := t.Stage(tally.Labels{CI: "gitlab", Project: fmt.Sprintf("group/app%d", i), Machine: "ci-7", Runner: "s_a1b2", Stage: "step_script"})
		for c := range cimeter.NumCounters {
			s.Add(c, 0)
		}
		t.Build(tally.BuildLabels{CI: "gitlab", Project: fmt.Sprintf("group/app%d", i), Machine: "ci-7", Runner: "s_a1b2"})
	}
	return t
}

// work adds what builds may have spent in an interval: CPU time in nanoseconds,
// pages, and ends of stages.
func work(t *tally.Table, r *rand.Rand) {
	for i, s := range t.Stages() {
		for c := range cimeter.NumCounters {
			if r.IntN(3) > 0 {
				s.Add(c, r.Uint64N(1<<(r.UintN(40)+1)))
			}
		}
		var sample cimeter.Sample
		for g := range cimeter.NumGauges {
			sample.SetGauge(g, r.Uint64N(1<<35))
		}
		s.Share().Set(&sample)
		if i%3 == 0 {
			for range r.IntN(4) {
				s.Ended(float64(r.IntN(1e7))/1e3, cimeter.Some(r.Uint64N(1<<36)), cimeter.Some(float64(r.IntN(8000))/1e3))
			}
		}
	}
	for _, b := range t.Builds() {
		b.Started()
		if r.IntN(2) == 0 {
			b.Ended("success", float64(r.IntN(1e8))/1e4, cimeter.Some(r.Float64()*100))
		}
	}
}

func bounds(families []series.Family) string {
	var all []float64
	for _, f := range families {
		if f.Kind == series.Histogram {
			all = append(all, f.Points[0].Buckets.Bounds...)
		}
	}
	slices.Sort(all)
	s := fmt.Sprint(slices.Compact(all))
	return "defaults: {observer_type: histogram, histogram_options: {buckets: " + strings.ReplaceAll(s, " ", ", ") + "}}\n"
}

// expected is what an exporter must show for families that were told with names
// or with tags.
func expected(families []series.Family, tags bool) map[string]float64 {
	plain := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
				return r
			}
			return '_'
		}, s)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, p := range f.Points {
			name := func(suffix string, more ...series.Label) string {
				n, labels := f.Name+suffix, []string{}
				for _, l := range append(slices.Clip(p.Labels), more...) {
					n += "_" + plain(l.Name) + "_" + plain(l.Value)
					labels = append(labels, l.Name+"="+l.Value)
				}
				if tags {
					slices.Sort(labels)
					return f.Name + suffix + "{" + strings.Join(labels, ",") + "}"
				}
				return n + "{}"
			}
			b := p.Buckets
			if b == nil {
				out[name("")] = p.Value
				continue
			}
			n := uint64(0)
			for i, bound := range b.Bounds {
				n += b.Counts[i]
				switch {
				case tags || f.Unit == "seconds":
					base, labels, _ := strings.Cut(name(""), "{")
					out[fmt.Sprintf("%s_bucket{%s %v", base, labels, bound)] = float64(n)
				case n > 0:
					out[name("_bucket", series.Label{Name: "le", Value: strconv.FormatFloat(bound, 'f', -1, 64)})] = float64(n)
				}
			}
			base, labels := name("_count"), name("_sum")
			if !tags && f.Unit == "seconds" {
				base, _, _ = strings.Cut(name(""), "{")
				base, labels = base+"_count{}", base+"_sum{}"
			}
			out[base], out[labels] = float64(b.Count()), b.Sum
		}
	}
	return out
}

func compare(t *testing.T, round int, got, want map[string]float64) {
	t.Helper()
	wrong := 0
	for _, name := range slices.Sorted(maps.Keys(want)) {
		v, ok := got[name]
		// The sum of a histogram is added up by the receiver in an order of its own.
		near := strings.Contains(name, "_sum") && v > want[name]*(1-1e-12) && v < want[name]*(1+1e-12)
		if !ok || v != want[name] && !near {
			if wrong++; wrong < 10 {
				t.Errorf("round %d: %s is %v (%v), want %v", round, name, v, ok, want[name])
			}
		}
	}
	if wrong > 0 {
		t.Errorf("round %d: %d of %d values are wrong", round, wrong, len(want))
	}
}

// Every value arrives at a real receiver as the same number: 10,000 series and
// more of them over UDP, in both dialects, and over a unix socket.
func TestSink_everyValueArrives(t *testing.T) {
	for name, c := range map[string]struct {
		sets int
		dog  bool
		unix bool
	}{
		"StatsD over UDP":         {sets: 400},
		"DogStatsD over UDP":      {sets: 30, dog: true},
		"DogStatsD over unixgram": {sets: 30, dog: true, unix: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table, r := fill(c.sets), rand.New(rand.NewPCG(1, 2))
			w := series.NewWalker(table, start)
			work(table, r)
			for len(w.Families()) < 10 {
				work(table, r)
			}
			e := startExporter(t, bounds(w.Families()))
			address := e.udp
			if c.unix {
				address = e.unix
			}
			var s *statsd.Sink
			var err error
			if c.dog {
				s, err = statsd.NewDog(statsd.DogOptions{Address: address, Started: start})
			} else {
				s, err = statsd.New(statsd.Options{Address: address, Started: start})
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for round := range 3 {
				families := append(w.Families(), barrier(round+1))
				points := 0
				for _, f := range families {
					points += len(f.Points)
				}
				if round == 0 {
					t.Logf("%d points", points)
				}
				sent, err := s.Send(t.Context(), start.Add(time.Duration(round)*10*time.Second), families)
				if err != nil || sent.Points != points || len(sent.Dropped) > 0 {
					t.Fatalf("%+v, %v: want %d points sent", sent, err, points)
				}
				compare(t, round, e.values(t, "barrier", round+1), expected(families, c.dog))
				work(table, r)
			}
		})
	}
}

// A negative gauge is itself, not a change of what was there; and what a counter
// has fractions of is not lost.
func TestSink_smallThingsArrive(t *testing.T) {
	e := startExporter(t, "{}")
	plain, err := statsd.New(statsd.Options{Address: e.udp, Started: start, Name: "plain.${name}"})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	dog, err := statsd.NewDog(statsd.DogOptions{Address: e.unix, Prefix: "dog.", Started: start})
	if err != nil {
		t.Fatal(err)
	}
	defer dog.Close()
	for i, v := range []float64{-5, -7.25, 3, 0, -1e-7, 1e21, -3} {
		cpu := 0.1 + float64(i)/3
		for sink, s := range map[string]*statsd.Sink{"plain": plain, "dog": dog} {
			sent, err := s.Send(t.Context(), start.Add(time.Duration(i)*time.Minute), []series.Family{
				family("level", series.Gauge, "", series.Point{Value: v}),
				family("cpu_seconds_total", series.Counter, "seconds", series.Point{Value: cpu, Start: start}),
				family("done", series.Gauge, "", series.Point{Value: float64(i + 1)}),
			})
			if err != nil || sent.Points != 3 {
				t.Fatalf("%s: %+v, %v", sink, sent, err)
			}
			got := e.values(t, sink+"_done", i+1)
			if got[sink+"_level{}"] != v || got[sink+"_cpu_seconds_total{}"] != cpu {
				t.Errorf("%s: %v and %v: want %v and %v", sink, got[sink+"_level{}"], got[sink+"_cpu_seconds_total{}"], v, cpu)
			}
		}
	}
}
