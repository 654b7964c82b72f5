package catalog_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/catalog"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

// docs/metrics.md is the catalogue.
func TestDocs(t *testing.T) {
	const file = "../../docs/metrics.md"
	want := markdown()
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the catalogue says: run go test ./internal/catalog -update", file)
	}
}

func markdown() []byte {
	var b bytes.Buffer
	b.WriteString(`# Metrics

<!-- Made from internal/catalog: go test ./internal/catalog -update -->

Served at ` + "`/metrics`" + ` as Prometheus text 0.0.4 or OpenMetrics 1.0, whichever the scraper asks for.

- A counter belongs to a label set, not to a build: it goes on rising when the next build of the same labels runs, and
  never falls while the process lives.
- What is not known is absent: a reading that the kernel or the runtime does not give has no series, and a label without a
  value is left out.
- A label value is at most 200 characters of valid UTF-8; what is longer is cut, bytes that are not text become U+FFFD.
- The number of series is bounded by a budget (20,000 unless configured). A label set reserves all series that it can ever
  have. One that finds no room is counted under ` + "`#other#`" + ` as its project, runner and stage;
  ` + "`" + catalog.AgentSeriesFolded + "`" + ` says how often.
`)
	for _, section := range []struct {
		title string
		has   func(m catalog.Metric) bool
	}{
		{"Stages", func(m catalog.Metric) bool { return m.Scope == catalog.Stage }},
		{"Builds", func(m catalog.Metric) bool { return m.Scope == catalog.Build && m.Kind != catalog.Info }},
		{"Machine and containers", func(m catalog.Metric) bool { return m.Name == catalog.ContainerInfo || m.Name == catalog.MachineCPU }},
		{"The program about itself", func(m catalog.Metric) bool { return m.Scope == catalog.Program && m.Name != catalog.MachineCPU }},
	} {
		fmt.Fprintf(&b, "\n## %s\n", section.title)
		for _, m := range catalog.Metrics() {
			if section.has(m) {
				describe(&b, m)
			}
		}
	}
	return b.Bytes()
}

func describe(b *bytes.Buffer, m catalog.Metric) {
	fmt.Fprintf(b, "\n### `%s`\n\n%s\n\n- kind: %s\n", m.Name, m.Help, m.Kind)
	if m.Unit != "" {
		fmt.Fprintf(b, "- unit: %s\n", m.Unit)
	}
	if len(m.Labels) > 0 {
		fmt.Fprintf(b, "- labels: `%s`\n", strings.Join(m.Labels, "`, `"))
	}
	if own := m.Own(); len(own) > 0 && len(m.Series) > 0 {
		var sets []string
		for _, s := range m.Series {
			var set []string
			for i, v := range s.Values {
				set = append(set, own[i]+"="+strconv.Quote(v))
			}
			sets = append(sets, "`{"+strings.Join(set, ", ")+"}`")
		}
		fmt.Fprintf(b, "- series: %s\n", strings.Join(sets, ", "))
	}
	if len(m.Buckets) > 0 {
		var bounds []string
		for _, f := range m.Buckets {
			bounds = append(bounds, strconv.FormatFloat(f, 'f', -1, 64))
		}
		fmt.Fprintf(b, "- buckets: %s\n", strings.Join(bounds, ", "))
	}
	if m.OptIn {
		b.WriteString("- only when asked for\n")
	}
}
