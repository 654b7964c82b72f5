package gokit_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/kit/metrics"
	"github.com/go-kit/kit/metrics/multi"

	"github.com/cimeter/cimeter/meter"
	"github.com/cimeter/cimeter/meter/gokit"
)

// serve is code that was written against go-kit.
func serve(requests metrics.Counter, inFlight metrics.Gauge, took metrics.Histogram) {
	requests = multi.NewCounter(requests)
	requests.With("method", "list").Add(2)
	requests.With("method", "list").With("code", "200").Add(1)
	requests.With("method").Add(1)
	inFlight.Add(3)
	inFlight.Add(-1)
	metrics.NewTimer(took.With("method", "list")).ObserveDuration()
	took.With("method", "list").Observe(time.Hour.Seconds())
}

func TestGoKit(t *testing.T) {
	m := meter.New(meter.Options{})
	serve(gokit.Counter(m.Counter("requests", "")), gokit.Gauge(m.Gauge("in_flight", "")), gokit.Histogram(m.Histogram("took_seconds", "", 1)))
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	for _, want := range []string{
		`requests_total{method="list"} 2`, `requests_total{code="200",method="list"} 1`, `requests_total{method="unknown"} 1`, "in_flight 2",
		`took_seconds_bucket{method="list",le="1.0"} 1`, `took_seconds_count{method="list"} 2`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, w.Body)
		}
	}
}

func TestGoKit_none(t *testing.T) {
	var m *meter.Meter
	serve(gokit.Counter(m.Counter("c", "")), gokit.Gauge(m.Gauge("g", "")), gokit.Histogram(m.Histogram("h", "")))
}
