package statsd_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/output/statsd"
	"github.com/cimeter/cimeter/internal/series"
)

// Whatever a label's name or value is, what is sent can be read in one way only,
// and no two series become one that are told apart by more than punctuation.
func FuzzSink_names(f *testing.F) {
	for _, s := range [][3]string{
		{"rnode.gas_rate_validator_-1:8000000000000000", "env", "production,env:production"},
		{"faktory.jobs.BareStripe::WebhookReceiverWorker.perform", "job", "a|c\nb:1|c"},
		{"foo,url=http://www.google.com", "a#b", "@0.1"}, {"", "", ""}, {"...", ".", "."},
		{"m", "project", "项目一"}, {"m", "project", "\xff\xfe"}, {"m", "project", "${name}"}, {"m", "le", "\u2028\u0085\r"},
	} {
		f.Add(s[0], s[1], s[2], 1.5)
	}
	f.Fuzz(func(t *testing.T, name, label, value string, v float64) {
		plain, err := statsd.New(statsd.Options{Address: "unix:///none", Started: start, Name: "x.${name}.${labels}"})
		if err != nil {
			t.Fatal(err)
		}
		dog, err := statsd.NewDog(statsd.DogOptions{Address: "unix:///none", Started: start, Prefix: "x", Tags: []string{"fixed:1"}})
		if err != nil {
			t.Fatal(err)
		}
		labels := []series.Label{{Name: "l" + label, Value: value}}
		families := []series.Family{
			family(name, series.Gauge, "", series.Point{Value: v, Labels: labels}),
			family(name+"_total", series.Counter, "", series.Point{Value: v, Labels: labels, Start: start}),
			family("last", series.Gauge, "", series.Point{Value: 7}),
		}
		for i, s := range []*statsd.Sink{plain, dog} {
			to := &memory{}
			s.Onto(to)
			if _, err := s.Send(t.Context(), start, families); err != nil {
				t.Fatal(err)
			}
			told, last := false, []string{"x.last:7|g", "xlast:7|g"}
			for l := range strings.SplitSeq(strings.Join(to.packets, "\n"), "\n") {
				p, err := parseLine(l, i == 1)
				if err != nil {
					t.Fatal(err)
				}
				told = told || strings.HasPrefix(l, last[i])
				if !strings.HasPrefix(p.name, "x") {
					t.Errorf("%q: want the name to start as was said", l)
				}
				if i == 1 && !slices.Contains(p.tags, "fixed:1") {
					t.Errorf("%q: want the fixed tag", l)
				}
				if i == 1 && p.name != "xlast" && len(p.tags) != 2 {
					t.Errorf("%q: %d tags, want 2", l, len(p.tags))
				}
			}
			if !told {
				t.Errorf("%q: want the last gauge too", to.packets)
			}
		}
	})
}

// memory is a connection that keeps what is sent: a fuzz target that waits for
// sockets and other goroutines covers other lines each time it runs, and the
// engine then spends minutes to minimize what is no finding.
type memory struct {
	net.Conn
	packets []string
}

func (m *memory) Write(b []byte) (int, error) {
	m.packets = append(m.packets, string(b))
	return len(b), nil
}

func (m *memory) SetWriteDeadline(time.Time) error { return nil }

// However a histogram grows, the number of observations that were told is the
// histogram's, each lies in its bucket, and their sum is right where no bucket
// is without an upper edge.
func TestSink_observationsProperty(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	rig := dogRig(t, statsd.DogOptions{})
	bounds := []float64{0.5, 1, 2, 4, 8, 16, 32}
	b := &series.Buckets{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
	told := make([]uint64, len(bounds)+1)
	sum := 0.0
	for range 300 {
		for range r.IntN(6) {
			x := r.Float64() * 40
			i, _ := slices.BinarySearch(bounds, x)
			b.Counts[i]++
			b.Sum += x
		}
		f := family("d_seconds", series.Histogram, "seconds", series.Point{Start: start, Buckets: b})
		_, got := rig.send(f)
		for _, l := range got {
			p, err := parseLine(l, true)
			if err != nil {
				t.Fatal(err)
			}
			n := uint64(1)
			if p.rate != "" {
				var rate float64
				fmt.Sscan(p.rate, &rate)
				n = uint64(1 / rate)
			}
			i, _ := slices.BinarySearch(bounds, p.value)
			// A value that is an edge may stand for the bucket above.
			for told[i] == b.Counts[i] && i+1 < len(told) {
				i++
			}
			told[i] += n
			sum += float64(n) * p.value
		}
		if !slices.Equal(told, b.Counts) {
			t.Fatalf("told %v of %v by %q", told, b.Counts, got)
		}
		if sum < b.Sum*(1-1e-9)-1e-9 || sum > b.Sum*(1+1e-9)+1e-9 {
			t.Fatalf("told %v in all, want %v", sum, b.Sum)
		}
	}
}
