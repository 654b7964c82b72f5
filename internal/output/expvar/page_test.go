package expvar_test

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/output/expvar"
	"github.com/cimeter/cimeter/internal/series"
)

func page(t *testing.T, o expvar.Options) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	expvar.New(o).ServeHTTP(w, httptest.NewRequest("GET", "/debug/vars", nil))
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json; charset=utf-8" {
		t.Fatalf("status %d, %s", w.Code, w.Header().Get("Content-Type"))
	}
	return w.Body.Bytes()
}

// The members that pollers of expvar read are those of runtime.MemStats: what we
// write is decoded into it, and every number but the few that are left out is
// about what the runtime says with the world stopped.
func TestPage_memstats(t *testing.T) {
	// Enough that what the test itself allocates between the two readings is little.
	kept := make([]*[64]byte, 20_000)
	for i := range kept {
		kept[i] = new([64]byte)
	}
	defer runtime.KeepAlive(kept)
	runtime.GC()
	var got struct {
		Cmdline  []string
		Memstats runtime.MemStats
	}
	if err := json.Unmarshal(page(t, expvar.Options{Program: "cimeter"}), &got); err != nil {
		t.Fatal(err)
	}
	var want runtime.MemStats
	runtime.ReadMemStats(&want)
	if len(got.Cmdline) != 1 || got.Cmdline[0] != "cimeter" {
		t.Errorf("cmdline %q", got.Cmdline)
	}
	m := got.Memstats
	for name, v := range map[string][2]uint64{
		"Alloc": {m.Alloc, want.Alloc}, "TotalAlloc": {m.TotalAlloc, want.TotalAlloc}, "Sys": {m.Sys, want.Sys},
		"Mallocs": {m.Mallocs, want.Mallocs}, "HeapSys": {m.HeapSys, want.HeapSys}, "HeapInuse": {m.HeapInuse, want.HeapInuse},
		"HeapObjects": {m.HeapObjects, want.HeapObjects}, "StackSys": {m.StackSys, want.StackSys}, "MSpanSys": {m.MSpanSys, want.MSpanSys},
		"MCacheSys": {m.MCacheSys, want.MCacheSys}, "NextGC": {m.NextGC, want.NextGC},
		"GCSys": {m.GCSys, want.GCSys}, "OtherSys": {m.OtherSys, want.OtherSys},
	} {
		if f := float64(v[0]) / float64(v[1]); f < 0.5 || f > 2 {
			t.Errorf("%s is %d, the runtime says %d", name, v[0], v[1])
		}
	}
	if n := m.NumGC; n == 0 || n > want.NumGC || m.PauseNs[(n+255)%256] != want.PauseNs[(n+255)%256] || m.PauseNs[(n+255)%256] == 0 ||
		m.PauseEnd[(n+255)%256] != want.PauseEnd[(n+255)%256] || m.LastGC == 0 || m.PauseTotalNs == 0 {
		t.Errorf("collector: %d cycles, last pause %d ns, last at %d; the runtime: %d, %d, %d",
			n, m.PauseNs[(n+255)%256], m.LastGC, want.NumGC, want.PauseNs[(want.NumGC+255)%256], want.LastGC)
	}
}

// The queue as the founders of the request drew it; what is not known is absent.
func TestPage_queue(t *testing.T) {
	q := expvar.Queue{
		Length: cimeter.Some(4), Workers: cimeter.Some(7), Waiting: cimeter.Some(5), Working: cimeter.Some(2),
		Builds: []expvar.Build{{Repo: "octocat/hello\"world", Branch: "main", Commit: "7e4d"}, {Repo: "a/b"}},
	}
	for want, q := range map[string]expvar.Queue{
		`"queue":{"queueLen":4,"workerCount":7,"workerWaiting":5,"workerWorking":2,` +
			`"worker0":{"repo":"octocat/hello\"world","branch":"main","commit":"7e4d"},"worker1":{"repo":"a/b"}}`: q,
		`"queue":{}`: {},
	} {
		if got := page(t, expvar.Options{Queue: func() expvar.Queue { return q }}); !json.Valid(got) || !strings.Contains(string(got), want) {
			t.Errorf("page:\n%s\nwant %s", got, want)
		}
	}
	q.Builds = make([]expvar.Build, 5000)
	if n := bytes.Count(page(t, expvar.Options{Queue: func() expvar.Queue { return q }}), []byte(`"worker`)); n != 3+1000 {
		t.Errorf("%d workers and their numbers are shown: want 1000 and 3", n)
	}
}

func TestPage_metrics(t *testing.T) {
	families := []series.Family{
		{Name: "plain", Kind: series.Gauge, Points: []series.Point{{Value: 1e300}}},
		{Name: "none", Kind: series.Gauge, Points: []series.Point{{Value: math.NaN()}}},
		{Name: "builds_total", Kind: series.Counter, Points: []series.Point{
			{Labels: []series.Label{{Name: "ci", Value: "drone"}, {Name: "project", Value: "a\"b\xff\n"}}, Value: 1 << 52},
			{Labels: []series.Label{{Name: "ci", Value: "x"}}, Value: math.Inf(1)},
			{Labels: []series.Label{{Name: "ci", Value: "y"}}, Value: 0.25},
		}},
		{Name: "seconds", Kind: series.Histogram, Points: []series.Point{
			{Buckets: &series.Buckets{Bounds: []float64{0.5, 1}, Counts: []uint64{1, 0, 2}, Sum: 7.5}},
		}},
		{Name: "rpc", Kind: series.Summary, Points: []series.Point{
			{Quantiles: &series.Quantile{Ranks: []float64{0.5, 0.9}, Values: []float64{2, math.NaN()}, Sum: math.NaN(), Count: 3}},
		}},
		{Name: "empty", Kind: series.Gauge},
	}
	got := page(t, expvar.Options{Families: func() []series.Family { return families }})
	const want = `"cimeter":{"plain":1e+300,"builds_total":{"ci=drone,project=a\"b\ufffd\n":4503599627370496,"ci=y":0.25},` +
		`"seconds":{"buckets":{"0.5":1,"1":1,"+Inf":3},"count":3,"sum":7.5},"rpc":{"quantiles":{"0.5":2},"count":3}}`
	if !json.Valid(got) || !strings.Contains(string(got), want) {
		t.Errorf("page:\n%s\nwant %s", got, want)
	}
}

func TestPage_methods(t *testing.T) {
	p := expvar.New(expvar.Options{})
	for method, want := range map[string]int{"HEAD": 200, "POST": 405} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(method, "/debug/vars", nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", method, w.Code, want)
		}
	}
}

// A page that several ask for at once asks the metrics one at a time.
func TestPage_manyAtOnce(t *testing.T) {
	inside := make(chan struct{}, 1)
	p := expvar.New(expvar.Options{Families: func() []series.Family {
		select {
		case inside <- struct{}{}:
		default:
			t.Error("asked twice at once")
		}
		runtime.Gosched()
		<-inside
		return nil
	}})
	done := make(chan int)
	for range 20 {
		go func() {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest("GET", "/debug/vars", nil))
			done <- w.Code
		}()
	}
	for range 20 {
		if code := <-done; code != 200 && code != 503 {
			t.Errorf("status %d", code)
		}
	}
}
