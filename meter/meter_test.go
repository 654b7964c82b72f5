package meter_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/cimeter/cimeter/meter"
)

func get(h http.Handler, accept string) string {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Body.String()
}

// full has something of everything.
func full() *meter.Meter {
	m := meter.New(meter.Options{CI: "toy", Server: "s"})
	m.Queue().SetLength(3)
	m.Workers().Set(5, 2)
	b := m.Builds(meter.Labels{Project: "group/app", Runner: "r1"})
	b.Queued(2 * time.Second)
	b.Started()
	b.Started()
	b.Finished(meter.Failed, 40*time.Second)
	m.Counter("cache.hits", "Hits of\nthe cache.").With("cache", `a"b\c`, "zone", "").Add(2.5)
	m.Gauge("disk_free_bytes", "Free.").With("disk", "sda").Set(-1e18)
	h := m.Histogram("checkout_seconds", "Checkouts.", 1, 2)
	h.Observe(0.5)
	h.Observe(7)
	return m
}

func TestMeter_prometheus(t *testing.T) {
	text := get(full().Handler(), "")
	p := expfmt.NewTextParser(model.LegacyValidation)
	if _, err := p.TextToMetricFamilies(strings.NewReader(text)); err != nil {
		t.Errorf("%v:\n%s", err, text)
	}
	for _, want := range []string{
		`cimeter_queue_builds{server="s",status="waiting"} 3`, `cimeter_workers{server="s",state="idle"} 3`, `cimeter_workers{server="s",state="busy"} 2`,
		`cimeter_builds_running{ci="toy",project="group/app",runner="r1"} 1`,
		`cimeter_builds_total{ci="toy",project="group/app",runner="r1",result="failed"} 1`,
		`cimeter_build_queue_seconds_bucket{ci="toy",project="group/app",runner="r1",le="3.0"} 1`,
		`cache_hits_total{cache="a\"b\\c"} 2.5`, "# HELP cache_hits_total Hits of\\nthe cache.\n# TYPE cache_hits_total counter",
		`disk_free_bytes{disk="sda"} -1e+18`, `checkout_seconds_bucket{le="1.0"} 1`, `checkout_seconds_bucket{le="+Inf"} 2`, "checkout_seconds_sum 7.5", "checkout_seconds_count 2",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, `status="blocked"`) {
		t.Error("what nobody told is shown")
	}
	m := full()
	m.Builds(meter.Labels{Project: "group/app", Runner: "r1"}).FinishedBuild("toy/7", meter.Success, time.Minute)
	om := get(m.Handler(), "application/openmetrics-text")
	if !strings.Contains(om, `le="60.0"} 1 # {build="toy/7"} 60 `) {
		t.Errorf("no exemplar in\n%s", om)
	}
	if !strings.Contains(om, "# TYPE cache_hits counter\ncache_hits_total{") || !strings.HasSuffix(om, "# EOF\n") {
		t.Errorf("OpenMetrics:\n%s", om)
	}
}

func TestMeter_vars(t *testing.T) {
	m := meter.New(meter.Options{CI: "toy"})
	workers := m.Workers()
	a, b := workers.Join(), workers.Join()
	a.Start(meter.Job{Repo: "a/b", Branch: "main", Commit: "7e4d"})
	b.Start(meter.Job{Repo: "c/d"})
	a.Done()
	a.Done()
	m.Queue().Enqueued()
	const want = `"queue":{"queueLen":1,"workerCount":2,"workerWaiting":1,"workerWorking":1,"worker0":{"repo":"c/d"}}`
	if got := get(m.Vars(), ""); !strings.Contains(got, want) {
		t.Errorf("vars:\n%s\nwant %s", got, want)
	}
	b.Leave()
	b.Leave()
	b.Start(meter.Job{})
	if got := get(m.Vars(), ""); !strings.Contains(got, `"workerCount":1,"workerWaiting":1,"workerWorking":0}`) {
		t.Errorf("after one left:\n%s", got)
	}
}

// Without a meter every call of the package does nothing.
func TestNil(t *testing.T) {
	var m *meter.Meter
	m.Queue().Enqueued()
	m.Queue().Dequeued()
	m.Queue().SetLength(1)
	m.Queue().SetBlocked(1)
	m.Workers().Set(1, 1)
	w := m.Workers().Join()
	w.Start(meter.Job{})
	w.Done()
	w.Leave()
	b := m.Builds(meter.Labels{Project: "p"})
	b.Queued(1)
	b.Started()
	b.Finished(meter.Success, 1)
	b.FinishedBuild("id", meter.Success, 1)
	b.Abandoned()
	m.Counter("c", "").With("a", "b").Add(1)
	m.Gauge("g", "").With("a", "b").Set(1)
	m.Gauge("g", "").Add(1)
	m.Histogram("h", "").With("a", "b").Observe(1)
	if get(m.Handler(), "") != "" || get(m.Vars(), "") != "{}\n" {
		t.Error("nothing counted, but something shown")
	}
}

// The calls of hot paths allocate nothing, with a meter and without.
func TestAllocations(t *testing.T) {
	for name, m := range map[string]*meter.Meter{"meter": meter.New(meter.Options{}), "nil": nil} {
		queue, builds, worker := m.Queue(), m.Builds(meter.Labels{Project: "p"}), m.Workers().Join()
		counter, gauge, histogram := m.Counter("c", "").With("a", "b"), m.Gauge("g", ""), m.Histogram("h", "")
		job := meter.Job{Repo: "a/b", Branch: "main"}
		round := func() {
			queue.Enqueued()
			queue.Dequeued()
			builds.Queued(time.Second)
			builds.Started()
			worker.Start(job)
			builds.Finished(meter.Success, time.Minute)
			builds.Started()
			builds.FinishedBuild("toy/7", meter.Failed, time.Minute)
			worker.Done()
			counter.Add(1)
			gauge.Set(2)
			histogram.Observe(3)
		}
		round()
		if n := testing.AllocsPerRun(100, round); n != 0 {
			t.Errorf("%s: %v allocations a build, want none", name, n)
		}
	}
}

// Whatever is called at once, the sums are right.
func TestConcurrent(t *testing.T) {
	m := meter.New(meter.Options{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			w := m.Workers().Join()
			for range 500 {
				m.Queue().Enqueued()
				b := m.Builds(meter.Labels{Project: fmt.Sprint(i % 2)})
				b.Started()
				w.Start(meter.Job{})
				m.Counter("c", "").With("i", fmt.Sprint(i%2)).Add(1)
				m.Histogram("h", "").Observe(1)
				if i == 0 {
					get(m.Handler(), "")
				}
				b.Finished(meter.Success, time.Second)
				w.Done()
				m.Queue().Dequeued()
			}
			w.Leave()
		})
	}
	wg.Wait()
	text := get(m.Handler(), "")
	for _, want := range []string{
		`c_total{i="0"} 2000`, `c_total{i="1"} 2000`, "h_count 4000", `cimeter_builds_total{project="0",result="success"} 2000`,
		`status="waiting"} 0`, `state="idle"} 0`, `state="busy"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// A label that takes a new value with each build costs no more than the bound.
func TestBounds(t *testing.T) {
	m := meter.New(meter.Options{})
	m.Gauge("g", "").With("l", strings.Repeat("ä", 5000)+"\xff").Set(1)
	if text := get(m.Handler(), ""); strings.Count(text, "ä") != 200 {
		t.Errorf("%d runes of a long label", strings.Count(text, "ä"))
	}
	c := m.Counter("c", "")
	for i := range 20_000 {
		c.With("build", fmt.Sprint(i)).Add(1)
	}
	text := get(m.Handler(), "")
	if n := strings.Count(text, "\nc_total{"); n > 10_000 || !strings.Contains(text, `c_total{build="#other#"}`) {
		t.Errorf("%d series of 20,000 values", n)
	}
}

func TestNames(t *testing.T) {
	m := meter.New(meter.Options{})
	for name, want := range map[string]string{"a.b-c": "a_b_c_total 0", "9lives_total": "_lives_total 0", "": "__total 0", "x_total": "x_total 0"} {
		m.Counter(name, "").Add(0)
		if text := get(m.Handler(), ""); !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("%q: no %s in\n%s", name, want, text)
		}
	}
	for what, f := range map[string]func(){
		"of the catalogue": func() { m.Gauge("cimeter_builds_running", "") },
		"of another kind":  func() { m.Gauge("x_total", "") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a name %s is taken", what)
				}
			}()
			f()
		}()
	}
}

// What is told to StatsD arrives at the last send, at the latest.
func TestRun_statsd(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m := meter.New(meter.Options{Outputs: []meter.Output{meter.StatsD(l.LocalAddr().String(), time.Hour)}})
	m.Counter("hits", "").Add(7)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Run(ctx, nil); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 65536)
	_ = l.SetReadDeadline(time.Now().Add(time.Minute))
	n, _, err := l.ReadFrom(b)
	if err != nil || !strings.Contains(string(b[:n]), "hits_total:7|c") {
		t.Errorf("%v: %s", err, b[:n])
	}
}

// Who uses the package takes on nothing but the standard library, and what an
// output needs only with the output's package.
func TestDependencies(t *testing.T) {
	for of, allowed := range map[string][]string{
		".":             nil,
		"./otlp":        {"google.golang.org/protobuf"},
		"./remotewrite": {"google.golang.org/protobuf", "github.com/klauspost/compress"},
	} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", of).Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			if p := strings.TrimSpace(line); p != "" && p != "github.com/cimeter/cimeter" && !slices.Contains(allowed, p) {
				t.Errorf("%s depends on %s", of, p)
			}
		}
	}
}

// BenchmarkBuild is the instruments' cost of one build, as a ratio to the same
// number of bare atomic additions: 5 that count it.
func BenchmarkBuild(b *testing.B) {
	for name, m := range map[string]*meter.Meter{"meter": meter.New(meter.Options{}), "nil": nil} {
		b.Run(name, func(b *testing.B) {
			queue, builds := m.Queue(), m.Builds(meter.Labels{Project: "p"})
			var bare [5]atomic.Int64
			const rounds = 1_000_000
			start := time.Now()
			for range rounds {
				for i := range bare {
					bare[i].Add(1)
				}
			}
			atomics := float64(time.Since(start)) / rounds
			b.ReportAllocs()
			for b.Loop() {
				queue.Enqueued()
				queue.Dequeued()
				builds.Queued(time.Second)
				builds.Started()
				builds.Finished(meter.Success, time.Minute)
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/atomics, "x-atomics")
		})
	}
}
