package scrape

import (
	"bytes"
	"cmp"
	"io"
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/cimeter/cimeter/internal/series"
)

// suffixes are what the samples of a family may have behind its name.
func suffixes() []string {
	return []string{"_bucket", "_sum", "_count", "_total", "_created", "_info", "_gcount", "_gsum"}
}

// chunk is the lines of one family, in text 0.0.4.
type chunk struct {
	name string
	kind string // as in the TYPE line; "" when there is none
	help string // as in the HELP line, escapes and all
	text bytes.Buffer
	bad  bool
}

// text reads a page family by family, so that what is wrong with one costs no
// other. OpenMetrics is brought into text 0.0.4 line by line: the names of
// counters and infos, and nothing behind the value.
func (m *maker) text(body []byte, openMetrics bool) {
	chunks := map[string]*chunk{}
	var order []*chunk
	var now *chunk
	open := func(name string) {
		if now = chunks[name]; now == nil {
			now = &chunk{name: name}
			chunks[name] = now
			order = append(order, now)
		}
	}
	for line := range bytes.Lines(body) {
		text := strings.TrimSpace(string(line))
		if text == "" {
			continue
		}
		if rest, ok := strings.CutPrefix(text, "#"); ok {
			word, rest, _ := strings.Cut(strings.TrimLeft(rest, " \t"), " ")
			if word != "HELP" && word != "TYPE" {
				continue // a comment, UNIT or EOF
			}
			name, rest, _ := strings.Cut(strings.TrimLeft(rest, " \t"), " ")
			if now == nil || now.name != name {
				open(name)
			}
			if word == "TYPE" {
				now.kind = strings.TrimSpace(rest)
			} else {
				now.help = rest
			}
			continue
		}
		name := sampleName(text)
		if now == nil || !now.has(name) {
			open(name)
		}
		if openMetrics && strings.HasSuffix(name, "_created") && now.name != name {
			continue
		}
		sample, ok := withoutTail(text)
		now.bad = now.bad || !ok
		now.text.WriteString(sample + "\n")
	}
	for _, c := range order {
		m.chunk(c, openMetrics)
	}
}

func (c *chunk) has(sample string) bool {
	rest, ok := strings.CutPrefix(sample, c.name)
	return ok && (rest == "" || slices.Contains(suffixes(), rest))
}

// header returns the lines before the samples. Without a type there are none.
func (c *chunk) header(openMetrics bool) string {
	name, kind := c.name, c.kind
	if kind == "" {
		return ""
	}
	if openMetrics {
		switch kind {
		case "counter":
			name += "_total"
		case "info":
			name, kind = name+"_info", "gauge"
		case "stateset":
			kind = "gauge"
		case "unknown":
			kind = "untyped"
		}
	}
	header := "# TYPE " + name + " " + kind + "\n"
	if c.help != "" {
		header = "# HELP " + name + " " + c.help + "\n" + header
	}
	return header
}

// sampleName is the name that a sample line begins with.
func sampleName(line string) string {
	if i := strings.IndexAny(line, "{ \t"); i > 0 {
		return line[:i]
	}
	return line
}

// withoutTail returns a sample line up to its value: without time and exemplar.
// It reports false when the line has no value.
func withoutTail(line string) (string, bool) {
	at := strings.IndexAny(line, "{ \t")
	if at < 0 {
		return line, false
	}
	if line[at] == '{' {
		quoted := false
		for at++; at < len(line); at++ {
			switch c := line[at]; {
			case c == '\\' && quoted:
				at++
			case c == '"':
				quoted = !quoted
			}
			if !quoted && at < len(line) && line[at] == '}' {
				break
			}
		}
		if at >= len(line) {
			return line, false
		}
		at++
	}
	head, rest := line[:at], strings.Fields(line[at:])
	if len(rest) == 0 {
		return line, false
	}
	return head + " " + rest[0], true
}

// chunk parses the lines of one family.
func (m *maker) chunk(c *chunk, openMetrics bool) {
	if c.kind == "gaugehistogram" {
		m.skip("type")
		return
	}
	if c.bad {
		m.skip("syntax")
		return
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.MultiReader(strings.NewReader(c.header(openMetrics)), &c.text))
	if err != nil {
		m.skip("syntax")
		return
	}
	for _, f := range families {
		m.family(f)
	}
}

func (m *maker) family(f *dto.MetricFamily) {
	if !m.wanted(f.GetName()) {
		return
	}
	for _, p := range f.Metric {
		labels := make([]series.Label, 0, len(p.Label))
		for _, l := range p.Label {
			labels = append(labels, series.Label{Name: l.GetName(), Value: l.GetValue()})
		}
		point, kind := series.Point{Labels: labels}, series.Unknown
		switch {
		case p.Counter != nil:
			kind, point.Value = series.Counter, p.Counter.GetValue()
		case p.Gauge != nil:
			kind, point.Value = series.Gauge, p.Gauge.GetValue()
		case p.Histogram != nil:
			kind, point.Buckets = series.Histogram, buckets(p.Histogram)
			if point.Buckets == nil {
				m.skip("value")
				continue
			}
		case p.Summary != nil:
			kind, point.Quantiles = series.Summary, quantiles(p.Summary)
		default:
			point.Value = p.Untyped.GetValue()
		}
		if point.Buckets == nil && point.Quantiles == nil && (!finite(point.Value) || kind == series.Counter && point.Value < 0) {
			m.skip("value")
			continue
		}
		m.add(f.GetName(), f.GetHelp(), kind, point)
	}
}

// buckets returns a histogram, or nil when its counts fall.
func buckets(h *dto.Histogram) *series.Buckets {
	all := slices.Clone(h.Bucket)
	slices.SortFunc(all, func(a, b *dto.Bucket) int { return cmp.Compare(a.GetUpperBound(), b.GetUpperBound()) })
	b := &series.Buckets{Sum: h.GetSampleSum()}
	last := uint64(0)
	for i, c := range all {
		n := c.GetCumulativeCount()
		if math.IsInf(c.GetUpperBound(), 1) {
			break
		}
		if n < last || !finite(c.GetUpperBound()) || i > 0 && c.GetUpperBound() == all[i-1].GetUpperBound() {
			return nil
		}
		b.Bounds = append(b.Bounds, c.GetUpperBound())
		b.Counts = append(b.Counts, n-last)
		last = n
	}
	if h.GetSampleCount() < last || !finite(b.Sum) {
		return nil
	}
	b.Counts = append(b.Counts, h.GetSampleCount()-last)
	return b
}

func quantiles(s *dto.Summary) *series.Quantile {
	q := &series.Quantile{Sum: s.GetSampleSum(), Count: s.GetSampleCount()}
	all := slices.Clone(s.Quantile)
	slices.SortFunc(all, func(a, b *dto.Quantile) int { return cmp.Compare(a.GetQuantile(), b.GetQuantile()) })
	for _, v := range all {
		q.Ranks = append(q.Ranks, v.GetQuantile())
		q.Values = append(q.Values, v.GetValue())
	}
	return q
}
