package remotewrite_test

import (
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/cimeter/cimeter/internal/output/remotewrite"
	"github.com/cimeter/cimeter/internal/series"
)

// Whatever a build, or another program's page, calls its labels and values: the
// request can be read, labels are sorted and legal, and no series is forged.
// decode, which the receiver calls, checks the order and that none is empty.
func FuzzOutput_Send(f *testing.F) {
	f.Add("stage", "a\"\\\n\xff", "le", "0.5")
	f.Add("__name__", "forged", "job", "")
	f.Add("größe", "x", "a.b", "\x00")
	f.Add("Z", "1", "", "2")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		r := newReceiver(t, takesBoth)
		labels := []series.Label{{Name: name1, Value: value1}, {Name: name2, Value: value2}}
		for _, p := range []remotewrite.Protocol{remotewrite.V1, remotewrite.V2} {
			o := output(t, r.URL, remotewrite.Options{Protocol: p})
			sent := send(t, o, after(1), series.Family{Name: "h", Kind: series.Histogram, Points: []series.Point{{
				Labels: labels, Buckets: &series.Buckets{Bounds: []float64{1}, Counts: []uint64{1, 1}, Sum: 2},
			}}})
			if sent.Points != 4 {
				t.Errorf("%+v", sent)
			}
		}
		for _, s := range r.samples {
			if !strings.HasPrefix(s.series, "h_") || !utf8.ValidString(s.series) {
				t.Errorf("series %q", s.series)
			}
			_, list, _ := strings.Cut(s.series, "{")
			name, _, _ := strings.Cut(list, "=")
			if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
				t.Errorf("label %q", name)
			}
		}
	})
}

// Values are kept while a send runs.
func TestOutput_Keep_whileSending(t *testing.T) {
	r := newReceiver(t, takesBoth)
	o := output(t, r.URL, remotewrite.Options{})
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for i := range 200 {
			o.Keep(after(i), []series.Family{many(50), counter("a_total", float64(i))})
		}
	})
	total := 0
	for sending := true; sending; {
		select {
		case <-done:
			sending = false
		default:
		}
		sent, err := o.Send(t.Context(), after(0), nil)
		if err != nil {
			t.Fatal(err)
		}
		total += sent.Points
	}
	wg.Wait()
	sent, err := o.Send(t.Context(), after(0), nil)
	if total += sent.Points; err != nil || total != 200*51 {
		t.Errorf("%d samples arrived, %v: want %d", total, err, 200*51)
	}
}
