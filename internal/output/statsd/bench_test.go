package statsd_test

import (
	"net"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/output/statsd"
	"github.com/cimeter/cimeter/internal/series"
)

// tenThousand makes families of some 10,000 series and a function that makes a
// third of the counters rise.
func tenThousand() (families []series.Family, rise func()) {
	table := fill(600)
	families = series.NewWalker(table, start).Families()
	return families, func() {
		for i := range families {
			f := &families[i]
			for j := range f.Points {
				if p := &f.Points[j]; p.Buckets == nil && (f.Kind == series.Gauge || j%3 == 0) {
					p.Value += 1.0625
				}
			}
		}
	}
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// What a flush of 10,000 series costs: as a share of one core at one flush in
// 10 s, kernel and garbage collection included, and as a multiple of what a plain
// loop needs that only writes the same lines into memory.
func BenchmarkSink_10kSeries(b *testing.B) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close() // nobody reads: the kernel drops what does not fit, after all the work of sending
	s, err := statsd.New(statsd.Options{Address: c.LocalAddr().String(), Started: start})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	families, rise := tenThousand()
	points := 0
	for _, f := range families {
		points += len(f.Points)
	}
	if _, err := s.Send(b.Context(), start, families); err != nil {
		b.Fatal(err)
	}
	var spent, floor time.Duration
	b.ReportAllocs()
	at := start
	for b.Loop() {
		rise()
		before := cpu(b)
		at = at.Add(10 * time.Second)
		if _, err := s.Send(b.Context(), at, families); err != nil {
			b.Fatal(err)
		}
		spent += cpu(b) - before
		before = cpu(b)
		format(families)
		floor += cpu(b) - before
	}
	flush := spent.Seconds() / float64(b.N)
	b.ReportMetric(float64(points), "series")
	b.ReportMetric(flush*1e3, "CPU-ms/flush")
	b.ReportMetric(flush/10*100, "%core")
	b.ReportMetric(spent.Seconds()/floor.Seconds(), "x-format")
}

var sunk int

// format is the floor: every series' name and value into memory.
func format(families []series.Family) {
	b := make([]byte, 0, 1<<21)
	for _, f := range families {
		for _, p := range f.Points {
			b = append(b, f.Name...)
			for _, l := range p.Labels {
				b = append(append(append(append(b, '.'), l.Name...), '.'), l.Value...)
			}
			b = strconv.AppendFloat(append(b, ':'), p.Value, 'f', -1, 64)
			b = append(b, "|c\n"...)
		}
	}
	sunk += len(b)
}

// A flush makes nothing for each series.
func TestSink_allocations(t *testing.T) {
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(socketFolder(t), "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 1<<16); ; {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}()
	defer func() { c.Close(); <-done }()
	s, err := statsd.NewDog(statsd.DogOptions{Address: "unix://" + c.LocalAddr().String(), Started: start})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	families, rise := tenThousand()
	at := start
	if n := testing.AllocsPerRun(5, func() {
		rise()
		at = at.Add(time.Second)
		if _, err := s.Send(t.Context(), at, families); err != nil {
			t.Fatal(err)
		}
	}); n > 100 {
		t.Errorf("%v allocations a flush of 10,000 series, want at most 100", n)
	}
}
