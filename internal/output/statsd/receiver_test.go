package statsd_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/testtools"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// exporter is a real statsd_exporter.
type exporter struct {
	udp, unix string // addresses of sinks
	page      string
}

func startExporter(t testing.TB, mapping string) *exporter {
	t.Helper()
	dir, err := os.MkdirTemp("", "cimeter-statsd-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "mapping.yaml")
	if err := os.WriteFile(file, []byte(mapping), 0o600); err != nil {
		t.Fatal(err)
	}
	p := testtools.Start(t, testtools.StatsdExporter,
		"--web.listen-address=127.0.0.1:0", "--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp=",
		"--statsd.listen-unixgram="+socket, "--statsd.unixsocket-mode=700", "--statsd.read-buffer=4194304",
		"--statsd.event-flush-interval=5ms", "--statsd.mapping-config="+file)
	return &exporter{
		udp:  fmt.Sprintf("127.0.0.1:%d", p.Ports(t, "udp", 1)[0]),
		unix: "unix://" + socket,
		page: fmt.Sprintf("http://127.0.0.1:%d/metrics", p.Ports(t, "tcp", 1)[0]),
	}
}

// values are what the exporter shows, by name and labels, once it shows n for
// the gauge that was sent last.
func (e *exporter) values(t testing.TB, last string, n int) map[string]float64 {
	t.Helper()
	want := fmt.Sprintf("\n%s %d\n", last, n)
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if strings.Contains(e.text(t), want) {
			return e.scrape(t) // the page before may have been begun earlier
		} else if time.Now().After(end) {
			t.Fatalf("the exporter does not show %q", want)
		}
	}
}

func barrier(n int) series.Family {
	return family("barrier", series.Gauge, "", series.Point{Value: float64(n)})
}

func (e *exporter) text(t testing.TB) string {
	t.Helper()
	resp, err := http.Get(e.page)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (e *exporter) scrape(t testing.TB) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(e.text(t)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			slices.Sort(labels)
			key := "{" + strings.Join(labels, ",") + "}"
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				out[name+key] = m.Counter.GetValue()
			case dto.MetricType_GAUGE:
				out[name+key] = m.Gauge.GetValue()
			case dto.MetricType_HISTOGRAM:
				out[name+"_count"+key], out[name+"_sum"+key] = float64(m.Histogram.GetSampleCount()), m.Histogram.GetSampleSum()
				for _, b := range m.Histogram.Bucket {
					out[fmt.Sprintf("%s_bucket%s %v", name, key, b.GetUpperBound())] = float64(b.GetCumulativeCount())
				}
			}
		}
	}
	return out
}

// packets is a receiver that keeps what it is sent.
type packets struct {
	address string
	mu      sync.Mutex
	all     []string
	read    chan struct{} // not nil: nothing is read until it is closed
}

// listen starts a receiver of that network: udp, unixgram or unix.
func listen(t testing.TB, network string) *packets {
	t.Helper()
	p := &packets{}
	p.listen(t, network)
	return p
}

func (p *packets) listen(t testing.TB, network string) {
	t.Helper()
	switch network {
	case "udp":
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		c.SetReadBuffer(4 << 20)
		p.address = c.LocalAddr().String()
		p.serve(t, c)
	case "unixgram":
		path := filepath.Join(socketFolder(t), "s")
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		p.address = "unix://" + path
		p.serve(t, c)
	case "unix":
		path := filepath.Join(socketFolder(t), "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		p.address = "unixstream://" + path
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				wg.Go(func() { p.frames(c) })
			}
		})
		t.Cleanup(func() { l.Close(); wg.Wait() })
	}
}

func socketFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cimeter-statsd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (p *packets) serve(t testing.TB, c net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p.read != nil {
			select {
			case <-p.read:
			case <-t.Context().Done():
			}
		}
		b := make([]byte, 1<<16)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			p.keep(string(b[:n]))
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
}

func (p *packets) frames(c net.Conn) {
	defer c.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		b := make([]byte, binary.LittleEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		p.keep(string(b))
	}
}

func (p *packets) keep(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, s)
}

// take returns the packets so far, once the last of them tells barrier n, and
// forgets them.
func (p *packets) take(t testing.TB, n int) []string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		p.mu.Lock()
		all := p.all
		if len(all) > 0 && strings.Contains(all[len(all)-1], fmt.Sprintf("barrier:%d|g", n)) {
			p.all = nil
			p.mu.Unlock()
			return all
		}
		p.mu.Unlock()
		if time.Now().After(end) {
			t.Fatalf("no barrier %d in %d packets", n, len(all))
		}
		time.Sleep(time.Millisecond)
	}
}

// lines are the lines of packets, without those of barriers.
func lines(packets []string) []string {
	var out []string
	for _, p := range packets {
		for l := range strings.SplitSeq(p, "\n") {
			if !strings.HasPrefix(l, "barrier:") {
				out = append(out, l)
			}
		}
	}
	return out
}

// parsed is one line, read as the formats say and no more freely.
type parsed struct {
	name, kind, rate string
	value            float64
	tags             []string
	origin           []string
}

func parseLine(l string, dog bool) (parsed, error) {
	name, rest, ok := strings.Cut(l, ":")
	fields := strings.Split(rest, "|")
	if !ok || len(fields) < 2 || name == "" {
		return parsed{}, fmt.Errorf("%q: want NAME:VALUE|TYPE", l)
	}
	for _, c := range []byte(name) {
		if c != '.' && c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return parsed{}, fmt.Errorf("%q: byte %q in the name", l, c)
		}
	}
	p := parsed{name: name, kind: fields[1]}
	v, err := strconv.ParseFloat(fields[0], 64)
	if err != nil || strings.ContainsAny(fields[0], "eE+xXiInN_") || math.Abs(v) == 0 && strings.Contains(fields[0], "-") {
		return parsed{}, fmt.Errorf("%q: want a plain decimal", l)
	}
	p.value = v
	kinds := []string{"c", "g", "ms"}
	if dog {
		kinds = []string{"c", "g", "d"}
	}
	if !slices.Contains(kinds, p.kind) {
		return parsed{}, fmt.Errorf("%q: want a type of %v", l, kinds)
	}
	for i, f := range fields[2:] {
		switch {
		case strings.HasPrefix(f, "@") && i == 0 && p.kind != "g":
			p.rate = f[1:]
		case strings.HasPrefix(f, "#") && dog && p.tags == nil && len(f) > 1:
			p.tags = strings.Split(f[1:], ",")
		case dog && (strings.HasPrefix(f, "c:") || strings.HasPrefix(f, "e:") || strings.HasPrefix(f, "card:")):
			p.origin = append(p.origin, f)
		default:
			return parsed{}, fmt.Errorf("%q: field %q", l, f)
		}
	}
	for _, tag := range p.tags {
		if tag == "" || strings.HasPrefix(tag, ":") || strings.ContainsFunc(tag, func(r rune) bool { return r < ' ' || r == '#' || r == '|' }) {
			return parsed{}, fmt.Errorf("%q: tag %q", l, tag)
		}
	}
	return p, nil
}

func family(name string, kind series.Kind, unit string, points ...series.Point) series.Family {
	for i := range points {
		points[i].Key = series.Key(name, points[i].Labels)
	}
	return series.Family{Name: name, Kind: kind, Unit: unit, Points: points}
}
