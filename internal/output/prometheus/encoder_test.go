package prometheus_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/output/prometheus"
	"github.com/cimeter/cimeter/internal/tally"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestEncoder_golden(t *testing.T) {
	e := prometheus.New(smallTable())
	for file, format := range map[string]prometheus.Format{
		"testdata/small.text.golden":        prometheus.Text,
		"testdata/small.openmetrics.golden": prometheus.OpenMetrics,
	} {
		got := encode(t, e, format)
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
			for i := range min(len(g), len(w)) {
				if g[i] != w[i] {
					t.Errorf("%s:%d: got\n%s\nwant\n%s", file, i+1, g[i], w[i])
					break
				}
			}
			t.Errorf("%s: got %d lines, want %d; -update writes it anew", file, len(g), len(w))
		}
		if again := encode(t, e, format); !bytes.Equal(again, got) {
			t.Errorf("%s: a second scrape differs", file)
		}
	}
}

// A label or a reading that is not known is left out, never written empty, and
// one label set's never show in another's.
func TestEncoder_absentIsLeftOut(t *testing.T) {
	text := string(encode(t, prometheus.New(smallTable()), prometheus.Text))
	if strings.Contains(text, `=""`) {
		t.Error("an empty label value")
	}
	for _, want := range []string{
		"\ncimeter_stage_io_operations_total{direction=\"read\"} 41\n",
		"\ncimeter_builds_running{} 1\n",
		"\ncimeter_stage_cpu_seconds_total{ci=\"drone\",project=\"14\\\" re\\\\gistry\",stage=\"line\\nfeed\ttab \uFFFDC ä\",mode=\"user\"} 0.000000001\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q", want)
		}
	}
	empty := string(encode(t, prometheus.New(tally.New(tally.Options{})), prometheus.Text))
	if strings.Contains(empty, "cimeter_stage") || strings.Contains(empty, "cimeter_agent_coverage_ratio") {
		t.Errorf("metrics without a value:\n%s", empty)
	}
}

// What OpenMetrics 1.0 asks beyond the text format.
func TestEncoder_openMetrics(t *testing.T) {
	text := string(encode(t, prometheus.New(smallTable()), prometheus.OpenMetrics))
	if !strings.HasSuffix(text, "\n# EOF\n") || strings.Count(text, "# EOF") != 1 {
		t.Error("want # EOF at the end, once")
	}
	if strings.Contains(text, "\n\n") {
		t.Error("an empty line")
	}
	sample := regexp.MustCompile(`^([a-z0-9_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? [-+.0-9e]+$`)
	family, kind := "", ""
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "# EOF" {
			continue
		}
		if words := strings.SplitN(line, " ", 4); words[0] == "#" {
			switch words[1] {
			case "HELP":
				family = words[2]
				if seen[family] {
					t.Errorf("%s is there twice", family)
				}
				seen[family] = true
			case "TYPE":
				kind = words[3]
			case "UNIT":
				if !strings.HasSuffix(family, "_"+words[3]) {
					t.Errorf("%s: unit %s is not at the end of its name", family, words[3])
				}
			}
			if words[2] != family {
				t.Errorf("%q belongs to %s", line, family)
			}
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("%q is no sample line", line)
		}
		suffixes := map[string]string{"counter": "_total", "gauge": "", "info": "_info"}
		if suffix, ok := suffixes[kind]; ok {
			if m[1] != family+suffix {
				t.Errorf("%s of %s %s: want suffix %q", m[1], kind, family, suffix)
			}
		} else if s := strings.TrimPrefix(m[1], family); kind != "histogram" || (s != "_bucket" && s != "_sum" && s != "_count") {
			t.Errorf("%s of %s %s", m[1], kind, family)
		}
		if le := regexp.MustCompile(`le="([^"]*)"`).FindStringSubmatch(m[2]); le != nil && le[1] != "+Inf" && !strings.ContainsAny(le[1], ".e") {
			t.Errorf("%q: le is not in the canonical form", line)
		}
	}
}

func TestEncoder_infosComeAndGo(t *testing.T) {
	table := smallTable()
	e := prometheus.New(table)
	has := func(s string) bool { return strings.Contains(string(encode(t, e, prometheus.Text)), s) }
	if !has(`container_id="0942",build="gitlab/gitlab.example.com/4242"} 1`) {
		t.Error("the container is not shown")
	}
	table.SetInfo(catalog.ContainerInfo, "c2", "", "", "", "", "c2", "b")
	table.RemoveInfo(catalog.ContainerInfo, "c1")
	if has(`container_id="0942"`) || !has(`{container_id="c2",build="b"} 1`) {
		t.Error("after one came and one went")
	}
}

// The chunks that are written do not depend on where lines end, and the first
// error of the writer ends it.
func TestEncoder_chunks(t *testing.T) {
	e := prometheus.New(largeTable(20_000))
	want := encode(t, e, prometheus.Text)
	var got bytes.Buffer
	w := writerFunc(func(p []byte) (int, error) {
		if len(p) > 80<<10 {
			t.Errorf("a piece of %d bytes", len(p))
		}
		return got.Write(p)
	})
	if err := e.Encode(w, prometheus.Text); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("in pieces it is another text")
	}
	calls := 0
	gone := errors.New("gone")
	err := e.Encode(writerFunc(func([]byte) (int, error) { calls++; return 0, gone }), prometheus.Text)
	if !errors.Is(err, gone) || calls != 1 {
		t.Errorf("error %v after %d writes: want %v after 1", err, calls, gone)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A scrape allocates as much for 21 series as for 21,000: next to nothing.
func TestEncoder_allocs(t *testing.T) {
	for _, n := range []int{21, 21_000} {
		table := largeTable(n)
		table.Stage(tally.Labels{CI: "x"}).Ended(1.5, cimeter.Some(uint64(1)), cimeter.Some(0.3))
		e := prometheus.New(table)
		for _, format := range []prometheus.Format{prometheus.Text, prometheus.OpenMetrics} {
			if got := testing.AllocsPerRun(5, func() { _ = e.Encode(io.Discard, format) }); got > 2 {
				t.Errorf("%d series, format %d: %g allocations: want at most 2 for the whole scrape", n, format, got)
			}
		}
	}
}
