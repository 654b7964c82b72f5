package prometheus

import (
	"math"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/series"
)

// extra writes the families that are not in the catalogue. They come with labels
// of their own, so their bytes are rendered anew each time.
func (e *Encoder) extra(o *output, format Format) {
	others := e.others()
	for i := range others {
		if foreign(o, format, &others[i]); o.err != nil {
			return
		}
	}
}

// others returns the families that are not in the catalogue. One whose name is one
// of the catalogue's, or was there already, is left out: a name must not stand
// twice on a page.
func (e *Encoder) others() (all []series.Family) {
	seen := map[string]bool{}
	for _, source := range e.more {
		for _, f := range source() {
			base := strings.TrimSuffix(strings.TrimSuffix(f.Name, "_total"), "_info")
			if _, taken := catalog.Lookup(f.Name); !taken && !seen[base] && len(f.Points) > 0 {
				seen[base] = true
				all = append(all, f)
			}
		}
	}
	return all
}

// foreign writes a family of text or OpenMetrics.
func foreign(o *output, format Format, f *series.Family) {
	name, kind := f.Name, f.Kind
	if kind == series.Counter && format == OpenMetrics && !strings.HasSuffix(name, "_total") {
		kind = series.Unknown // a counter without _total is none there
	}
	family, word := name, kind.String()
	switch {
	case format == Text && kind == series.Unknown:
		word = "untyped"
	case format == Text && kind == series.Info:
		word = "gauge"
	case format == OpenMetrics && kind == series.Counter:
		family = strings.TrimSuffix(name, "_total")
	case format == OpenMetrics && kind == series.Info:
		family = strings.TrimSuffix(name, "_info")
	}
	if f.Help != "" {
		o.buf = append(o.buf, "# HELP "+family+" "+escapeHelp(f.Help, format == OpenMetrics)+"\n"...)
	}
	o.buf = append(o.buf, "# TYPE "+family+" "+word+"\n"...)
	if format == OpenMetrics && f.Unit != "" && strings.HasSuffix(family, "_"+f.Unit) {
		o.buf = append(o.buf, "# UNIT "+family+" "+f.Unit+"\n"...)
	}
	for i := range f.Points {
		p := &f.Points[i]
		switch {
		case p.Buckets != nil:
			n := uint64(0)
			for j, c := range p.Buckets.Counts {
				n += c
				le := math.Inf(1)
				if j < len(p.Buckets.Bounds) {
					le = p.Buckets.Bounds[j]
				}
				o.line(name+"_bucket", p.Labels, "le", floatLabel(le))
				o.buf = strconv.AppendUint(o.buf, n, 10)
				o.end()
			}
			o.sumAndCount(name, p.Labels, p.Buckets.Sum, n)
		case p.Quantiles != nil:
			for j, v := range p.Quantiles.Values {
				o.line(name, p.Labels, "quantile", floatLabel(p.Quantiles.Ranks[j]))
				o.buf = appendFloat(o.buf, v)
				o.end()
			}
			o.sumAndCount(name, p.Labels, p.Quantiles.Sum, p.Quantiles.Count)
		default:
			o.line(name, p.Labels, "", "")
			o.buf = appendFloat(o.buf, p.Value)
			o.end()
		}
	}
}

func (o *output) sumAndCount(name string, labels []series.Label, sum float64, n uint64) {
	o.line(name+"_sum", labels, "", "")
	o.buf = appendFloat(o.buf, sum)
	o.end()
	o.line(name+"_count", labels, "", "")
	o.buf = strconv.AppendUint(o.buf, n, 10)
	o.end()
}

// line appends a sample line up to its value, with one label more unless it has
// no name.
func (o *output) line(name string, labels []series.Label, more, value string) {
	o.buf = append(o.buf, name...)
	open := byte('{')
	add := func(name, value string) {
		o.buf = append(append(append(o.buf, open), name...), '=', '"')
		o.buf = append(appendEscaped(o.buf, strings.ToValidUTF8(value, "\uFFFD")), '"')
		open = ','
	}
	for _, l := range labels {
		if l.Value != "" {
			add(l.Name, l.Value)
		}
	}
	if more != "" {
		add(more, value)
	}
	if open == ',' {
		o.buf = append(o.buf, '}')
	}
	o.buf = append(o.buf, ' ')
}

// floatLabel is a bound or rank as both formats have it.
func floatLabel(f float64) string {
	if math.IsInf(f, 1) {
		return "+Inf"
	}
	return bound(f)
}
