package statsd_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/output/statsd"
	"github.com/cimeter/cimeter/internal/series"
)

// rig is a sink with a receiver that loses nothing.
type rig struct {
	t *testing.T
	*statsd.Sink
	to    *packets
	at    time.Time
	sends int
}

func plainRig(t *testing.T, o statsd.Options) *rig {
	t.Helper()
	to := listen(t, "unixgram")
	o.Address, o.Name, o.Started = to.address, cmp.Or(o.Name, "${name}.${values}"), start
	s, err := statsd.New(o)
	return newRig(t, s, err, to)
}

func dogRig(t *testing.T, o statsd.DogOptions) *rig {
	t.Helper()
	to := listen(t, "unixgram")
	o.Address, o.Started = to.address, start
	s, err := statsd.NewDog(o)
	return newRig(t, s, err, to)
}

func newRig(t *testing.T, s *statsd.Sink, err error, to *packets) *rig {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &rig{t: t, Sink: s, to: to, at: start.Add(time.Minute)}
}

// send sends families and returns the lines that arrived.
func (r *rig) send(families ...series.Family) (series.Sent, []string) {
	r.t.Helper()
	r.sends++
	r.at = r.at.Add(10 * time.Second)
	sent, err := r.Send(r.t.Context(), r.at, append(families, barrier(r.sends)))
	if err != nil {
		r.t.Fatal(err)
	}
	sent.Points--
	return sent, lines(r.to.take(r.t, r.sends))
}

func (r *rig) want(families []series.Family, want ...string) {
	r.t.Helper()
	if _, got := r.send(families...); !slices.Equal(got, want) {
		r.t.Errorf("%q, want %q", got, want)
	}
}

func one(f series.Family) []series.Family { return []series.Family{f} }

func counter(v float64, from time.Time, labels ...series.Label) []series.Family {
	return one(family("n_total", series.Counter, "", series.Point{Value: v, Start: from, Labels: labels}))
}

func gauge(v float64) []series.Family {
	return one(family("level", series.Gauge, "", series.Point{Value: v}))
}

// A counter is told by what it rose: all of it when it was 0 after the sink
// began, nothing at first when it may have been told before; all of it again
// after it started again; and from where it was when it comes back after a gap.
func TestSink_counters(t *testing.T) {
	later := start.Add(time.Hour)
	r := plainRig(t, statsd.Options{})
	r.want(counter(7, start), "n_total:7|c")
	r.want(counter(7, start)) // nothing new
	r.want(counter(9.5, start), "n_total:2.5|c")
	r.want(counter(2, start), "n_total:2|c")      // fell
	r.want(counter(40, later), "n_total:40|c")    // started again and is past what it was
	r.want(nil)                                   // its source is away
	r.want(counter(41.5, later), "n_total:1.5|c") // and back
	r = plainRig(t, statsd.Options{})
	r.want(counter(7, start.Add(-time.Second)), "n_total:0|c") // somebody may have told it
	r.want(counter(8, start.Add(-time.Second)), "n_total:1|c")
	r = plainRig(t, statsd.Options{})
	r.want(counter(1e9, time.Time{}), "n_total:0|c") // a start that nobody knows
	r.want(counter(1e9+1, time.Time{}), "n_total:1|c")
	r.want(counter(3, time.Time{}), "n_total:3|c")
	r = plainRig(t, statsd.Options{})
	r.want(counter(5, start), "n_total:5|c")
	r.at = r.at.Add(2 * time.Hour)
	r.want(nil)                              // forgotten
	r.want(counter(6, start), "n_total:0|c") // told before: counted from here on
	r.want(counter(6.25, start), "n_total:0.25|c")
	for _, v := range []float64{math.NaN(), math.Inf(1), -1} {
		if sent, got := r.send(counter(v, start)...); len(got) > 0 || !reflect.DeepEqual(sent.Dropped, []series.Drop{{Reason: "no_number", Points: 1}}) {
			t.Errorf("%v: %+v, %q: want it dropped", v, sent, got)
		}
	}
	r.want(counter(7, start), "n_total:0.75|c")
}

// What a receiver that takes whole units only was not told, it is told later.
func TestSink_wholeNumbers(t *testing.T) {
	r := plainRig(t, statsd.Options{WholeNumbers: true})
	r.want(counter(0.9, start), "n_total:0|c")
	r.want(counter(1.8, start), "n_total:1|c")
	told, v := 1.0, 1.8
	for range 100 {
		v += 0.37
		_, got := r.send(counter(v, start)...)
		for _, l := range got {
			p, err := parseLine(l, false)
			if err != nil || p.value != math.Trunc(p.value) {
				t.Fatalf("%q, %v: want a whole number", l, err)
			}
			told += p.value
		}
		if told > v || v-told >= 1 {
			t.Fatalf("told %v of %v", told, v)
		}
	}
}

// A gauge that is no more is 0 at a server that would show its last value for
// ever, and is not told where none is shown that is not sent.
func TestSink_gauges(t *testing.T) {
	r := plainRig(t, statsd.Options{})
	r.want(gauge(5), "level:5|g")
	r.want(gauge(5), "level:5|g")
	r.want(nil, "level:0|g")
	r.want(nil)
	r.want(gauge(-2), "level:0|g", "level:-2|g")
	r.want(gauge(math.Copysign(0, -1)), "level:0|g")
	r.want(gauge(4.6968460083008e-5), "level:0.000046968460083008|g")
	keep, dog := plainRig(t, statsd.Options{KeepGauges: true}), dogRig(t, statsd.DogOptions{})
	for _, r := range []*rig{keep, dog} {
		r.want(gauge(5), "level:5|g")
		r.want(nil)
	}
	if sent, _ := r.send(gauge(math.NaN())...); len(sent.Dropped) != 1 || sent.Points != 0 {
		t.Errorf("%+v: want NaN dropped", sent)
	}
}

// With the process all gauges end.
func TestSink_End(t *testing.T) {
	r := plainRig(t, statsd.Options{})
	r.send(append(gauge(5), counter(1, start)...)...)
	if _, err := r.End(t.Context(), r.at.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(waitFor(t, r.to, "level:0|g"), "\n")
	slices.Sort(got)
	if want := []string{"barrier:0|g", "level:0|g"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	keep := plainRig(t, statsd.Options{KeepGauges: true})
	keep.send(gauge(5)...)
	if sent, err := keep.End(t.Context(), keep.at.Add(time.Second)); err != nil || sent.Points != 0 {
		t.Errorf("%+v, %v", sent, err)
	}
}

// A port that nobody listens at takes nothing: what it was sent, and said so of,
// is told when somebody listens there.
func TestSink_closedPort(t *testing.T) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	address := c.LocalAddr().(*net.UDPAddr)
	c.Close()
	s, err := statsd.New(statsd.Options{Address: address.String(), Started: start, Name: "${name}.${values}", MaxPacket: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all := func(v float64) []series.Family {
		f := family("n_total", series.Counter, "")
		for i := range 200 {
			l := []series.Label{{Name: "i", Value: fmt.Sprint(i)}}
			f.Points = append(f.Points, series.Point{Value: v, Start: start, Labels: l, Key: series.Key(f.Name, l)})
		}
		return []series.Family{f, barrier(int(v))}
	}
	lost, failed := 0, false
	for v := range 5 {
		sent, err := s.Send(t.Context(), start.Add(time.Duration(v)*time.Second), all(float64(v)))
		lost += sent.Points
		failed = failed || errors.Is(err, cimeter.ErrUnavailable)
	}
	if !failed {
		t.Error("a closed port is not noticed")
	}
	to := &packets{}
	if c, err = net.ListenUDP("udp", address); err != nil {
		t.Fatal(err)
	}
	to.serve(t, c)
	for v, sent := 5, (series.Sent{}); sent.Points < 201; v++ {
		sent, _ = s.Send(t.Context(), start.Add(time.Duration(v)*time.Second), all(float64(5)))
	}
	sum := 0.0
	for _, l := range lines(to.take(t, 5)) {
		p, err := parseLine(l, false)
		if err != nil {
			t.Fatal(err)
		}
		sum += p.value
	}
	if sum > 200*5 || lost == 0 && sum != 200*5 {
		t.Errorf("%v arrived of 1000, though %d points were said to be sent before", sum, lost)
	}
}

// Two gauges of one name would be shown in turn: one is told, the other counted,
// until the first one is forgotten.
func TestSink_takenName(t *testing.T) {
	r := plainRig(t, statsd.Options{Name: "${name}"})
	two := one(family("level", series.Gauge, "", series.Point{Value: 1, Labels: []series.Label{{Name: "a", Value: "1"}}}, series.Point{Value: 2, Labels: []series.Label{{Name: "a", Value: "2"}}}))
	sent, got := r.send(two...)
	if want := []series.Drop{{Reason: "name_taken", Points: 1}}; !slices.Equal(got, []string{"level:1|g"}) || !reflect.DeepEqual(sent.Dropped, want) || sent.Points != 1 {
		t.Errorf("%q, %+v: want the first one told and %v", got, sent, want)
	}
	second := one(series.Family{Name: "level", Kind: series.Gauge, Points: two[0].Points[1:]})
	r.send(second...)
	r.at = r.at.Add(2 * time.Hour)
	r.send(second...)
	r.want(second, "level:2|g")
}

// Observations are told one by one where they can be known, and else so that
// their number, their bucket and their sum are right.
func TestSink_observations(t *testing.T) {
	h := func(sum float64, counts ...uint64) []series.Family {
		return one(family("d_seconds", series.Histogram, "seconds", series.Point{
			Start: start, Buckets: &series.Buckets{Bounds: []float64{1, 10, 100}, Counts: counts, Sum: sum}}))
	}
	r := plainRig(t, statsd.Options{})
	r.want(h(0, 0, 0, 0, 0))
	r.want(h(5.8, 0, 1, 0, 0), "d_seconds:5800|ms")
	r.want(h(5.8, 0, 1, 0, 0))
	r.want(h(7205.8, 0, 1, 0, 1), "d_seconds:7200000|ms")
	r.want(h(7209.9, 1, 2, 0, 1), "d_seconds:310|ms", "d_seconds:3790|ms") // between 0 and 1, 1 and 10; 4.1 in all
	r.want(h(7215.9, 1, 5, 0, 1), "d_seconds:2000|ms|@0.3333333333333333")
	r.want(h(3, 0, 1, 0, 0), "d_seconds:3000|ms") // started again
	dog := dogRig(t, statsd.DogOptions{Tags: []string{"env:ci"}})
	dog.want(h(0.4+7200, 1, 0, 0, 1), "d_seconds:0.5|d|#env:ci", "d_seconds:7199.9|d|#env:ci")
	counters := plainRig(t, statsd.Options{CountHistograms: true})
	counters.want(h(8, 2, 1, 0, 0), "d_seconds_count:3|c", "d_seconds_sum:8|c", "d_seconds_bucket.1:2|c", "d_seconds_bucket.10:3|c", "d_seconds_bucket.100:3|c")
	counters.want(h(8.5, 3, 1, 0, 0), "d_seconds_count:1|c", "d_seconds_sum:0.5|c", "d_seconds_bucket.1:1|c", "d_seconds_bucket.10:1|c", "d_seconds_bucket.100:1|c")
	// Parts that do not belong together, and a metric that becomes another one.
	if sent, got := counters.send(h(8.5, 3, 1)...); len(got) > 0 || len(sent.Dropped) != 1 {
		t.Errorf("%q, %+v: want it dropped", got, sent)
	}
	counters.want(one(family("d_seconds", series.Counter, "seconds", series.Point{Value: 3, Start: start})), "d_seconds:0|c")
	counters.want(one(family("d_seconds", series.Gauge, "seconds", series.Point{Value: 3})), "d_seconds:3|g")
}

func TestSink_summary(t *testing.T) {
	q := func(sum float64, n uint64, median float64) []series.Family {
		return one(family("s_bytes", series.Summary, "bytes", series.Point{
			Start: start, Quantiles: &series.Quantile{Ranks: []float64{0.5}, Values: []float64{median}, Sum: sum, Count: n}}))
	}
	r := plainRig(t, statsd.Options{})
	r.want(q(0, 0, math.NaN()), "s_bytes_count:0|c", "s_bytes_sum:0|c")
	r.want(q(12, 3, 4), "s_bytes_count:3|c", "s_bytes_sum:12|c", "s_bytes.0_5:4|g")
	r.want(nil, "s_bytes.0_5:0|g")
}

// No packet is longer than it may be, none has room for the next line, and what
// fits into none is dropped and counted.
func TestSink_packets(t *testing.T) {
	for _, network := range []string{"udp", "unixgram", "unix"} {
		for _, limit := range []int{0, 256, 512, 1432, 8932} {
			t.Run(fmt.Sprint(network, limit), func(t *testing.T) {
				to := listen(t, network)
				s, err := statsd.NewDog(statsd.DogOptions{Address: to.address, MaxPacket: limit, Started: start})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if limit == 0 && network == "udp" {
					limit = 1432
				} else if limit == 0 {
					limit = 8192
				}
				var points []series.Point
				long := 0
				for i := range 1000 {
					n := i * 7 % 150
					if i%100 == 99 {
						n, long = limit, long+1
					}
					points = append(points, series.Point{Value: float64(i), Labels: []series.Label{{Name: "l", Value: fmt.Sprint(i, strings.Repeat("x", n))}}})
				}
				sent, err := s.Send(t.Context(), start, []series.Family{family("level", series.Gauge, "", points...), barrier(1)})
				if want := (series.Sent{Points: 1001 - long, Dropped: []series.Drop{{Reason: "too_long", Points: long}}}); err != nil || !reflect.DeepEqual(sent, want) {
					t.Fatalf("%+v, %v: want %+v", sent, err, want)
				}
				got := to.take(t, 1)
				if n := len(lines(got)); n != 1000-long {
					t.Errorf("%d lines, want %d", n, 1000-long)
				}
				for i, p := range got {
					if len(p) > limit || strings.HasSuffix(p, "\n") {
						t.Errorf("packet %d has %d bytes, want at most %d and no line break at its end", i, len(p), limit)
					}
					if i+1 < len(got) {
						next, _, _ := strings.Cut(got[i+1], "\n")
						if len(p)+1+len(next) <= limit {
							t.Errorf("packet %d has %d bytes and room for the %d of the next line", i, len(p), len(next))
						}
					}
				}
			})
		}
	}
}

// The origin stands behind metrics of DogStatsD when it is given, and nothing of
// it, nor a tag, ever in plain StatsD.
func TestSink_tagsAndOrigin(t *testing.T) {
	labels := []series.Label{{Name: "project", Value: "a,b|c\nd#e:f@g"}, {Name: "env", Value: "own"}}
	o := statsd.Origin{ContainerID: "in-4242", ExternalData: "it-false,cn-a,pu-1", Cardinality: "low"}
	r := dogRig(t, statsd.DogOptions{Prefix: "ci.", Tags: []string{"env:ci", "team", "team"}, Origin: o})
	if _, err := r.Send(t.Context(), start, append(counter(1, start, labels...), series.Family{Name: "barrier", Kind: series.Gauge, Points: []series.Point{{Key: "b", Value: 1}}})); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(waitFor(t, r.to, "ci.barrier:1|g"), "\n")[0]
	want := "ci.n_total:1|c|#project:a_b_c_d_e:f@g,env:own,team|c:in-4242|e:it-false,cn-a,pu-1|card:low"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	bare := dogRig(t, statsd.DogOptions{})
	bare.want(counter(1, start), "n_total:1|c") // no empty list of tags
	plainRig(t, statsd.Options{}).want(counter(1, start, labels...), "n_total.a_b_c_d_e_f_g_c21ad0d8.own:1|c")
}

// Many machines send to one server: a series that does not say whose it is says
// so by name or tag.
func TestSink_labels(t *testing.T) {
	fixed := []series.Label{{Name: "machine", Value: "ci,7"}, {Name: "pool", Value: "p"}}
	own := series.Label{Name: "machine", Value: "ci-8"}
	r := plainRig(t, statsd.Options{Labels: fixed, Name: "${machine}.${name}.${labels}"})
	if _, err := r.Send(t.Context(), start, append(counter(1, start), counter(1, start, own)...)); err != nil {
		t.Fatal(err)
	}
	if got, want := waitFor(t, r.to, "ci-8"), "ci_7.n_total.pool.p:1|c\nci-8.n_total.pool.p:1|c"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r = dogRig(t, statsd.DogOptions{Labels: fixed, Tags: []string{"pool:mine"}})
	if _, err := r.Send(t.Context(), start, append(counter(1, start), counter(1, start, own)...)); err != nil {
		t.Fatal(err)
	}
	if got, want := waitFor(t, r.to, "ci-8"), "n_total:1|c|#machine:ci_7,pool:mine\nn_total:1|c|#machine:ci-8,pool:mine"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func waitFor(t *testing.T, p *packets, text string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		p.mu.Lock()
		all := strings.Join(p.all, "\n")
		p.mu.Unlock()
		if strings.Contains(all, text) {
			return all
		}
	}
	t.Fatalf("no %q", text)
	return ""
}

func TestNew_failure(t *testing.T) {
	for name, try := range map[string]func() (*statsd.Sink, error){
		"no address":          func() (*statsd.Sink, error) { return statsd.New(statsd.Options{}) },
		"no port":             func() (*statsd.Sink, error) { return statsd.New(statsd.Options{Address: "host"}) },
		"relative socket":     func() (*statsd.Sink, error) { return statsd.NewDog(statsd.DogOptions{Address: "unix://s"}) },
		"large packets":       func() (*statsd.Sink, error) { return statsd.New(statsd.Options{Address: "h:1", MaxPacket: 65508}) },
		"a name without name": func() (*statsd.Sink, error) { return statsd.New(statsd.Options{Address: "h:1", Name: "x"}) },
		"half a field":        func() (*statsd.Sink, error) { return statsd.New(statsd.Options{Address: "h:1", Name: "${name}${"}) },
		"a colon":             func() (*statsd.Sink, error) { return statsd.New(statsd.Options{Address: "h:1", Name: "a:${name}"}) },
		"a tag of two": func() (*statsd.Sink, error) {
			return statsd.NewDog(statsd.DogOptions{Address: "h:1", Tags: []string{"a,b"}})
		},
		"a prefix with a bar": func() (*statsd.Sink, error) { return statsd.NewDog(statsd.DogOptions{Address: "h:1", Prefix: "a|"}) },
		"an origin of two fields": func() (*statsd.Sink, error) {
			return statsd.NewDog(statsd.DogOptions{Address: "h:1", Origin: statsd.Origin{ContainerID: "a|b"}})
		},
		"a cardinality": func() (*statsd.Sink, error) {
			return statsd.NewDog(statsd.DogOptions{Address: "h:1", Origin: statsd.Origin{Cardinality: "all"}})
		},
	} {
		if s, err := try(); !errors.Is(err, cimeter.ErrInvalid) || s != nil {
			t.Errorf("%s: %v, %v: want invalid", name, s, err)
		}
	}
}

// A receiver that reads nothing holds a send up until its deadline and no
// longer; what was not sent then is told when it reads again.
func TestSink_hangingReceiver(t *testing.T) {
	to := &packets{read: make(chan struct{})}
	to.listen(t, "unixgram")
	s, err := statsd.NewDog(statsd.DogOptions{Address: to.address, Started: start, MaxPacket: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all := func(v float64) []series.Family {
		f := family("n_total", series.Counter, "")
		for i := range 5000 {
			l := []series.Label{{Name: "i", Value: fmt.Sprint(i)}}
			f.Points = append(f.Points, series.Point{Value: v, Start: start, Labels: l, Key: series.Key(f.Name, l)})
		}
		return []series.Family{f, barrier(int(v))}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	sent, err := s.Send(ctx, start, all(1))
	if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cimeter.ErrUnavailable) || sent.Points >= 5001 {
		t.Fatalf("%+v, %v: want the deadline and some points", sent, err)
	}
	close(to.read)
	if sent, err := s.Send(t.Context(), start.Add(time.Minute), all(2)); err != nil || sent.Points != 5001 {
		t.Fatalf("%+v, %v", sent, err)
	}
	sums := map[string]float64{}
	for _, l := range lines(to.take(t, 2)) {
		p, err := parseLine(l, true)
		if err != nil {
			t.Fatal(err)
		}
		sums[p.tags[0]] += p.value
	}
	for i := range 5000 {
		if v := sums[fmt.Sprint("i:", i)]; v != 2 {
			t.Fatalf("counter %d arrived as %v, want 2", i, v)
		}
	}
}

// Check tells a server that is there from one that is not, and sends nothing
// that could be taken for a metric.
func TestSink_Check(t *testing.T) {
	for _, network := range []string{"udp", "unixgram", "unix"} {
		to := listen(t, network)
		s, err := statsd.NewDog(statsd.DogOptions{Address: to.address})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := s.Check(t.Context()); err != nil || !strings.Contains(found, strings.TrimPrefix(strings.TrimPrefix(to.address, "unix://"), "unixstream://")) {
			t.Errorf("%s: %q, %v", network, found, err)
		}
		s.Close()
		to.mu.Lock()
		if got := strings.Join(to.all, ""); got != "" {
			t.Errorf("%s: %q was sent", network, got)
		}
		to.mu.Unlock()
	}
	for _, address := range []string{"unix:///nonexistent/s", "unixstream:///nonexistent/s", "name.invalid:8125"} {
		s, err := statsd.NewDog(statsd.DogOptions{Address: address})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := s.Check(t.Context()); !errors.Is(err, cimeter.ErrUnavailable) || found != "" {
			t.Errorf("%s: %q, %v: want unavailable", address, found, err)
		}
	}
}
