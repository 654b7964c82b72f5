package prometheus_test

import (
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/tally"
)

func BenchmarkEncode10k(b *testing.B)  { benchmarkEncode(b, 10_000) }
func BenchmarkEncode100k(b *testing.B) { benchmarkEncode(b, 100_000) }

// benchmarkEncode measures one scrape through the handler, and in the same run
// the same series out of a client_golang collector of constant metrics through
// its handler. x-client_golang is our share of its CPU time, all of the
// process's: collectors and garbage collection run on goroutines of their own.
func benchmarkEncode(b *testing.B, n int) {
	table := largeTable(n)
	ours := prometheus.New(table)
	registry := client.NewRegistry()
	registry.MustRegister(newCollector(table))
	theirs := promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true, EnableOpenMetrics: true})
	for name, accept := range map[string]string{"text": "", "openmetrics": "application/openmetrics-text;version=1.0.0"} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/metrics", nil)
			r.Header.Set("Accept", accept)
			w := &discard{header: http.Header{}}
			// A fixed number of the other's scrapes: a benchmark cannot run in a benchmark.
			const peerScrapes = 3
			theirs.ServeHTTP(w, r) // warm
			start := cpuTime(b)
			for range peerScrapes {
				w.bytes = 0
				theirs.ServeHTTP(w, r)
			}
			peer := float64(cpuTime(b)-start) / peerScrapes
			peerBytes := w.bytes
			ours.ServeHTTP(w, r)
			b.ReportAllocs()
			start = cpuTime(b)
			for b.Loop() {
				w.bytes = 0
				ours.ServeHTTP(w, r)
			}
			perOp := float64(cpuTime(b)-start) / float64(b.N)
			b.SetBytes(w.bytes)
			b.ReportMetric(perOp/peer, "x-client_golang")
			b.ReportMetric(perOp/float64(n), "ns/series")
			b.ReportMetric(peer/float64(n), "client_golang-ns/series")
			if w.bytes < peerBytes*9/10 {
				b.Errorf("%d bytes, client_golang wrote %d: not the same work", w.bytes, peerBytes)
			}
		})
	}
}

// cpuTime returns the CPU time of this process so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// discard is a response that counts and forgets.
type discard struct {
	header http.Header
	bytes  int64
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(int)     {}
func (d *discard) Write(p []byte) (int, error) {
	d.bytes += int64(len(p))
	return len(p), nil
}

// clientCollector is a client_golang collector of a table's stages.
type clientCollector struct {
	table    *tally.Table
	families []clientFamily
}

type clientFamily struct {
	catalog.Metric
	desc *client.Desc
}

func newCollector(table *tally.Table) *clientCollector {
	p := &clientCollector{table: table}
	for _, m := range catalog.Metrics() {
		if m.Scope == catalog.Stage && m.Kind != catalog.Histogram {
			p.families = append(p.families, clientFamily{m, client.NewDesc(m.Name, m.Help, m.Labels, nil)})
		}
	}
	return p
}

func (p *clientCollector) Describe(to chan<- *client.Desc) {
	for _, f := range p.families {
		to <- f.desc
	}
}

func (p *clientCollector) Collect(to chan<- client.Metric) {
	for _, s := range p.table.Stages() {
		l := s.Labels()
		for _, f := range p.families {
			for _, r := range f.Series {
				kind, v := client.GaugeValue, 0.0
				if f.Kind == catalog.Gauge {
					u, _ := s.Gauge(r.Gauge)
					v = float64(u)
				} else {
					kind = client.CounterValue
					for _, c := range r.Counters {
						u, _ := s.Counter(c)
						v += float64(u)
					}
					if r.Decimals == 9 {
						v /= 1e9
					}
				}
				values := append([]string{l.CI, l.Project, l.Machine, l.Runner, l.Stage}, r.Values...)
				to <- client.MustNewConstMetric(f.desc, kind, v, values...)
			}
		}
	}
}
