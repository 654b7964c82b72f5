package statsd_test

import (
	"fmt"
	"math/rand/v2"
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
	plainTo, dogTo := listen(f, "unixgram"), listen(f, "unixgram")
	n := 0
	f.Fuzz(func(t *testing.T, name, label, value string, v float64) {
		n++
		plain, err := statsd.New(statsd.Options{Address: plainTo.address, Started: start, Name: "x.${name}.${labels}"})
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		dog, err := statsd.NewDog(statsd.DogOptions{Address: dogTo.address, Started: start, Prefix: "x", Tags: []string{"fixed:1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer dog.Close()
		labels := []series.Label{{Name: "l" + label, Value: value}}
		families := []series.Family{
			family(name, series.Gauge, "", series.Point{Value: v, Labels: labels}),
			family(name+"_total", series.Counter, "", series.Point{Value: v, Labels: labels, Start: start}),
		}
		end := family("barrier", series.Gauge, "", series.Point{Value: float64(n)})
		for i, s := range []*statsd.Sink{plain, dog} {
			to := []*packets{plainTo, dogTo}[i]
			if _, err := s.Send(t.Context(), start, append(families, end)); err != nil {
				t.Fatal(err)
			}
			// The barrier's name has a prefix here.
			text := waitForFuzz(t, to, fmt.Sprintf("barrier:%d|g", n))
			for l := range strings.SplitSeq(text, "\n") {
				p, err := parseLine(l, i == 1)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(p.name, "x") {
					t.Errorf("%q: want the name to start as was said", l)
				}
				if i == 1 && !slices.Contains(p.tags, "fixed:1") {
					t.Errorf("%q: want the fixed tag", l)
				}
				if i == 1 && !strings.Contains(p.name, "barrier") && len(p.tags) != 2 {
					t.Errorf("%q: %d tags, want 2", l, len(p.tags))
				}
			}
		}
	})
}

func waitForFuzz(t *testing.T, p *packets, end string) string {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Microsecond) {
		p.mu.Lock()
		all := strings.Join(p.all, "\n")
		found := strings.Contains(all, end)
		if found {
			p.all = nil
		}
		p.mu.Unlock()
		if found {
			return all
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q in %q", end, all)
		}
	}
}

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
