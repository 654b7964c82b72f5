package wire_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/wire"
)

func TestValidTarget(t *testing.T) {
	for address, want := range map[string]bool{
		"10.0.0.7:9808": true, ":9808": true, "ci-7.example.com:9808": true, "[fd00::7]:9808": true, "a_b:1": true,
		"": false, "ci-7": false, "ci-7:": false, "ci-7:0": false, "ci-7:080": false, "ci-7:65536": false, "ci-7:http": false,
		"ci 7:80": false, "ci-7/metrics:80": false, "http://ci-7:80": false, "a@b:80": false, "fd00::7:9808": false, "[fd00::g]:1": false,
		"a\nb:80": false, "ü:80": false, strings.Repeat("a", 300) + ":80": false,
	} {
		if got := wire.ValidTarget(address); got != want {
			t.Errorf("%q: %t, want %t", address, got, want)
		}
	}
}

func TestScrape_From(t *testing.T) {
	s := &wire.Scrape{Runner: "docker-1", Targets: []wire.Target{
		{Job: "cimeter", Address: ":9808"}, {Job: "node_exporter", Address: "127.0.0.1:9100"}, {Job: "cadvisor", Address: "ci-7:8080", Scheme: "https"},
	}}
	for host, want := range map[string][]string{
		"10.0.0.7":  {"10.0.0.7:9808", "ci-7:8080"},
		"fd00::7":   {"[fd00::7]:9808", "ci-7:8080"},
		"127.0.0.1": {"127.0.0.1:9808", "127.0.0.1:9100", "ci-7:8080"},
		"":          {":9808", "127.0.0.1:9100", "ci-7:8080"},
	} {
		var got []string
		seen := s.From(host)
		for _, target := range seen.Targets {
			got = append(got, target.Address)
		}
		if !reflect.DeepEqual(got, want) || seen.Runner != "docker-1" {
			t.Errorf("from %q: %v, want %v", host, got, want)
		}
	}
	if s.Targets[0].Address != ":9808" {
		t.Error("From changed what it was called on")
	}
	if (*wire.Scrape)(nil).From("a") != nil {
		t.Error("nothing said is not nothing")
	}
}

func TestDecodeHeartbeat_scrape(t *testing.T) {
	decode := func(scrape string) (wire.Heartbeat, error) {
		return wire.DecodeHeartbeat(strings.NewReader(`{"agent":"a","machine":"m","interval_seconds":5,"running":[],"scrape":`+scrape+`}`), "")
	}
	h, err := decode(`{"runner":"r","targets":[{"job":"cimeter","address":":9808","scheme":"https"}],"later":1}`)
	if want := (&wire.Scrape{Runner: "r", Targets: []wire.Target{{Job: "cimeter", Address: ":9808", Scheme: "https"}}}); err != nil || !reflect.DeepEqual(h.Scrape, want) {
		t.Errorf("%+v, %v", h.Scrape, err)
	}
	for _, bad := range []string{
		`{"targets":[{"job":"cimeter","address":"x"}]}`,
		`{"targets":[{"job":"","address":":1"}]}`,
		`{"targets":[{"job":"A b","address":":1"}]}`,
		`{"targets":[{"job":"a","address":":1","scheme":"file"}]}`,
		`{"runner":"` + strings.Repeat("p", 5000) + `","targets":[]}`,
		`{"targets":[` + strings.Repeat(`{"job":"a","address":":1"},`, 8) + `{"job":"a","address":":1"}]}`,
	} {
		if _, err := decode(bad); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%.80s: %v: want it refused", bad, err)
		}
	}
}

func FuzzSplitTarget(f *testing.F) {
	for _, s := range []string{"10.0.0.7:9808", ":1", "[::1]:2", "[::1%eth0]:2", "a:b:1", "[]:1", "[::1:2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, port, ok := wire.SplitTarget(s)
		if !ok {
			return
		}
		if wire.JoinTarget(host, port) != s {
			t.Errorf("%q is %q and %q", s, host, port)
		}
	})
}
