package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/webtest"
)

// manyMachines is a fleet of n machines, each with what one of the fleet's runs.
func manyMachines(n int) []web.Machine {
	few := webtest.Machines()
	ms := make([]web.Machine, n)
	for i := range ms {
		ms[i] = few[i%len(few)]
		ms[i].Name = fmt.Sprintf("ci-%d", i+1)
		if ms[i].CPUBuilds.Known {
			ms[i].CPUBuilds = cimeter.Some(ms[i].CPUBuilds.Value + float64(i)/1000)
		}
	}
	return ms
}

// BenchmarkPages is what a page costs of a fleet of 2,000 machines, beside its
// store: cpu-ms/op is CPU time of one
// request, with the collector of garbage, whatever else the machine does.
func BenchmarkPages(b *testing.B) {
	m := fleet()
	m.Fleet = manyMachines(2000)
	h := pages(b, m)
	for _, path := range []string{"/", "/builds?t=7d", "/machines", "/machine?name=ci-7", "/queue", key(webtest.Example())} {
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Header.Set("Accept-Encoding", "gzip")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Code)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// cpuTime is what this process took so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
