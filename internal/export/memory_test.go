package export_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/export"
	"github.com/cimeter/cimeter/internal/output/otlp"
	"github.com/cimeter/cimeter/internal/output/remotewrite"
	"github.com/cimeter/cimeter/internal/output/statsd"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// hanging is a receiver of HTTP that takes a request and never answers.
type hanging struct{}

// Post implements the Poster of otlp and of remotewrite.
func (hanging) Post(ctx context.Context, _ string, _ http.Header, _ []byte) (http.Header, []byte, error) {
	<-ctx.Done()
	return nil, nil, fmt.Errorf("post: %w: %w", ctx.Err(), cimeter.ErrUnavailable)
}

// load is 10,000 series, of which 100 are replaced by new ones each round.
type load struct {
	round  int
	points []series.Point
}

const (
	loadSeries   = 10_000
	loadChanged  = 100
	loadInterval = time.Minute
)

func (l *load) families() []series.Family {
	if l.points == nil {
		l.points = make([]series.Point, 0, loadSeries)
		for i := range loadSeries {
			l.points = append(l.points, point(i))
		}
	}
	for i := range loadChanged {
		l.points[(l.round*loadChanged+i)%loadSeries] = point(loadSeries + l.round*loadChanged + i)
	}
	l.round++
	points := append([]series.Point(nil), l.points...) // what is given may be kept
	for i := range points {
		points[i].Value = float64(l.round)
	}
	half := len(points) / 2
	return []series.Family{{Name: "level", Kind: series.Gauge, Points: points[:half]}, {Name: "n_total", Kind: series.Counter, Points: points[half:]}}
}

func point(n int) series.Point {
	labels := []series.Label{{Name: "series", Value: fmt.Sprint("s", n)}, {Name: "project", Value: "group/app"}}
	return series.Point{Key: series.Key("m", labels), Labels: labels, Start: time.Unix(1, 0)}
}

// unread returns addresses of sockets that nobody reads.
func unread(t *testing.T) (udp, unixgram string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cimeter-export-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	g, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close(); g.Close(); os.RemoveAll(dir) })
	return u.LocalAddr().String(), "unix://" + path
}

func heap() int {
	runtime.GC()
	runtime.GC() // what the first one's finalizers let go of
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Receivers that hang for two hours and a half, with 10,000 series and 10 builds a
// minute, cost memory for what is kept on purpose and no more: it does not grow
// once that is full, and what went is counted.
func TestExporter_memoryOfHangingReceivers(t *testing.T) {
	udp, unixgram := unread(t)
	plain, err := statsd.New(statsd.Options{Address: udp})
	if err != nil {
		t.Fatal(err)
	}
	dog, err := statsd.NewDog(statsd.DogOptions{Address: unixgram})
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	synctest.Test(t, func(t *testing.T) {
		o := otlp.Options{To: hanging{}}
		table := tally.New(tally.Options{})
		var l load
		x := export.New(export.Options{
			Tally: table, Sources: []func() []series.Family{l.families},
			Targets: []export.Target{
				{Name: "statsd", Metrics: plain, Interval: loadInterval, Close: plain.Close},
				// Its writes wait in the kernel, by the clock of the machine.
				{Name: "dogstatsd", Metrics: dog, Interval: loadInterval, Timeout: 10 * time.Millisecond, Close: dog.Close},
				{Name: "otlp", Metrics: otlp.New(o), Interval: loadInterval, Records: otlp.NewTraces(o)},
				{Name: "remote_write", Metrics: remotewrite.New(remotewrite.Options{To: hanging{}, MaxBytes: 4 << 20}), Interval: loadInterval},
			},
		}, slog.New(slog.DiscardHandler))
		records := x.After(&kept{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- x.Run(ctx) }()
		builds := 0
		rounds := func(n int) int {
			for range n {
				for range 10 {
					builds++
					r := record(builds)
					r.URL = strings.Repeat("x", 25<<10)
					if err := records.Put(r); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(loadInterval)
			}
			return heap() - before
		}
		// The bounds: 4 MiB of samples, 256 records of 25 KiB, the series that each of
		// four outputs remembers, and those that came and went within an hour.
		const full, growth = 96 << 20, 8 << 20
		first := rounds(80) // everything that is bounded by bytes or by an hour is full
		last := rounds(70)
		t.Logf("%d MiB after 80 rounds, %d MiB after 150", first>>20, last>>20)
		if first > full || last-first > growth {
			t.Errorf("%d MiB after 80 rounds and %d after 150: want at most %d, and %d more", first>>20, last>>20, full>>20, growth>>20)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, drop := range [][2]string{
			{"dogstatsd", "held_off"}, {"dogstatsd", "failed"}, {"otlp", "held_off"}, {"otlp", "failed"}, {"otlp", "queue"}, {"remote_write", "queue"},
		} {
			if n, _ := table.Value(catalog.OutputDropped, drop[0], drop[1]).Get(); n == 0 {
				t.Errorf("%s dropped nothing for the reason %s", drop[0], drop[1])
			}
		}
	})
}
