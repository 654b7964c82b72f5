package remotewrite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/output/remotewrite"
	"github.com/cimeter/cimeter/internal/series"
)

var start = time.UnixMilli(1_000_000)

// after is an instant that many seconds after start.
func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func counter(name string, v float64, labels ...series.Label) series.Family {
	return series.Family{Name: name, Kind: series.Counter, Unit: "seconds", Help: "Help.", Points: []series.Point{
		{Key: series.Key(name, labels), Labels: labels, Value: v, Start: start},
	}}
}

func gauge(name string, v float64) series.Family {
	return series.Family{Name: name, Kind: series.Gauge, Points: []series.Point{{Key: series.Key(name, nil), Value: v}}}
}

func send(t *testing.T, o *remotewrite.Output, at time.Time, families ...series.Family) series.Sent {
	t.Helper()
	if families == nil {
		families = []series.Family{}
	}
	sent, err := o.Send(t.Context(), at, families)
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

const own = `instance="ci-7",job="cimeter"`

func want(t *testing.T, r *receiver, name, samples string) {
	t.Helper()
	if got := r.of(name); got != samples {
		t.Errorf("%s arrived as %q, want %q", name, got, samples)
	}
}

func TestOutput_Send_samples(t *testing.T) {
	for version, answer := range map[string]func(http.ResponseWriter, string, int) bool{"1.0": takesOne, "2.0": takesBoth} {
		t.Run(version, func(t *testing.T) {
			r := newReceiver(t, answer)
			o := output(t, r.URL, remotewrite.Options{})
			h := &series.Buckets{Bounds: []float64{0.5, 10}, Counts: []uint64{1, 2, 4}, Sum: 99.5}
			q := &series.Quantile{Ranks: []float64{0.5}, Values: []float64{math.NaN()}, Sum: 5, Count: 2}
			sent := send(t, o, after(1),
				counter("c_total", 1.5, series.Label{Name: "stage", Value: "a\"\\\n\xff"}, series.Label{Name: "Upper", Value: "x"}, series.Label{Name: "empty"}),
				gauge("g", math.Inf(-1)),
				series.Family{Name: "h", Kind: series.Histogram, Points: []series.Point{{Key: "h", Buckets: h, Start: start, Labels: []series.Label{{Name: "le", Value: "x"}, {Name: "z", Value: "1"}}}}},
				series.Family{Name: "s", Kind: series.Summary, Points: []series.Point{{Key: "s", Quantiles: q}}},
				series.Family{Name: "2-bad name", Kind: series.Info, Points: []series.Point{{Key: "i", Value: 1, Labels: []series.Label{{Name: "a.b", Value: "1"}, {Name: "a-b", Value: "2"}, {Name: "job", Value: "theirs"}}}}},
			)
			// Each counter twice: as 0 at its start, and as what it is.
			if sent.Points != 2+1+2*5+3+1 || len(sent.Dropped) > 0 || len(r.samples) != sent.Points {
				t.Errorf("%+v, %d arrived", sent, len(r.samples))
			}
			began := ""
			if version == "2.0" {
				began = "/1000000"
			}
			want(t, r, `c_total{Upper="x",`+own+`,stage="a\"\\\n`+"\uFFFD"+`"}`, "0@1000000 1.5@1001000"+began)
			want(t, r, `g{`+own+`}`, "-Inf@1001000")
			want(t, r, `h_bucket{`+own+`,le="0.5",z="1"}`, "0@1000000 1@1001000"+began)
			want(t, r, `h_bucket{`+own+`,le="10",z="1"}`, "0@1000000 3@1001000"+began)
			want(t, r, `h_bucket{`+own+`,le="+Inf",z="1"}`, "0@1000000 7@1001000"+began)
			want(t, r, `h_sum{`+own+`,z="1"}`, "0@1000000 99.5@1001000"+began)
			want(t, r, `h_count{`+own+`,z="1"}`, "0@1000000 7@1001000"+began)
			want(t, r, `s{`+own+`,quantile="0.5"}`, "NaN@1001000")
			want(t, r, `s_count{`+own+`}`, "2@1001000")
			want(t, r, `__bad_name{a_b="1",instance="ci-7",job="theirs"}`, "1@1001000")
			if got := r.meta["c_total"]; got != "1 Help. seconds" {
				t.Errorf("metadata %q", got)
			}
		})
	}
}

// A series that is no more ends with a marker, at once; all do at the end. One
// that comes back goes on where it was: it did not begin at 0.
func TestOutput_staleMarkers(t *testing.T) {
	r := newReceiver(t, takesOne)
	o := output(t, r.URL, remotewrite.Options{Protocol: remotewrite.V1})
	send(t, o, after(1), counter("a_total", 1), gauge("b", 2))
	send(t, o, after(2), gauge("b", 3))
	send(t, o, after(3))
	send(t, o, after(4), counter("a_total", 5))
	if sent, err := o.End(t.Context(), after(5)); err != nil || sent.Points != 1 {
		t.Fatalf("%+v, %v", sent, err)
	}
	want(t, r, `a_total{`+own+`}`, "0@1000000 1@1001000 stale@1002000 5@1004000 stale@1005000")
	want(t, r, `b{`+own+`}`, "2@1001000 3@1002000 stale@1003000")
}

// A counter that appears between two rounds was 0 at the first of them; one that
// starts again was 0 then; nobody knows of one whose start nobody tells.
func TestOutput_countersBeginAtZero(t *testing.T) {
	r := newReceiver(t, takesOne)
	o := output(t, r.URL, remotewrite.Options{Protocol: remotewrite.V1})
	send(t, o, after(10), counter("first_total", 1))
	foreign := counter("foreign_total", 7)
	foreign.Points[0].Start = time.Time{}
	send(t, o, after(20), counter("first_total", 2), counter("later_total", 3), foreign)
	again := counter("first_total", 1)
	again.Points[0].Start = after(25)
	send(t, o, after(30), again)
	want(t, r, `first_total{`+own+`}`, "0@1000000 1@1010000 2@1020000 0@1025000 1@1030000")
	want(t, r, `later_total{`+own+`}`, "0@1010000 3@1020000 stale@1030000")
	want(t, r, `foreign_total{`+own+`}`, "7@1020000 stale@1030000")
}

// Nothing is lost, and all is in order, while the receiver is away.
func TestOutput_keepsWhileTheReceiverIsAway(t *testing.T) {
	away := true
	r := newReceiver(t, func(w http.ResponseWriter, v string, n int) bool {
		if away {
			return answers(http.StatusServiceUnavailable)(w, v, n)
		}
		return takesBoth(w, v, n)
	})
	o := output(t, r.URL, remotewrite.Options{})
	var all strings.Builder
	all.WriteString("0@1000000 ")
	for i := range 20 {
		sent, err := o.Send(t.Context(), after(i+1), []series.Family{counter("a_total", float64(i))})
		var asks interface{ RetryAfter() time.Duration }
		if sent.Points > 0 || len(sent.Dropped) > 0 || !errors.Is(err, cimeter.ErrUnavailable) || !errors.As(err, &asks) || asks.RetryAfter() != 7*time.Second {
			t.Fatalf("%+v, %v", sent, err)
		}
		fmt.Fprintf(&all, "%d@%d/1000000 ", i, after(i+1).UnixMilli())
	}
	if sent, err := o.End(t.Context(), after(30)); !errors.Is(err, cimeter.ErrUnavailable) || len(r.samples) > 0 || fmt.Sprint(sent.Dropped) != "[{shutdown 21}]" {
		t.Errorf("end: %+v, %v, %d samples: want none tried while older ones wait", sent, err, len(r.samples))
	}
	away = false
	if sent, err := o.Send(t.Context(), after(21), nil); err != nil || sent.Points != 21 {
		t.Errorf("%+v, %v", sent, err)
	}
	want(t, r, `a_total{`+own+`}`, strings.TrimSpace(all.String()))
}

func TestOutput_Keep_bounds(t *testing.T) {
	r := newReceiver(t, takesOne)
	o := output(t, r.URL, remotewrite.Options{Protocol: remotewrite.V1, MaxBytes: 16 * 10, MaxAge: time.Minute})
	for i := range 25 {
		sent := o.Keep(after(i), []series.Family{gauge("g", float64(i))})
		if i < 10 && len(sent.Dropped) > 0 || i >= 10 && fmt.Sprint(sent.Dropped) != "[{queue 1}]" {
			t.Fatalf("round %d: %+v", i, sent)
		}
	}
	if n := o.Waiting(); n != 10 {
		t.Errorf("%d samples wait, want 10", n)
	}
	if sent := o.Keep(after(78), nil); fmt.Sprint(sent.Dropped) != "[{age 3} {queue 1}]" && fmt.Sprint(sent.Dropped) != "[{queue 1} {age 2}]" && fmt.Sprint(sent.Dropped) != "[{age 3}]" {
		t.Errorf("%+v", sent)
	}
}

// A clock that is set back makes no sample that the receiver has to refuse.
func TestOutput_clockSetBack(t *testing.T) {
	r := newReceiver(t, takesOne)
	o := output(t, r.URL, remotewrite.Options{Protocol: remotewrite.V1})
	for i, s := range []int{100, 40, 41, 102} {
		send(t, o, after(s), gauge("g", float64(i)))
	}
	want(t, r, `g{`+own+`}`, "0@1100000 1@1100001 2@1100002 3@1102000")
}

// What of 2.0 and 1.0 a receiver gets, and what becomes of the samples.
func TestOutput_fallback(t *testing.T) {
	for name, c := range map[string]struct {
		answer   func(http.ResponseWriter, string, int) bool
		protocol remotewrite.Protocol
		versions string // of two sends
		arrived  bool
		fails    error
	}{
		"takes 2.0":                  {answer: takesBoth, versions: "[2.0 2.0]", arrived: true},
		"takes 1.0 and says nothing": {answer: takesOne, versions: "[2.0 1.0 1.0]", arrived: true},
		"1.0 asked for":              {answer: takesBoth, protocol: remotewrite.V1, versions: "[1.0 1.0]", arrived: true},
		"2.0 asked for, not told of": {answer: takesOne, protocol: remotewrite.V2, versions: "[2.0 2.0]"},
		"away":                       {answer: answers(503), versions: "[2.0 2.0]", fails: cimeter.ErrUnavailable},
		"not allowed":                {answer: answers(401), versions: "[2.0 2.0]", fails: cimeter.ErrUnauthorized},
		"wrong path":                 {answer: answers(404), versions: "[2.0 2.0]", fails: cimeter.ErrInvalid},
		"refuses all":                {answer: answers(400), versions: "[2.0 1.0 1.0]", fails: cimeter.ErrInvalid},
		"says 415": {versions: "[2.0 1.0 1.0]", arrived: true, answer: func(w http.ResponseWriter, v string, n int) bool {
			if v == "2.0" {
				return answers(415)(w, v, n)
			}
			return takesBoth(w, v, n)
		}},
		"says 400 to what it cannot read": {versions: "[2.0 1.0 1.0]", arrived: true, answer: func(w http.ResponseWriter, v string, n int) bool {
			if v == "2.0" {
				return answers(400)(w, v, n)
			}
			return takesBoth(w, v, n)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t, c.answer)
			o := output(t, r.URL, remotewrite.Options{Protocol: c.protocol})
			var err error
			points := 0
			for i := range 2 {
				var sent series.Sent
				sent, err = o.Send(t.Context(), after(i+1), []series.Family{gauge("g", float64(i))})
				points += sent.Points
			}
			if got := fmt.Sprint(r.versions); got != c.versions {
				t.Errorf("versions %s, want %s", got, c.versions)
			}
			if (len(r.samples) == 2) != c.arrived || (points == 2) != c.arrived || (err == nil) != c.arrived {
				t.Errorf("%d samples, %d points, %v", len(r.samples), points, err)
			}
			if c.fails != nil && !errors.Is(err, c.fails) {
				t.Errorf("%v, want %v", err, c.fails)
			}
		})
	}
}

// A 4xx costs what the request held and no more: by the specification it is not
// sent again. What else waits is not held up by it, but for a credential that
// does not hold.
// What is asked whether it is there gets no sample, and nothing is learnt by it.
func TestOutput_Check(t *testing.T) {
	for name, c := range map[string]struct {
		protocol remotewrite.Protocol
		answer   func(http.ResponseWriter, string, int) bool
		want     string // "" is an error
		versions string
	}{
		"both":           {remotewrite.Auto, takesBoth, "takes remote write 2.0", "[2.0]"},
		"1.0":            {remotewrite.Auto, takesOne, "takes remote write 1.0", "[2.0 1.0]"},
		"1.0 wanted":     {remotewrite.V1, takesBoth, "takes remote write 1.0", "[1.0]"},
		"2.0 wanted":     {remotewrite.V2, takesOne, "", "[2.0]"},
		"not authorized": {remotewrite.Auto, answers(401), "", "[2.0]"},
		"another path":   {remotewrite.Auto, answers(404), "", "[2.0]"},
	} {
		r := newReceiver(t, c.answer)
		o := output(t, r.URL, remotewrite.Options{Protocol: c.protocol})
		says, err := o.Check(t.Context())
		if says != c.want || err == nil != (c.want != "") || fmt.Sprint(r.versions) != c.versions || len(r.samples) > 0 {
			t.Errorf("%s: %q, %v, asked by %v, %d samples", name, says, err, r.versions, len(r.samples))
		}
	}
}

func TestOutput_Send_refused(t *testing.T) {
	for status, left := range map[int]int{400: 0, 401: 2500, 429: 4500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r := newReceiver(t, answers(status))
			o := output(t, r.URL, remotewrite.Options{Protocol: remotewrite.V1})
			sent, err := o.Send(t.Context(), after(1), []series.Family{many(4500)})
			dropped := 0
			for _, d := range sent.Dropped {
				if d.Reason != "refused" {
					t.Errorf("reason %s", d.Reason)
				}
				dropped += d.Points
			}
			if err == nil || sent.Points != 0 || dropped != 4500-left {
				t.Errorf("%+v, %v: want %d dropped", sent, err, 4500-left)
			}
		})
	}
}

// A receiver of 2.0 that took a part says how much.
func TestOutput_Send_partlyWritten(t *testing.T) {
	for _, status := range []int{204, 400} {
		r := newReceiver(t, func(w http.ResponseWriter, _ string, n int) bool {
			w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", fmt.Sprint(n-3))
			w.WriteHeader(status)
			return true
		})
		sent, err := output(t, r.URL, remotewrite.Options{}).Send(t.Context(), after(1), []series.Family{many(10)})
		if sent.Points != 7 || len(sent.Dropped) != 1 || sent.Dropped[0].Points != 3 || (err == nil) != (status == 204) {
			t.Errorf("%d: %+v, %v", status, sent, err)
		}
	}
}

// Whatever a receiver does, a send ends with its deadline, nothing that waits is
// lost, and memory is bounded by what may wait.
func TestOutput_badReceivers(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	garbage := garbageServer(t)
	for name, url := range map[string]string{
		"refusing": "http://" + closed.Addr().String(),
		"hanging": httptestURL(t, func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // else the server does not see that the client goes
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}),
		"garbage": garbage,
		"cut off": httptestURL(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, "x")
		}),
		"endless": httptestURL(t, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			o := output(t, url, remotewrite.Options{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			sent, err := o.Send(ctx, after(1), []series.Family{many(100)})
			if err == nil || sent.Points > 0 || len(sent.Dropped) > 0 {
				t.Errorf("%+v, %v", sent, err)
			}
			if strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%q would reach a terminal", err)
			}
			o.Keep(after(2), []series.Family{many(100)})
			if n := o.Waiting(); n != 100 {
				t.Errorf("%d wait behind the request that was not taken, want 100", n)
			}
		})
	}
}

func httptestURL(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// garbageServer answers with what is no HTTP.
func garbageServer(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("\x00\x1b[31m\xff garbage\r\n\r\n"))
			c.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

// many is a gauge with that many series.
func many(n int) series.Family {
	f := series.Family{Name: "cimeter_stage_cpu_seconds", Kind: series.Gauge}
	for i := range n {
		labels := []series.Label{
			{Name: "ci", Value: "gitlab"}, {Name: "project", Value: fmt.Sprint("group/app-", i/10)}, {Name: "machine", Value: "ci-7"},
			{Name: "runner", Value: "s_a1b2c3d4"}, {Name: "stage", Value: fmt.Sprint("stage-", i%10)}, {Name: "mode", Value: "user"},
		}
		f.Points = append(f.Points, series.Point{Key: series.Key(f.Name, labels), Labels: labels, Value: float64(i), Start: start})
	}
	return f
}

// discard takes everything.
type discard struct{ n int }

func (d *discard) Post(_ context.Context, _ string, _ http.Header, body []byte) (http.Header, []byte, error) {
	d.n += len(body)
	return http.Header{"X-Prometheus-Remote-Write-Samples-Written": {"2000"}}, nil, nil
}

// What a round costs does not depend on the number of its series, once they are known.
func TestOutput_Send_allocations(t *testing.T) {
	for _, p := range []remotewrite.Protocol{remotewrite.V1, remotewrite.V2} {
		o := remotewrite.New(remotewrite.Options{To: &discard{}, Protocol: p})
		families, i := []series.Family{many(4000)}, 0
		round := func() {
			i++
			send(t, o, after(i), families...)
		}
		round()
		if n := testing.AllocsPerRun(5, round); n > 60 {
			t.Errorf("%s: %v allocations for 4000 series, want at most 60", p, n)
		}
	}
}

func BenchmarkOutput_Send10k(b *testing.B) {
	for _, p := range []remotewrite.Protocol{remotewrite.V1, remotewrite.V2} {
		b.Run(string(p), func(b *testing.B) {
			to := &discard{}
			o := remotewrite.New(remotewrite.Options{To: to, Protocol: p})
			families, i := []series.Family{many(10000)}, 0
			b.ReportAllocs()
			for b.Loop() {
				i++
				if _, err := o.Send(b.Context(), after(i), families); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(to.n)/float64(b.N), "sent-B/op")
		})
	}
}
