package prometheus

import (
	"math"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/tally"
)

// header returns the lines before a metric's samples, in both formats.
func header(m *catalog.Metric) (h [2][]byte) {
	family, kind := m.Name, m.Kind.String()
	if m.Kind == catalog.Info {
		kind = "gauge"
	}
	h[Text] = []byte("# HELP " + family + " " + escapeHelp(m.Help, false) + "\n# TYPE " + family + " " + kind + "\n")
	switch m.Kind {
	case catalog.Counter:
		family = strings.TrimSuffix(m.Name, "_total")
	case catalog.Info:
		family, kind = strings.TrimSuffix(m.Name, "_info"), "info"
	}
	om := "# HELP " + family + " " + escapeHelp(m.Help, true) + "\n# TYPE " + family + " " + kind + "\n"
	if m.Unit != "" {
		om += "# UNIT " + family + " " + m.Unit + "\n"
	}
	h[OpenMetrics] = []byte(om)
	return h
}

func escapeHelp(s string, quotes bool) string {
	s = strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(s)
	if quotes {
		s = strings.ReplaceAll(s, `"`, `\"`)
	}
	return s
}

// appendLabels appends name="value" pairs, each with a comma before it when
// anything is between dst[start:] and it. A label without a value is left out:
// to Prometheus that is the same series, and other readers are not told of an
// empty one.
func appendLabels(dst []byte, names, values []string) []byte {
	start := len(dst)
	for i, v := range values {
		if v == "" {
			continue
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(dst, names[i]...)
		dst = append(dst, '=', '"')
		dst = appendEscaped(dst, v)
		dst = append(dst, '"')
	}
	return dst
}

// appendEscaped appends a label value as it stands between quotes: backslash,
// quote and line feed are escaped; both formats take every other character of
// UTF-8 as it is.
func appendEscaped(dst []byte, v string) []byte {
	for i := range len(v) {
		switch c := v[i]; c {
		case '\\', '"':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// tail returns what follows the labels of a scope in a sample line: the
// metric's own labels behind a comma, the brace and a space.
func tail(names, values []string) []byte {
	own := appendLabels(nil, names, values)
	if len(own) > 0 {
		own = append([]byte{','}, own...)
	}
	return append(own, '}', ' ')
}

// appendLine appends the part of a sample line before its value.
func appendLine(dst, head, labels, tail []byte) []byte {
	dst = append(dst, head...)
	dst = append(dst, labels...)
	if len(labels) == 0 && tail[0] == ',' {
		tail = tail[1:]
	}
	return append(dst, tail...)
}

// bound returns a bucket's upper bound as the label le has it in OpenMetrics
// (1.0, 0.25, 1.6777216e+07). The text format takes it too; with one form a
// bucket is the same series whichever format was negotiated.
func bound(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// appendFloat appends f as both formats read it. Whole numbers that a float64
// holds exactly, which most are, take the quick way.
func appendFloat(dst []byte, f float64) []byte {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.AppendInt(dst, int64(f), 10)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}

// appendScaled appends v times 10 to the -decimals, exactly.
func appendScaled(dst []byte, v uint64, decimals int) []byte {
	if decimals == 0 {
		return strconv.AppendUint(dst, v, 10)
	}
	unit := uint64(1)
	for range decimals {
		unit *= 10
	}
	dst = strconv.AppendUint(dst, v/unit, 10)
	rest := v % unit
	if rest == 0 {
		return dst
	}
	dst = append(dst, '.')
	for rest > 0 {
		unit /= 10
		dst = append(dst, '0'+byte(rest/unit))
		rest %= unit
	}
	return dst
}

// exemplarOf returns a histogram's exemplar and the bucket that it is in, or -1.
func exemplarOf(bounds []float64, h *tally.Histogram) (tally.Exemplar, int) {
	e, ok := h.Exemplar()
	if !ok {
		return e, -1
	}
	i := 0
	for i < len(bounds) && e.Value > bounds[i] {
		i++
	}
	return e, i
}

// appendExemplar appends what stands behind a bucket's count in OpenMetrics.
func appendExemplar(dst []byte, e tally.Exemplar) []byte {
	dst = append(dst, " # {"+tally.BuildLabel+"=\""...)
	dst = append(appendEscaped(dst, e.Build), "\"} "...)
	dst = appendFloat(dst, e.Value)
	if e.At.IsZero() {
		return dst
	}
	dst = strconv.AppendInt(append(dst, ' '), e.At.Unix(), 10)
	ms := e.At.Nanosecond() / 1e6
	return append(dst, '.', '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10))
}
